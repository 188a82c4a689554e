/* lm_parts_mark.c: checkpoints of a model on several devices: one checkpoint per part.
 *
 *   offset  size  meaning (little-endian)
 *        0     8  magic "CHIMPRT\0"
 *        8     4  version, 1
 *       12     4  parts
 *       16     8  layout: model, cache types and split (struct lm)
 *       24     8  bytes of each part in turn, [parts]
 *        -     -  the parts as seq_file.c writes them; the caller's bytes are in the first part */
#include <string.h>

#include "base/file.h"
#include "base/os/fs.h"
#include "base/mem.h"
#include "engine/draft/drafter.h"
#include "engine/lm/lm_parts.h"
#include "model/seq/checkpoint.h"

enum { VERSION = 1, HEADER = 24 + 8 * GPUS_MAX };
static const char magic[8] = "CHIMPRT";

struct mark {
    struct checkpoint *part[GPUS_MAX]; /* owned */
};

static struct parts *parts_of(struct lm *l) { return (struct parts *)l; }
static struct mark *mark_of(const struct checkpoint *m) {
    return (struct mark *)(void *)(uintptr_t)m;
}
static struct seq *part_of(struct seq *s, int32_t i) {
    return ((struct part_seq *)(void *)s)->part[i];
}

/* Slices are copied by the thread of each device, concurrently; parts one after the other, each in its turn. */
static int for_each(struct parts *x, lm_part_fn *task, void *arg, struct err *e) {
    int most = 0;
    if (x->tensor) return lm_tensor_each(x->tensor, task, arg, e);
    for (int32_t i = 0; i < x->n; i++) {
        lm_parts_begin(x, i);
        int n = task(x, i, arg, e);
        lm_parts_end(x, i);
        if (n < 0) return n;
        most = n > most ? n : most;
    }
    return most;
}

static void mark_free(struct lm *l, struct checkpoint *m) {
    for (int32_t i = 0; m && i < parts_of(l)->n; i++) {
        lm_parts_begin(parts_of(l), i);
        checkpoint_free(mark_of(m)->part[i]);
        lm_parts_end(parts_of(l), i);
    }
    mem_free(m);
}

struct mark_task {
    struct seq *s;
    struct mark *m;
    int32_t n; /* tokens to drop; pages at most */
    bool first;
};

static int mark_part(struct parts *x, int32_t i, void *arg, struct err *e) {
    const struct mark_task *t = arg;
    (void)x;
    return checkpoint_new(part_of(t->s, i), t->n, &t->m->part[i], e);
}

static int restore_part(struct parts *x, int32_t i, void *arg, struct err *e) {
    const struct mark_task *t = arg;
    (void)x;
    return checkpoint_restore(part_of(t->s, i), t->m->part[i], t->first, t->n, e);
}

static int page_out_part(struct parts *x, int32_t i, void *arg, struct err *e) {
    const struct mark_task *t = arg;
    (void)x;
    return checkpoint_page_out(t->m->part[i], t->n, e);
}

static int mark_new(struct lm *l, struct seq *s, int32_t n_drop, struct checkpoint **out,
                    struct err *e) {
    *out = NULL;
    struct mark *m = mem_zalloc(sizeof *m);
    if (!m) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    struct mark_task t = {.s = s, .m = m, .n = n_drop};
    int rc = for_each(parts_of(l), mark_part, &t, e);
    if (rc) mark_free(l, (struct checkpoint *)(void *)m);
    else *out = (struct checkpoint *)(void *)m;
    return rc;
}

/* All parts have the same pages, so all of them finish restoring in the same call. */
static int restore(struct lm *l, struct seq *s, const struct checkpoint *m, bool first,
                   int32_t n_max, struct err *e) {
    struct mark_task t = {.s = s, .m = mark_of(m), .n = n_max, .first = first};
    int rc = for_each(parts_of(l), restore_part, &t, e);
    if (rc > 0 && l->drafter) l->drafter->ops->rewind(l->drafter, s);
    return rc;
}

static int64_t ctx_to_load(struct lm *l, const struct checkpoint *m) {
    int64_t most = 0;
    for (int32_t i = 0; i < parts_of(l)->n; i++) {
        int64_t n = checkpoint_n_ctx_to_load(mark_of(m)->part[i]);
        most = n > most ? n : most;
    }
    return most;
}

static int32_t page_out(struct lm *l, struct checkpoint *m, int32_t n_max, struct err *e) {
    struct mark_task t = {.m = mark_of(m), .n = n_max};
    return for_each(parts_of(l), page_out_part, &t, e);
}

static int64_t ctx_free(struct lm *l) {
    int64_t least = INT64_MAX;
    for (int32_t i = 0; i < parts_of(l)->n; i++) {
        int64_t n = seq_pool_free_ctx(parts_of(l)->part[i].pool);
        least = n < least ? n : least;
    }
    return least;
}

static uint64_t host_bytes(struct lm *l) {
    uint64_t n = 0;
    for (int32_t i = 0; i < parts_of(l)->n; i++)
        n += checkpoint_host_bytes(parts_of(l)->part[i].pool);
    return n;
}

/* ---- files ---- */

