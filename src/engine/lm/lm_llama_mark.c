/* lm_llama_mark.c: checkpoints of libllama's sequences.
 *
 * If a model's state consists of keys and values only, a checkpoint shares cells with a spare sequence id, which does
 * not copy. libllama's state functions copy it to the host when its cells or its id are needed. Other states (recurrent
 * ones) are copied to the host at once. A state is restored as a whole: libllama cannot load part of one. */
#include <stddef.h>
#include <string.h>

#include "base/file.h"
#include "base/os/fs.h"
#include "base/hash.h"
#include "base/mem.h"
#include "engine/lm/lm_llama_impl.h"

static struct llama_lm *lm_of(struct lm *l) { return (struct llama_lm *)l; }
static struct llama_seq *seq_of(struct seq *s) { return (struct llama_seq *)(void *)s; }
static struct llama_mark *mark_of(const struct checkpoint *m) {
    return (struct llama_mark *)(void *)(uintptr_t)m;
}
static int32_t pages_of(int64_t pos) { return (int32_t)((pos + KV_PAGE - 1) / KV_PAGE); }

/* ---- ids ---- */

static void link_id(struct llama_lm *x, struct llama_mark *m, int32_t id) {
    m->id = id;
    m->epoch = x->shim->epoch(x->m);
    m->older = x->newest;
    if (x->newest) x->newest->newer = m;
    else x->oldest = m;
    x->newest = m;
}

static void unlink_id(struct llama_lm *x, struct llama_mark *m) {
    if (m->id < 0) return;
    if (m->newer) m->newer->older = m->older;
    else x->newest = m->older;
    if (m->older) m->older->newer = m->newer;
    else x->oldest = m->newer;
    m->older = m->newer = NULL;
    x->shim->seq_remove(x->m, m->id, 0);
    x->taken[m->id] = false;
    m->id = -1;
    lm_llama_cut(x, &m->pages, 0);
    mem_free(m->pages.ids);
    m->pages = (struct llama_pages){.n = 0};
}

/* Copies the state of sequence id to m->data. */
static int copy_out(struct llama_lm *x, int32_t id, struct llama_mark *m, struct err *e) {
    size_t n = x->shim->state_bytes(x->m, id);
    m->data = n ? mem_alloc(n) : NULL;
    if (!m->data)
        return n ? err_set(e, CHIMERE_ENOMEM, "out of memory")
                 : err_set(e, CHIMERE_EUNSUPPORTED, "libllama gives no state of this model");
    if (x->shim->state_save(x->m, id, m->data, n) != n) {
        mem_free(m->data);
        m->data = NULL;
        return err_set(e, CHIMERE_EDEVICE, "libllama fails to save a state");
    }
    m->n_byte = n;
    x->host_bytes += n;
    return 0;
}

static int to_host(struct llama_lm *x, struct llama_mark *m, struct err *e) {
    if (m->epoch != x->shim->epoch(x->m))
        return err_set(e, CHIMERE_ENOENT, "the state was lost with libllama's process");
    int rc = copy_out(x, m->id, m, e);
    if (!rc) unlink_id(x, m);
    return rc;
}

/* Returns a spare id; if none is free, moves the oldest checkpoint with an id to the host. -1: none. */
static int32_t spare_id(struct llama_lm *x) {
    struct err e;
    int32_t id = lm_llama_take_id(x, x->n_seq, x->info.n_seq);
    if (id < 0 && x->oldest && !to_host(x, x->oldest, &e))
        id = lm_llama_take_id(x, x->n_seq, x->info.n_seq);
    return id;
}

/* ---- states ---- */

static void llama_mark_free(struct lm *l, struct checkpoint *c) {
    struct llama_mark *m = mark_of(c);
    if (!m) return;
    unlink_id(lm_of(l), m);
    lm_of(l)->host_bytes -= m->n_byte;
    mem_free(m->data);
    mem_free(m);
}

static int keep_shared(struct llama_lm *x, const struct llama_seq *s, struct llama_mark *m,
                       struct err *e) {
    int32_t id = spare_id(x);
    if (id < 0) return err_set(e, CHIMERE_EBUSY, "no id of libllama is free for a state");
    int rc = lm_llama_share(x, &s->pages, &m->pages, m->pos, e);
    if (rc) {
        x->taken[id] = false;
        return rc;
    }
    x->shim->seq_share(x->m, s->id, id, m->pos);
    link_id(x, m, id);
    return 0;
}

