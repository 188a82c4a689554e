/* lm_model.c: an implementation of lm.h for a loaded model. */
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "engine/draft/drafter.h"
#include "engine/lm.h"
#include "engine/draft/spec.h"
#include "kernels/device.h"
#include "model/seq/checkpoint.h"

struct loaded {
    struct lm lm;
    struct lm_ops ops;
    struct model *m;       /* borrowed */
    struct seq_pool *pool; /* owned */
    struct forward *f;     /* owned */
};

static int model_seq_new(struct lm *l, struct seq **out, struct err *e) {
    struct loaded *x = (struct loaded *)l;
    int rc = seq_new(out, x->pool, e);
    if (!rc && l->drafter) l->drafter->ops->rewind(l->drafter, *out);
    return rc;
}
static void model_seq_free(struct lm *l, struct seq *s) {
    (void)l;
    seq_free(s);
}
static int64_t model_seq_pos(struct lm *l, const struct seq *s) {
    (void)l;
    return seq_pos(s);
}
static void model_seq_drop(struct lm *l, struct seq *s, int32_t n) {
    (void)l;
    seq_drop(s, n);
}
static int model_run(struct lm *l, const struct batch_item *runs, int32_t n_run,
                     const float **logits, struct err *e) {
    return forward_run(((struct loaded *)l)->f, runs, n_run, logits, e);
}

static int model_select(struct lm *l, struct select_args *a, struct err *e) {
    return forward_select(((struct loaded *)l)->f, a, e);
}
static const float *model_row(struct lm *l, int32_t i, struct err *e) {
    return forward_row(((struct loaded *)l)->f, i, e);
}

static void model_close_lm(struct lm *l) {
    struct loaded *x = (struct loaded *)l;
    if (l->drafter) l->drafter->ops->close(l->drafter);
    forward_free(x->f);
    seq_pool_free(x->pool);
    mem_free(x);
}

/* ---- checkpoints ---- */

static int model_mark(struct lm *l, struct seq *s, int32_t n_drop, struct checkpoint **out,
                      struct err *e) {
    (void)l;
    return checkpoint_new(s, n_drop, out, e);
}
static void model_mark_free(struct lm *l, struct checkpoint *m) {
    (void)l;
    checkpoint_free(m);
}
static int model_restore(struct lm *l, struct seq *s, const struct checkpoint *m, bool first,
                         int32_t n_max, struct err *e) {
    int rc = checkpoint_restore(s, m, first, n_max, e);
    if (rc > 0 && l->drafter) l->drafter->ops->rewind(l->drafter, s);
    return rc;
}
static int64_t model_ctx_to_load(struct lm *l, const struct checkpoint *m) {
    (void)l;
    return checkpoint_n_ctx_to_load(m);
}
static int32_t model_page_out(struct lm *l, struct checkpoint *m, int32_t n_max, struct err *e) {
    (void)l;
    return checkpoint_page_out(m, n_max, e);
}
static int64_t model_ctx_free(struct lm *l) {
    return seq_pool_free_ctx(((struct loaded *)l)->pool);
}
static uint64_t model_host_bytes(struct lm *l) {
    return checkpoint_host_bytes(((struct loaded *)l)->pool);
}
static int model_mark_save(struct lm *l, const struct checkpoint *m, const char *path,
                           const void *extra, size_t n_extra, struct err *e) {
    (void)l;
    return checkpoint_save(m, path, extra, n_extra, e);
}
static int model_mark_load(struct lm *l, const char *path, struct checkpoint **out, void **extra,
                           size_t *n_extra, struct err *e) {
    return checkpoint_load(((struct loaded *)l)->pool, path, out, extra, n_extra, e);
}

static const struct lm_mark_ops checkpoint_ops = {.mark = model_mark,
                                                  .checkpoint_free = model_mark_free,
                                                  .restore = model_restore,
                                                  .ctx_to_load = model_ctx_to_load,
                                                  .page_out = model_page_out,
                                                  .ctx_free = model_ctx_free,
                                                  .host_bytes = model_host_bytes,
                                                  .save = model_mark_save,
                                                  .load = model_mark_load};

static const struct lm_ops plain_ops = {.seq_new = model_seq_new,
                                        .seq_free = model_seq_free,
                                        .seq_pos = model_seq_pos,
                                        .seq_drop = model_seq_drop,
                                        .run = model_run,
                                        .close = model_close_lm,
                                        .marks = &checkpoint_ops};