static void put(unsigned char *p, uint64_t v, size_t n) { memcpy(p, &v, n); }
static uint64_t take(const unsigned char *p, size_t n) {
    uint64_t v = 0;
    memcpy(&v, p, n);
    return v;
}

static int write_parts(struct lm *l, const struct checkpoint *m, FILE *f, const void *extra,
                       size_t n_extra, struct err *e) {
    unsigned char h[HEADER] = {0};
    int rc = fwrite(h, HEADER, 1, f) == 1 ? 0 : err_set(e, CHIMERE_EIO, "cannot write");
    memcpy(h, magic, sizeof magic);
    put(h + 8, VERSION, 4);
    put(h + 12, (uint64_t)parts_of(l)->n, 4);
    put(h + 16, l->layout, 8);
    for (int32_t i = 0; !rc && i < parts_of(l)->n; i++) {
        long at = ftell(f);
        rc = checkpoint_write(mark_of(m)->part[i], f, extra, i ? 0 : n_extra, e);
        put(h + 24 + 8 * i, (uint64_t)(ftell(f) - at), 8);
    }
    if (!rc && (fseek(f, 0, SEEK_SET) || fwrite(h, HEADER, 1, f) != 1))
        rc = err_set(e, CHIMERE_EIO, "cannot write");
    return rc;
}

static int save(struct lm *l, const struct checkpoint *m, const char *path, const void *extra,
                size_t n_extra, struct err *e) {
    struct file_writer w;
    int rc = file_writer_open(&w, path, e);
    if (rc) return rc;
    fs_make_private(w.f);
    rc = write_parts(l, m, w.f, extra, n_extra, e);
    if (!rc) return file_writer_commit(&w, e);
    file_writer_abort(&w);
    err_prefix(e, "%s", path);
    return rc;
}

/* Checks that the sizes in the header match the file; checkpoint_read checks the content of each part. */
static int check_header(const struct lm *l, const unsigned char h[HEADER], int32_t n,
                        uint64_t n_bytes, struct err *e) {
    uint64_t left = n_bytes - HEADER;
    if (memcmp(h, magic, sizeof magic) || take(h + 8, 4) != VERSION)
        return err_set(e, CHIMERE_EFORMAT, "expected a sequence saved by several cards");
    if (take(h + 12, 4) != (uint64_t)n || take(h + 16, 8) != l->layout)
        return err_set(e, CHIMERE_EMISMATCH, "saved with another model or by another split");
    for (int32_t i = 0; i < n; i++) {
        uint64_t size = take(h + 24 + 8 * i, 8);
        if (size > left) return err_set(e, CHIMERE_EFORMAT, "expected more bytes");
        left -= size;
    }
    return left ? err_set(e, CHIMERE_EFORMAT, "expected fewer bytes") : 0;
}

static int read_parts(struct lm *l, FILE *f, struct mark *m, void **extra, size_t *n_extra,
                      struct err *e) {
    struct parts *x = parts_of(l);
    struct fs_info st;
    unsigned char h[HEADER];
    if (fs_stat_fd(fileno(f), &st) || !st.is_file || st.bytes < HEADER ||
        fread(h, HEADER, 1, f) != 1)
        return err_set(e, CHIMERE_EFORMAT, "expected a saved sequence, got a file too short");
    int rc = check_header(l, h, x->n, st.bytes, e);
    for (int32_t i = 0; !rc && i < x->n; i++) {
        void *own = NULL;
        size_t n_own = 0;
        rc = checkpoint_read(x->part[i].pool, f, take(h + 24 + 8 * i, 8), &m->part[i], &own, &n_own,
                             e);
        if (i) mem_free(own);
        else *extra = own, *n_extra = n_own;
        if (!rc && i && checkpoint_pos(m->part[i]) != checkpoint_pos(m->part[0]))
            rc = err_set(e, CHIMERE_EFORMAT, "parts of different positions");
    }
    return rc;
}

static int load(struct lm *l, const char *path, struct checkpoint **out, void **extra,
                size_t *n_extra, struct err *e) {
    *out = NULL;
    *extra = NULL;
    *n_extra = 0;
    FILE *f = fopen(path, "rbe");
    if (!f) return err_set(e, CHIMERE_ENOENT, "%s: cannot open", path);
    struct mark *m = mem_zalloc(sizeof *m);
    int rc =
        m ? read_parts(l, f, m, extra, n_extra, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    fclose(f);
    if (!rc) {
        *out = (struct checkpoint *)(void *)m;
        return 0;
    }
    for (int32_t i = 0; m && i < parts_of(l)->n; i++) checkpoint_free_host(m->part[i]);
    mem_free(m);
    mem_free(*extra);
    *extra = NULL;
    *n_extra = 0;
    err_prefix(e, "%s", path);
    return rc;
}

const struct lm_mark_ops lm_parts_marks = {.mark = mark_new,
                                           .checkpoint_free = mark_free,
                                           .restore = restore,
                                           .ctx_to_load = ctx_to_load,
                                           .page_out = page_out,
                                           .ctx_free = ctx_free,
                                           .host_bytes = host_bytes,
                                           .save = save,
                                           .load = load};