static int llama_mark_new(struct lm *l, struct seq *seq, int32_t n_drop, struct checkpoint **out,
                          struct err *e) {
    struct llama_lm *x = lm_of(l);
    const struct llama_seq *s = seq_of(seq);
    *out = NULL;
    if (n_drop && (n_drop > s->pos || !x->info.is_attention))
        return err_set(e, CHIMERE_EINVAL, "checkpoint: no way back by %d tokens", n_drop);
    struct llama_mark *m = mem_zalloc(sizeof *m);
    if (!m) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    m->id = -1;
    m->pos = s->pos - n_drop;
    int rc = x->info.is_attention ? keep_shared(x, s, m, e) : copy_out(x, s->id, m, e);
    if (!rc && !x->info.is_attention) l->checkpoint_bytes = m->n_byte;
    if (rc) llama_mark_free(l, (struct checkpoint *)(void *)m);
    else *out = (struct checkpoint *)(void *)m;
    return rc;
}

static int restore_shared(struct llama_lm *x, struct llama_seq *s, const struct llama_mark *m,
                          struct err *e) {
    if (m->epoch != x->shim->epoch(x->m))
        return err_set(e, CHIMERE_ENOENT, "the state was lost with libllama's process");
    int rc = lm_llama_share(x, &m->pages, &s->pages, m->pos, e);
    if (rc) return rc;
    x->shim->seq_share(x->m, m->id, s->id, m->pos);
    return 1;
}

/* Reserves at most n_max pages per call, so that other checkpoints can leave the memory meanwhile; the last call loads
 * the whole state. */
static int restore_host(struct llama_lm *x, struct llama_seq *s, const struct llama_mark *m,
                        int32_t n_max, struct err *e) {
    int32_t n = s->n_reserved + n_max, all = pages_of(m->pos);
    s->n_reserved = n < all ? n : all;
    int rc = lm_llama_grow(x, &s->pages, 0, (int64_t)s->n_reserved * KV_PAGE, e);
    if (rc || s->n_reserved < all) return rc;
    if (x->shim->state_load(x->m, s->id, m->data, m->n_byte) != m->n_byte)
        return err_set(e, CHIMERE_EDEVICE, "libllama fails to load a state of %zu bytes",
                       m->n_byte);
    return 1;
}

static int llama_restore(struct lm *l, struct seq *seq, const struct checkpoint *c, bool first,
                         int32_t n_max, struct err *e) {
    struct llama_lm *x = lm_of(l);
    struct llama_seq *s = seq_of(seq);
    const struct llama_mark *m = mark_of(c);
    if (first) {
        x->shim->seq_remove(x->m, s->id, 0);
        lm_llama_cut(x, &s->pages, 0);
        s->pos = s->n_defer = s->n_reserved = 0;
    }
    if (m->id >= 0) lm_llama_cut(x, &s->pages, 0); /* release pages reserved for loading */
    int rc = m->id >= 0 ? restore_shared(x, s, m, e) : restore_host(x, s, m, n_max, e);
    if (rc > 0) s->pos = m->pos;
    s->epoch = x->shim->epoch(x->m);
    return rc;
}

static int64_t llama_ctx_to_load(struct lm *l, const struct checkpoint *c) {
    (void)l;
    const struct llama_mark *m = mark_of(c);
    return m->id >= 0 ? 0 : (int64_t)pages_of(m->pos) * KV_PAGE;
}

static int32_t llama_page_out(struct lm *l, struct checkpoint *c, int32_t n_max, struct err *e) {
    struct llama_mark *m = mark_of(c);
    if (m->id < 0 || n_max < 1) return 0;
    int32_t n = pages_of(m->pos);
    int rc = to_host(lm_of(l), m, e);
    return rc ? rc : n;
}

static int64_t llama_ctx_free(struct lm *l) {
    const struct llama_lm *x = lm_of(l);
    return l->n_ctx - (int64_t)(x->n_page - x->n_unused) * KV_PAGE;
}

