/* ramp_store.c: see ramp_store.h. */
#include "ramp/ramp_store.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "format/quant.h"
#include "model/seq/swap.h"

struct held {            /* one tensor in one form */
    struct swap *swap;   /* owned; NULL: not on the device */
    struct file_map map; /* owned; the cached file, while it is used in place or by a caller */
    void *memory;        /* owned; encoded bytes if there is no file */
};

struct ramp_store {
    const struct ramp_set *set; /* borrowed */
    struct model *m;            /* borrowed */
    struct encoder *encoder;    /* owned */
    struct held *held;          /* owned [n_gene, RAMP_MAX_FORMS] */
    uint8_t *now;               /* owned [n_gene]: the forms in place */
    char folder[3800];
    uint64_t cache_bytes, cached_bytes; /* limit and use of the files */
    uint64_t device_bytes, device_limit;
};

static struct held *held_of(struct ramp_store *st, size_t gene, int form) {
    return &st->held[gene * RAMP_MAX_FORMS + (size_t)form];
}

static void path_of(const struct ramp_store *st, size_t gene, int form, char out[4096]) {
    const struct ramp_gene *g = &st->set->genes[gene];
    snprintf(out, 4096, "%s/%05zu-%s", st->folder, g->index,
             quant_traits(g->forms[form].to.type)->name);
}

int ramp_store_open(struct ramp_store **out, const struct ramp_set *s, struct model *m,
                    const struct ramp_options *o, struct err *e) {
    *out = NULL;
    struct ramp_store *st = mem_zalloc(sizeof *st);
    if (!st) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    st->set = s;
    st->m = m;
    st->cache_bytes = o->cache_bytes;
    st->held = mem_alloc_array(s->n_gene * RAMP_MAX_FORMS, sizeof *st->held);
    st->now = mem_alloc_array(s->n_gene, 1);
    int n = snprintf(st->folder, sizeof st->folder, "%s/cache-%016llx", o->work,
                     (unsigned long long)s->hash);
    int rc = st->held && st->now ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && (size_t)n >= sizeof st->folder)
        rc = err_set(e, CHIMERE_ELIMIT, "%s: path is too long", o->work);
    if (!rc) rc = file_mkdirs(st->folder, e);
    if (!rc) rc = encode_new(&st->encoder, o->n_thread, e);
    if (rc) {
        ramp_store_close(st);
        return rc;
    }
    memset(st->now, RAMP_SOURCE, s->n_gene);
    for (size_t i = 0; i < s->n_gene; i++)
        for (int k = 0; k < s->genes[i].n_form; k++) {
            char path[4096];
            path_of(st, i, k, path);
            if (file_exists(path)) st->cached_bytes += s->genes[i].forms[k].n_bytes;
        }
    uint64_t room = m && m->dev->ops->free_bytes(m->dev) ? m->dev->ops->free_bytes(m->dev) : 0;
    st->device_limit = room ? room / 2 : (uint64_t)8 << 30;
    *out = st;
    return 0;
}

static void drop(struct ramp_store *st, struct held *h) {
    if (h->swap) st->device_bytes -= swap_bytes(h->swap);
    swap_free(h->swap);
    file_unmap(&h->map);
    mem_free(h->memory);
    *h = (struct held){.swap = NULL};
}

void ramp_store_close(struct ramp_store *st) {
    if (!st) return;
    for (size_t i = 0; st->held && i < st->set->n_gene; i++) {
        if (st->m && st->now && st->now[i] != RAMP_SOURCE)
            swap_restore(st->m, st->set->genes[i].tensor->name);
        for (int k = 0; k < RAMP_MAX_FORMS; k++) drop(st, held_of(st, i, k));
    }
    encode_free(st->encoder);
    mem_free(st->held);
    mem_free(st->now);
    mem_free(st);
}

/* ---- encoding ---- */

struct sink {
    FILE *f;
    char *memory;
    size_t n;
};

static int put(void *ud, const void *data, size_t n, uint64_t source, struct err *e) {
    struct sink *s = ud;
    (void)source;
    if (s->memory) memcpy(s->memory + s->n, data, n);
    else if (fwrite(data, 1, n, s->f) != n)
        return err_set(e, CHIMERE_EIO, "cannot write the cache: is the disk full?");
    s->n += n;
    return 0;
}

