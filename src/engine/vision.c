#include "engine/vision.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "format/images.h"

struct entry {
    struct vision_image image; /* must be the first member */
    uint64_t key[2];
    size_t n_byte;
    int32_t n_user;
    struct entry *newer, *older; /* list of all entries, including those in use */
};

struct vision {
    const struct llama_shim *shim;
    struct shim_model *m;
    int32_t n_vocab, n_row_embd, n_row_max;
    /* secret: part of the hash, so that nobody can construct two files with the same key */
    uint64_t salt, secret;
    pthread_mutex_t encoding;
    pthread_mutex_t lock; /* guards the list */
    struct entry *newest, *oldest;
    size_t n_byte;
};

int vision_new(struct vision **out, const struct llama_shim *shim, struct shim_model *m,
               const struct llama_shim_info *info, uint64_t salt, struct err *e) {
    struct vision *v = mem_zalloc(sizeof *v);
    *out = v;
    if (!v) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    *v = (struct vision){.shim = shim,
                         .m = m,
                         .n_vocab = info->n_vocab,
                         .n_row_embd = info->n_row_embd,
                         .n_row_max = info->n_row_max,
                         .salt = salt,
                         .secret = rng_entropy()};
    pthread_mutex_init(&v->encoding, NULL);
    pthread_mutex_init(&v->lock, NULL);
    return 0;
}

static void free_entry(struct entry *x) {
    if (!x) return;
    mem_free(x->image.ids);
    mem_free(x->image.runs);
    mem_free(x->image.rows);
    mem_free(x);
}

void vision_free(struct vision *v) {
    if (!v) return;
    for (struct entry *x = v->oldest, *next; x; x = next) {
        next = x->newer;
        free_entry(x);
    }
    pthread_mutex_destroy(&v->encoding);
    pthread_mutex_destroy(&v->lock);
    mem_free(v);
}

int vision_check(const void *data, size_t n, struct err *e) {
    uint32_t w, h;
    enum images_kind kind = images_size(data, n, &w, &h);
    const char *name = images_kind_name(kind);
    if (n > VISION_MAX_BYTES)
        return err_set(e, CHIMERE_ELIMIT, "expected an image of at most %d bytes, got %zu",
                       VISION_MAX_BYTES, n);
    if (kind == IMAGES_UNKNOWN || kind == IMAGES_WEBP)
        return err_set(e, CHIMERE_EUNSUPPORTED, "expected a PNG, JPEG, GIF or BMP image, got %s",
                       kind ? name : "something else");
    if (!w) return err_set(e, CHIMERE_EINVAL, "the head of the %s image is damaged", name);
    if (w > VISION_MAX_SIDE || h > VISION_MAX_SIDE || (uint64_t)w * h > VISION_MAX_PIXELS)
        return err_set(e, CHIMERE_ELIMIT,
                       "expected an image of at most %d pixels, and %d on a side, got %u x %u",
                       VISION_MAX_PIXELS, VISION_MAX_SIDE, w, h);
    return 0;
}

/* ---- cache of encoded images; call with the lock held ---- */

static void unlink_entry(struct vision *v, struct entry *x) {
    if (x->newer) x->newer->older = x->older;
    else v->newest = x->older;
    if (x->older) x->older->newer = x->newer;
    else v->oldest = x->newer;
    x->newer = x->older = NULL;
    v->n_byte -= x->n_byte;
}

static void link_entry(struct vision *v, struct entry *x) {
    x->older = v->newest;
    x->newer = NULL;
    if (v->newest) v->newest->newer = x;
    else v->oldest = x;
    v->newest = x;
    v->n_byte += x->n_byte;
}

static void forget_oldest(struct vision *v) {
    for (struct entry *x = v->oldest, *next; x && v->n_byte > VISION_KEPT_BYTES; x = next) {
        next = x->newer;
        if (x->n_user) continue;
        unlink_entry(v, x);
        free_entry(x);
    }
}

static struct entry *find(struct vision *v, const uint64_t key[2]) {
    pthread_mutex_lock(&v->lock);
    struct entry *x = v->newest;
    while (x && (x->key[0] != key[0] || x->key[1] != key[1])) x = x->older;
    if (x) {
        unlink_entry(v, x);
        link_entry(v, x);
        x->n_user++;
    }
    pthread_mutex_unlock(&v->lock);
    return x;
}

