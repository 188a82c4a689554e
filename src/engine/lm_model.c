/* lm_model.c: a loaded model behind lm.h, and drafting with its prediction block.
 *
 * The prediction block is fed with pairs (hidden row of position p, token at p + 1). Rows of tokens that
 * stayed are staged per slot until the next draft, whose first pass takes them all: catching up and the
 * first drafted token cost one pass. Prompts feed their pairs at once. Drafts are greedy, so that taking
 * a draft exactly when the target's own sample equals it leaves the target's distribution untouched. */
#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "engine/lm.h"
#include "engine/sampler_impl.h"
#include "engine/spec.h"
#include "model/checkpoint.h"

enum { STAGE = STEP_MAX_TOK + 1 };

struct stage {
    int32_t n;             /* staged hidden rows */
    int64_t pos;           /* position of row 0 */
    int32_t tokens[STAGE]; /* token that follows row i; the last one's is not known yet */
};

struct loaded {
    struct lm lm;
    struct lm_ops ops;
    struct model *m;       /* borrowed */
    struct seq_pool *pool; /* owned */
    struct forward *f;     /* owned */
    float *rows;         /* owned, device [n_slot, STAGE, n_embd]; NULL without prediction blocks */
    float *chain;        /* owned, device [n_slot, n_embd] */
    struct stage *stage; /* owned [n_slot] */
    int32_t n_draft_id;  /* drafts are of the first so many ids */
    struct select_row *best; /* owned [64]: of drafts; NULL: rows are read in place */
};