/* The ops of this model: plain_ops, plus those that the device supports. */
static struct lm_ops ops_of(bool select) {
    struct lm_ops ops = plain_ops;
    if (select) {
        ops.select = model_select;
        ops.row = model_row;
    }
    return ops;
}

/* Largest number of logits rows per step: one per sequence, plus drafts of the few sequences that are drafted for. */
int32_t lm_n_out_max(const struct engine_params *p) {
    int32_t n_spec = p->n_seq < SPEC_MAX_SEQS ? p->n_seq : SPEC_MAX_SEQS;
    return p->n_seq + (p->speculate ? n_spec * spec_most_drafted(p->n_draft_max) : 0);
}

struct seq_pool_params lm_pool_params(const struct engine_params *p) {
    return (struct seq_pool_params){.n_slot = p->n_seq,
                                    .n_ctx = p->n_ctx,
                                    .n_ctx_seq = p->n_ctx_seq > 0 ? p->n_ctx_seq : p->n_ctx,
                                    .k_type = p->k_type,
                                    .v_type = p->v_type,
                                    .log = p->speculate};
}

uint64_t engine_bytes(const struct model *m, const struct engine_params *p) {
    struct seq_pool_params pool = lm_pool_params(p);
    return seq_pool_bytes(m, &pool) + forward_bytes(m, p->n_batch, lm_n_out_max(p));
}

uint64_t lm_layout(const struct model *m, const struct seq_pool *pool,
                   const struct engine_params *p) {
    const uint64_t form[] = {m->hash,
                             p->k_type,
                             p->v_type,
                             p->speculate,
                             checkpoint_page_bytes(pool),
                             checkpoint_state_bytes(pool)};
    return hash_bytes(form, sizeof form, 0);
}

/* Long batches may stream to the device what the host multiplies in steps. */
static uint64_t place_of(const struct model *m, uint64_t seed) {
    const struct expert_store *s = &m->weights.experts;
    uint64_t form[] = {device_kind(m->dev), m->slice != NULL, s->host ? device_kind(s->host) : 0,
                       s->host && s->staging[0], s->slots != NULL};
    uint64_t h = hash_bytes(form, sizeof form, seed);
    for (int32_t il = 0; s->host && il < m->hp.n_layer; il++)
        if (s->layer[il].on_host) h = hash_bytes(&il, sizeof il, h);
    return h;
}

uint64_t lm_device(struct model *const *parts, int32_t n) {
    uint64_t h = (uint64_t)n;
    for (int32_t i = 0; i < n; i++) h = place_of(parts[i], h);
    return h;
}

int lm_open_model(struct lm **out, struct model *m, const struct engine_params *p, struct err *e) {
    *out = NULL;
    struct loaded *x = mem_zalloc(sizeof *x);
    if (!x) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    bool select = m->dev->ops->select && (p->select || !m->dev->ops->is_host);
    x->ops = ops_of(select);
    x->lm = (struct lm){
        .ops = &x->ops, .n_vocab = m->hp.n_vocab, .n_row_max = lm_n_out_max(p), .n_ctx = p->n_ctx};
    x->m = m;
    struct seq_pool_params pool = lm_pool_params(p);
    int rc = seq_pool_new(&x->pool, m, &pool, e);
    if (!rc) {
        x->lm.page_bytes = checkpoint_page_bytes(x->pool);
        x->lm.checkpoint_bytes = checkpoint_state_bytes(x->pool);
        x->lm.layout = lm_layout(m, x->pool, p);
        x->lm.lends = !m->dev->ops->is_host && seq_pool_lends(x->pool);
        x->lm.device = lm_device(&m, 1);
    }
    if (!rc) rc = forward_new(&x->f, m, x->pool, p->n_batch, lm_n_out_max(p), e);
    const struct drafter_params draft = {.m = m,
                                         .f = x->f,
                                         .n_seq = p->n_seq,
                                         .select = select,
                                         .n_head = p->n_draft_head,
                                         .engine = p};
    if (!rc && p->speculate) rc = drafter_open(&x->lm.drafter, &draft, e);
    if (rc) {
        model_close_lm(&x->lm);
        return rc;
    }
    *out = &x->lm;
    return 0;
}