/* ---- encoding ---- */

/* Divides the ids below 0 into runs of at most n_row_max rows, unless a run must be whole. Then replaces these ids by
 * ones computed from the key. */
static int name_rows(const struct vision *v, struct entry *x, struct err *e) {
    struct vision_image *i = &x->image;
    int32_t row = 0;
    for (int32_t at = 0; at < i->n_tok;) {
        int32_t mark = i->ids[at], n = 1;
        if (mark >= v->n_vocab)
            return err_set(e, CHIMERE_EDEVICE, "libmtmd gives the token %d", mark);
        if (mark < 0)
            while (at + n < i->n_tok && i->ids[at + n] == mark) n++;
        if (mark < 0) {
            bool whole = -mark % 2 == 1;
            if (whole && n > v->n_row_max)
                return err_set(e, CHIMERE_ELIMIT,
                               "expected at most %d rows that attend to each other, got %d",
                               v->n_row_max, n);
            i->runs[i->n_run++] =
                (struct job_image){.at = at,
                                   .n = n,
                                   .most = v->n_row_max,
                                   .width = v->n_row_embd,
                                   .is_whole = whole,
                                   .rows = i->rows + (size_t)row * (size_t)v->n_row_embd};
            for (int32_t t = at; t < at + n; t++)
                i->ids[t] =
                    (int32_t)(hash_mix(x->key[0] + v->salt + (uint64_t)t) % (uint64_t)v->n_vocab);
            row += n;
        }
        at += n;
    }
    return 0;
}

static int take_rows(const struct vision *v, struct entry *x, const struct shim_image *seen,
                     const struct llama_shim_image *info, struct err *e) {
    struct vision_image *i = &x->image;
    size_t n_tok = (size_t)info->n_tok, n_row = (size_t)info->n_row;
    i->n_tok = info->n_tok;
    i->ids = mem_alloc_array(n_tok, sizeof *i->ids);
    i->runs = mem_alloc_array(n_row + 1, sizeof *i->runs);
    i->rows = mem_alloc_array(n_row * (size_t)v->n_row_embd + 1, sizeof *i->rows);
    if (!i->ids || !i->runs || !i->rows) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    v->shim->image_read(seen, i->ids, i->rows);
    x->n_byte = n_row * (size_t)v->n_row_embd * sizeof *i->rows + n_tok * sizeof *i->ids;
    return name_rows(v, x, e);
}

static int encode(struct vision *v, const void *data, size_t n, struct entry *x, struct err *e) {
    struct shim_image *seen = NULL;
    struct llama_shim_image info = {0, 0};
    char text[LLAMA_SHIM_TEXT] = "";
    int rc = v->shim->image_open(v->m, data, n, &seen, &info, text);
    if (rc) return err_set(e, rc, "%s", text);
    rc = take_rows(v, x, seen, &info, e);
    v->shim->image_close(seen);
    return rc;
}

int vision_open(struct vision *v, const void *data, size_t n, const struct vision_image **out,
                struct err *e) {
    const uint64_t key[2] = {hash_bytes(data, n, v->secret), hash_bytes(data, n, ~v->secret)};
    *out = NULL;
    int rc = vision_check(data, n, e);
    if (rc) return rc;
    struct entry *x = find(v, key);
    if (!x) {
        pthread_mutex_lock(&v->encoding);
        x = find(v, key); /* another request may have encoded it meanwhile */
        if (!x) {
            x = mem_zalloc(sizeof *x);
            rc = x ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
            if (x) memcpy(x->key, key, sizeof key);
            if (!rc) rc = encode(v, data, n, x, e);
            if (rc) {
                free_entry(x);
                x = NULL;
            } else {
                x->n_user = 1;
                pthread_mutex_lock(&v->lock);
                link_entry(v, x);
                forget_oldest(v);
                pthread_mutex_unlock(&v->lock);
            }
        }
        pthread_mutex_unlock(&v->encoding);
    }
    if (x) *out = &x->image;
    return rc;
}

void vision_close(struct vision *v, const struct vision_image *i) {
    struct entry *x = (struct entry *)(uintptr_t)i;
    if (!x) return;
    pthread_mutex_lock(&v->lock);
    x->n_user--;
    forget_oldest(v);
    pthread_mutex_unlock(&v->lock);
}
