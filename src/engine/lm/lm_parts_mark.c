/* lm_parts_mark.c: checkpoints of a model on several devices: one checkpoint per part. In files they are joined
 * (seq_parts.h), so that a state can be loaded by any split of the model, and by one device. */
#include <string.h>

#include "base/mem.h"
#include "engine/draft/drafter.h"
#include "engine/lm/lm_parts.h"
#include "model/seq/seq_parts.h"

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

/* ---- files: those of one device ---- */

static int save(struct lm *l, const struct checkpoint *m, const char *path, const void *extra,
                size_t n_extra, struct err *e) {
    struct parts *x = parts_of(l);
    const struct checkpoint *part[GPUS_MAX];
    struct checkpoint *whole;
    for (int32_t i = 0; i < x->n; i++) part[i] = mark_of(m)->part[i];
    int rc = seq_parts_join(&whole, x->shape, part, x->n, e);
    if (rc) err_prefix(e, "%s", path);
    else rc = checkpoint_save(whole, path, extra, n_extra, e);
    checkpoint_free_host(whole);
    return rc;
}

static int load(struct lm *l, const char *path, struct checkpoint **out, void **extra,
                size_t *n_extra, struct err *e) {
    struct parts *x = parts_of(l);
    struct seq_pool *pools[GPUS_MAX];
    struct checkpoint *whole;
    *out = NULL;
    int rc = checkpoint_load(x->shape, path, &whole, extra, n_extra, e);
    if (rc) return rc;
    struct mark *m = mem_zalloc(sizeof *m);
    if (!m) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (int32_t i = 0; i < x->n; i++) pools[i] = x->part[i].pool;
    if (!rc) rc = seq_parts_divide(whole, pools, x->n, m->part, e);
    checkpoint_free_host(whole);
    if (!rc) {
        *out = (struct checkpoint *)(void *)m;
        return 0;
    }
    mem_free(m);
    mem_free(*extra);
    *extra = NULL;
    *n_extra = 0;
    err_prefix(e, "%s", path);
    return rc;
}

/* The whole model's states. */
int lm_parts_shape(struct parts *x, const struct engine_params *p, struct err *e) {
    const struct hparams *last = &x->part[x->n - 1].m->hp;
    const struct seq_pool_params pool = lm_pool_params(p);
    x->whole = mem_zalloc(sizeof *x->whole);
    if (!x->whole) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = hparams_read(&x->whole->hp, x->part[0].m->gguf, e);
    if (!last->n_nextn) x->whole->hp.n_nextn = 0; /* no device has them (slice.c) */
    x->whole->hash = x->part[0].m->hash;
    return rc ? rc : seq_shape_new(&x->shape, x->whole, &pool, e);
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