static int model_seq_new(struct lm *l, struct seq **out, struct err *e) {
    struct loaded *x = (struct loaded *)l;
    int rc = seq_new(out, x->pool, e);
    if (!rc && x->stage) x->stage[seq_slot(*out)] = (struct stage){.n = 0};
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

static float *staged_row(struct loaded *x, int32_t slot, int32_t i) {
    return x->rows + ((int64_t)slot * STAGE + i) * x->m->hp.n_embd;
}

static void stage_row(struct loaded *x, int32_t slot, int64_t pos, const float *row) {
    struct stage *st = &x->stage[slot];
    if (!st->n) st->pos = pos;
    x->m->dev->ops->copy(x->m->dev, staged_row(x, slot, st->n), row,
                         (size_t)x->m->hp.n_embd * sizeof(float));
    st->n++;
}

/* Feeds all staged pairs whose token is known; the last row stays staged. */
static int flush(struct loaded *x, struct seq *s, struct err *e) {
    struct stage *st = &x->stage[seq_slot(s)];
    if (st->n < 2) return 0;
    int32_t n = st->n - 1;
    const struct mtp_item run = {.seq = s,
                                 .tokens = st->tokens,
                                 .n_tok = n,
                                 .pos = st->pos,
                                 .hidden = staged_row(x, seq_slot(s), 0)};
    const float *logits, *hidden;
    int rc = forward_mtp(x->f, &run, 1, x->n_draft_id, &logits, &hidden, e);
    x->m->dev->ops->copy(x->m->dev, staged_row(x, seq_slot(s), 0), staged_row(x, seq_slot(s), n),
                         (size_t)x->m->hp.n_embd * sizeof(float));
    st->n = 1;
    st->pos += n;
    return rc;
}

/* Long runs (prompts): the pairs inside the run go to the block directly from the trunk's hidden rows. */
static int feed_prompt(struct loaded *x, const struct batch_item *r, const float *hidden,
                       struct err *e) {
    struct stage *st = &x->stage[seq_slot(r->seq)];
    int64_t first = seq_pos(r->seq) - r->n_tok, d = x->m->hp.n_embd;
    const float *logits, *next;
    int rc = flush(x, r->seq, e);
    if (!rc && st->n &&
        first > 0) { /* the border: last row of the chunk before, first token of this one */
        const struct mtp_item border = {.seq = r->seq,
                                        .tokens = r->tokens,
                                        .n_tok = 1,
                                        .pos = first - 1,
                                        .hidden = staged_row(x, seq_slot(r->seq), st->n - 1)};
        rc = forward_mtp(x->f, &border, 1, x->n_draft_id, &logits, &next, e);
    }
    if (!rc && r->n_tok > 1) {
        const struct mtp_item inner = {.seq = r->seq,
                                       .tokens = r->tokens + 1,
                                       .n_tok = r->n_tok - 1,
                                       .pos = first,
                                       .hidden = hidden};
        rc = forward_mtp(x->f, &inner, 1, x->n_draft_id, &logits, &next, e);
    }
    st->n = 0;
    if (!rc)
        stage_row(x, seq_slot(r->seq), seq_pos(r->seq) - 1, hidden + (int64_t)(r->n_tok - 1) * d);
    return rc;
}

static int model_kept(struct lm *l, const struct batch_item *runs, const int32_t *n_kept,
                      const bool *follow, int32_t n_run, struct err *e) {
    struct loaded *x = (struct loaded *)l;
    const float *hidden = forward_hidden(x->f);
    int64_t row = 0, d = x->m->hp.n_embd;
    int rc = 0;
    for (int32_t i = 0; !rc && i < n_run; row += runs[i++].n_tok) {
        if (!follow[i]) continue; /* the sequence may be gone */
        struct stage *st = &x->stage[seq_slot(runs[i].seq)];
        if (runs[i].n_tok > STEP_MAX_TOK) {
            rc = feed_prompt(x, &runs[i], hidden + row * d, e);
            continue;
        }
        int64_t pos = seq_pos(runs[i].seq) - n_kept[i];
        for (int32_t t = 0; !rc && t < n_kept[i]; t++) {
            if (st->n) st->tokens[st->n - 1] = runs[i].tokens[t];
            if (st->n == STAGE) rc = flush(x, runs[i].seq, e);
            if (!rc) stage_row(x, seq_slot(runs[i].seq), pos + t, hidden + (row + t) * d);
        }
    }
    return rc;
}

/* Probability of the largest logit; 0 where one is not finite. */
static float top_prob(const float *logits, int32_t n, int32_t *best) {
    float max;
    *best = 0;
    if (!sampler_max(logits, n, &max)) return 0;
    *best = sampler_find(logits, n, max);
    return sampler_share(logits, n, max);
}

/* The same of a row that only select reads. */
static float top_selected(const struct select_row *r, int32_t *best) {
    *best = 0;
    if (r->n < 1 || !r->is_finite) return 0;
    *best = INT32_MAX;
    for (int32_t i = 0; i < r->n; i++)
        if (r->logits[i] == r->max && r->ids[i] < *best) *best = r->ids[i];
    return (float)exp(-r->log_sum);
}

static int model_draft(struct lm *l, struct lm_draft *drafts, int32_t n, struct err *e) {
    struct loaded *x = (struct loaded *)l;
    struct dev *dev = x->m->dev;
    int64_t d = x->m->hp.n_embd;
    struct mtp_item runs[64];
    int32_t who[64], n_open = 0, want[64];
    if (n > 64) n = 64;
    for (int32_t i = 0; i < n; i++) {
        struct lm_draft *t = &drafts[i];
        struct stage *st = &x->stage[seq_slot(t->seq)];
        want[i] = t->n_draft;
        t->n_draft = 0;
        if (want[i] < 1 || !st->n) continue;
        if (seq_reserve(t->seq, want[i] + 1, NULL)) continue; /* no room to look ahead */
        st->tokens[st->n - 1] = t->next;
        runs[n_open] = (struct mtp_item){.seq = t->seq,
                                         .tokens = st->tokens,
                                         .n_tok = st->n,
                                         .pos = st->pos,
                                         .hidden = staged_row(x, seq_slot(t->seq), 0),
                                         .want = true};
        who[n_open++] = i;
    }
    bool first = true;
    while (n_open) {
        const float *logits = NULL, *hidden;
        int rc =
            forward_mtp(x->f, runs, n_open, x->n_draft_id, x->best ? NULL : &logits, &hidden, e);
        if (rc) return rc;
        struct select_args select = {.rows = x->best};
        if (x->best && (rc = forward_select(x->f, &select, e))) return rc;
        int32_t still = 0;
        for (int32_t k = 0; k < n_open; k++) {
            struct lm_draft *t = &drafts[who[k]];
            struct stage *st = &x->stage[seq_slot(t->seq)];
            if (first) st->n = 0; /* all staged pairs are fed */
            int32_t best;
            float p = x->best ? top_selected(&x->best[k], &best)
                              : top_prob(logits + (int64_t)k * x->lm.n_vocab, x->n_draft_id, &best);
            if (!(p >= t->min_p)) continue;
            t->tokens[t->n_draft++] = best;
            if (t->n_draft == want[who[k]]) continue;
            float *own = x->chain + (int64_t)seq_slot(t->seq) * d;
            dev->ops->copy(dev, own, hidden + (int64_t)k * d, (size_t)d * sizeof(float));
            int64_t pos = runs[k].pos + runs[k].n_tok;
            runs[still] = (struct mtp_item){.seq = t->seq,
                                            .tokens = &t->tokens[t->n_draft - 1],
                                            .n_tok = 1,
                                            .pos = pos,
                                            .hidden = own,
                                            .want = true};
            who[still++] = who[k];
        }
        n_open = still;
        first = false;
    }
    return 0;
}

static void model_close_lm(struct lm *l) {
    struct loaded *x = (struct loaded *)l;
    if (x->rows) x->m->dev->ops->free(x->m->dev, x->rows);
    if (x->chain) x->m->dev->ops->free(x->m->dev, x->chain);
    mem_free(x->stage);
    mem_free(x->best);
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
    struct loaded *x = (struct loaded *)l;
    int rc = checkpoint_restore(s, m, first, n_max, e);
    if (rc > 0 && x->stage) x->stage[seq_slot(s)].n = 0; /* drafting starts afresh */
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

/* What this model and its device can do beyond that. */
static struct lm_ops ops_of(bool mtp, bool select) {
    struct lm_ops ops = plain_ops;
    if (mtp) {
        ops.kept = model_kept;
        ops.draft = model_draft;
    }
    if (select) {
        ops.select = model_select;
        ops.row = model_row;
    }
    return ops;
}

/* Rows of logits of one step: one a sequence, and drafts of the few that are drafted for. */
static int32_t n_out_max(const struct engine_params *p) {
    int32_t n_spec = p->n_seq < SPEC_MAX_SEQS ? p->n_seq : SPEC_MAX_SEQS;
    return p->n_seq +
           (p->speculate ? n_spec * (p->n_draft_max > 0 ? p->n_draft_max : LM_N_DRAFT) : 0);
}

static struct seq_pool_params pool_params(const struct engine_params *p) {
    return (struct seq_pool_params){.n_slot = p->n_seq,
                                    .n_ctx = p->n_ctx,
                                    .n_ctx_seq = p->n_ctx_seq > 0 ? p->n_ctx_seq : p->n_ctx,
                                    .k_type = p->k_type,
                                    .v_type = p->v_type,
                                    .log = p->speculate};
}

uint64_t engine_bytes(const struct model *m, const struct engine_params *p) {
    struct seq_pool_params pool = pool_params(p);
    return seq_pool_bytes(m, &pool) + forward_bytes(m, p->n_batch, n_out_max(p));
}

int lm_open_model(struct lm **out, struct model *m, const struct engine_params *p, struct err *e) {
    *out = NULL;
    struct loaded *x = mem_zalloc(sizeof *x);
    if (!x) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    bool mtp = p->speculate && m->hp.n_nextn > 0;
    bool select = m->dev->ops->select && (p->select || !m->dev->ops->is_host);
    x->ops = ops_of(mtp, select);
    x->lm = (struct lm){
        .ops = &x->ops, .n_vocab = m->hp.n_vocab, .n_row_max = n_out_max(p), .n_ctx = p->n_ctx};
    x->m = m;
    /* Byte pairs are numbered as they were merged, frequent ones first: nine in ten tokens and more are of the
     * first half, and the head is two thirds of a small model's drafted token. */
    x->n_draft_id = m->hp.n_vocab;
    if (m->dev->ops->is_host && !select) x->n_draft_id = (m->hp.n_vocab / 2 + 31) / 32 * 32;
    if (x->n_draft_id > m->hp.n_vocab) x->n_draft_id = m->hp.n_vocab;
    struct seq_pool_params pool = pool_params(p);
    int rc = seq_pool_new(&x->pool, m, &pool, e);
    if (!rc) {
        x->lm.page_bytes = checkpoint_page_bytes(x->pool);
        x->lm.checkpoint_bytes = checkpoint_state_bytes(x->pool);
        const uint64_t form[] = {m->hash,      p->k_type,        p->v_type,
                                 p->speculate, x->lm.page_bytes, x->lm.checkpoint_bytes};
        x->lm.layout = hash_bytes(form, sizeof form, 0);
    }
    if (!rc) rc = forward_new(&x->f, m, x->pool, p->n_batch, n_out_max(p), e);
    if (!rc && mtp) {
        size_t row = (size_t)m->hp.n_embd * sizeof(float);
        x->rows = m->dev->ops->alloc(m->dev, (size_t)p->n_seq * STAGE * row);
        x->chain = m->dev->ops->alloc(m->dev, (size_t)p->n_seq * row);
        x->stage = mem_alloc_array((size_t)p->n_seq, sizeof *x->stage);
        if (select) x->best = mem_alloc_array(64, sizeof *x->best);
        if (!x->rows || !x->chain || !x->stage || (select && !x->best))
            rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    if (rc) {
        model_close_lm(&x->lm);
        return rc;
    }
    *out = &x->lm;
    return 0;
}