/* Both parts, one after the other. */
static int encode_parts(struct ramp_store *st, const struct ramp_gene *g,
                        const struct quantize_columns *to, const struct hints *h, struct sink *s,
                        struct err *e) {
    const struct gguf_tensor *t = g->tensor;
    int rc = encode_run(st->encoder, t, 0, to->n_first, to->type, h, put, s, e);
    if (rc || !to->tail_bytes) return rc;
    return encode_run(st->encoder, t, to->n_first, t->ne[0] - to->n_first, to->tail, h, put, s, e);
}

static int encode_to_file(struct ramp_store *st, const struct ramp_gene *g,
                          const struct quantize_columns *to, const struct hints *h,
                          const char *path, struct err *e) {
    struct file_writer file;
    int rc = file_writer_open(&file, path, e);
    if (rc) return rc;
    struct sink s = {.f = file.f};
    rc = encode_parts(st, g, to, h, &s, e);
    if (!rc) return file_writer_commit(&file, e);
    file_writer_abort(&file);
    return rc;
}

static int encode(struct ramp_store *st, size_t gene, int form, const char *path, struct err *e) {
    const struct ramp_gene *g = &st->set->genes[gene];
    const struct ramp_form *f = &g->forms[form];
    struct held *h = held_of(st, gene, form);
    struct hints *hints;
    int rc = hints_open(&hints, st->set->imatrix, g->tensor, e);
    if (rc) return rc;
    if (st->cached_bytes + f->n_bytes <= st->cache_bytes) {
        rc = encode_to_file(st, g, &f->to, hints, path, e);
        if (!rc) st->cached_bytes += f->n_bytes;
    } else {
        struct sink s = {.memory = mem_alloc((size_t)f->n_bytes)};
        h->memory = s.memory;
        rc = s.memory ? encode_parts(st, g, &f->to, hints, &s, e)
                      : err_set(e, CHIMERE_ENOMEM, "tensor %s: out of memory", g->tensor->name);
    }
    hints_close(hints);
    return rc;
}

const void *ramp_store_cached(struct ramp_store *st, size_t gene, int form) {
    struct held *h = held_of(st, gene, form);
    char path[4096];
    if (h->map.data) return h->map.data;
    path_of(st, gene, form, path);
    if (!file_exists(path) || file_map(&h->map, path, NULL)) return NULL;
    if (h->map.size == st->set->genes[gene].forms[form].n_bytes) return h->map.data;
    file_unmap(&h->map);
    h->map = (struct file_map){.data = NULL};
    return NULL;
}

/* Frees the memory of forms that no gene has in place. */
static void evict(struct ramp_store *st) {
    for (size_t i = 0; i < st->set->n_gene; i++)
        for (int k = 0; k < st->set->genes[i].n_form; k++)
            if (k != st->now[i]) drop(st, held_of(st, i, k));
}

static int load(struct ramp_store *st, size_t gene, int form, struct err *e) {
    const struct ramp_gene *g = &st->set->genes[gene];
    struct held *h = held_of(st, gene, form);
    char path[4096];
    if (h->swap) return 0;
    if (st->device_bytes > st->device_limit) evict(st);
    const void *data = ramp_store_cached(st, gene, form);
    if (!data) {
        path_of(st, gene, form, path);
        int rc = encode(st, gene, form, path, e);
        if (rc) return rc;
        data = h->memory ? h->memory : ramp_store_cached(st, gene, form);
        if (!data) return err_set(e, CHIMERE_EIO, "%s: cannot be read again", path);
    }
    const struct quantize_columns *to = &g->forms[form].to;
    const struct swap_form parts = {to->type, to->tail, to->n_first, data,
                                    (const char *)data + to->n_bytes};
    int rc = swap_new(&h->swap, st->m, g->tensor->name, &parts, e);
    if (!rc) st->device_bytes += swap_bytes(h->swap);
    return rc;
}

int ramp_store_apply(struct ramp_store *st, const uint8_t *choice, struct err *e) {
    for (size_t i = 0; i < st->set->n_gene; i++) {
        const struct ramp_gene *g = &st->set->genes[i];
        uint8_t to = choice[i];
        if (to != RAMP_SOURCE && g->forms[to].to.type == g->tensor->type) to = RAMP_SOURCE;
        if (to == st->now[i] || g->is_draft || !swap_is_possible(st->m, g->tensor->name)) continue;
        if (to == RAMP_SOURCE) {
            swap_restore(st->m, g->tensor->name);
        } else {
            int rc = load(st, i, to, e);
            if (rc) return rc;
            swap_apply(held_of(st, i, to)->swap);
        }
        st->now[i] = to;
    }
    return 0;
}