static uint64_t llama_host_bytes(struct lm *l) { return lm_of(l)->host_bytes; }

/* ---- files: a header, the bytes of the state and the caller's data, all covered by one checksum ---- */

struct head {
    char magic[8];
    uint32_t version, crc; /* checksum of all that follows */
    int64_t pos;
    uint64_t n_byte, n_extra;
};
static const char magic[8] = "CHILLAMA";
enum { FILE_VERSION = 1 };

static uint32_t checksum(const struct head *h, const void *data, const void *extra) {
    uint32_t crc = hash_crc32c(0, &h->pos, sizeof *h - offsetof(struct head, pos));
    crc = hash_crc32c(crc, data, (size_t)h->n_byte);
    return hash_crc32c(crc, extra, (size_t)h->n_extra);
}

static int llama_save(struct lm *l, const struct checkpoint *c, const char *path, const void *extra,
                      size_t n_extra, struct err *e) {
    (void)l;
    const struct llama_mark *m = mark_of(c);
    struct head h = {
        .version = FILE_VERSION, .pos = m->pos, .n_byte = m->n_byte, .n_extra = n_extra};
    struct file_writer w;
    memcpy(h.magic, magic, sizeof magic);
    h.crc = checksum(&h, m->data, extra);
    int rc = file_writer_open(&w, path, e);
    if (rc) return rc;
    fs_make_private(w.f); /* readable by the user only: the tokens reveal the conversation */
    if (fwrite(&h, sizeof h, 1, w.f) == 1 && fwrite(m->data, 1, m->n_byte, w.f) == m->n_byte &&
        fwrite(extra, 1, n_extra, w.f) == n_extra)
        return file_writer_commit(&w, e);
    file_writer_abort(&w);
    return err_set(e, CHIMERE_EIO, "%s: cannot write", path);
}

static bool is_whole(const struct head *h, const unsigned char *bytes, size_t n, int64_t n_ctx) {
    size_t left = n - sizeof *h;
    return memcmp(h->magic, magic, sizeof magic) == 0 && h->version == FILE_VERSION && h->pos > 0 &&
           h->pos <= n_ctx && h->n_byte <= left && h->n_extra == left - h->n_byte &&
           checksum(h, bytes + sizeof *h, bytes + sizeof *h + h->n_byte) == h->crc;
}

static int llama_load(struct lm *l, const char *path, struct checkpoint **out, void **extra,
                      size_t *n_extra, struct err *e) {
    char *text = NULL;
    size_t n = 0;
    struct head h = {.version = 0};
    *out = NULL;
    *extra = NULL;
    *n_extra = 0;
    int rc = file_read(path, (size_t)1 << 40, &text, &n, e);
    if (rc) return rc;
    if (n >= sizeof h) memcpy(&h, text, sizeof h);
    if (n < sizeof h || !is_whole(&h, (const unsigned char *)text, n, l->n_ctx)) {
        mem_free(text);
        return err_set(e, CHIMERE_ECHECKSUM, "%s: damaged", path);
    }
    struct llama_mark *m = mem_zalloc(sizeof *m);
    *extra = mem_alloc((size_t)h.n_extra + 1);
    if (!m || !*extra) {
        mem_free(m);
        mem_free(*extra);
        mem_free(text);
        *extra = NULL;
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    memcpy(*extra, text + sizeof h + h.n_byte, (size_t)h.n_extra);
    *n_extra = (size_t)h.n_extra;
    memmove(text, text + sizeof h, (size_t)h.n_byte);
    *m = (struct llama_mark){
        .pos = h.pos, .id = -1, .data = (unsigned char *)text, .n_byte = (size_t)h.n_byte};
    lm_of(l)->host_bytes += m->n_byte;
    *out = (struct checkpoint *)(void *)m;
    return 0;
}

const struct lm_mark_ops lm_llama_marks = {.mark = llama_mark_new,
                                           .checkpoint_free = llama_mark_free,
                                           .restore = llama_restore,
                                           .ctx_to_load = llama_ctx_to_load,
                                           .page_out = llama_page_out,
                                           .ctx_free = llama_ctx_free,
                                           .host_bytes = llama_host_bytes,
                                           .save = llama_save,
                                           .load = llama_load};
