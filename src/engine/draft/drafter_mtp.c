/* drafter_mtp.c: drafts with the model's own multi-token prediction block.
 *
 * The block consumes pairs (hidden row of position p, token at p + 1). Rows of accepted tokens are staged per slot
 * until the next draft. The first pass of that draft consumes all of them, so that one pass both catches up and drafts
 * the first token. The pairs of a prompt are consumed at once. Drafts are greedy.
 *
 * Tokens that were not observed are left out: the block's keys and values of the tokens after them are stored without a
 * gap, as if the text had none.
 *
 * A slice of a model (slice.h) has a drafter on each rank. All of them stage the same rows and draft the same tokens:
 * each finds the best token of its rows of the head, and the ranks exchange these. */
#include <math.h>

#include "base/err.h"
#include "base/mem.h"
#include "engine/draft/drafter.h"
#include "engine/lm.h"
#include "model/draft_head.h"
#include "model/forward.h"
#include "model/model.h"

enum { STAGE = STEP_MAX_TOK + 1, MAX_SEQS = 64 };

struct stage {
    int32_t n;             /* staged hidden rows */
    int64_t pos;           /* the block's position of row 0 */
    int64_t end, n_missed; /* position after the last observed token; tokens left out before it */
    int32_t tokens[STAGE]; /* tokens[i] comes after row i; the last one is not known yet */
};

/* The best token of a row of logits and its probability, as it is exchanged; p 0: a logit is not finite. Token ids are
 * exact in floats. */
struct top {
    float logit, token, p, zero; /* sums take pairs of floats */
};
enum { TOP = sizeof(struct top) / sizeof(float) };

struct mtp {
    struct drafter drafter;
    struct model *m;     /* borrowed */
    struct forward *f;   /* borrowed */
    float *rows;         /* owned, device [n_slot, STAGE, n_embd] */
    float *chain;        /* owned, device [n_slot, n_embd] */
    struct stage *stage; /* owned [n_slot] */
    /* owned [MAX_SEQS]: selected rows of drafts; NULL: logits are read in place */
    struct select_row *best;
    struct top *top; /* owned [MAX_SEQS] */
    struct top *all; /* owned [n_rank, MAX_SEQS]; NULL: m is not a slice */
    int32_t n_rank;
};

static float *staged_row(struct mtp *x, int32_t slot, int32_t i) {
    return x->rows + ((int64_t)slot * STAGE + i) * x->m->hp.n_embd;
}

static void stage_row(struct mtp *x, int32_t slot, int64_t pos, const float *row) {
    struct stage *st = &x->stage[slot];
    if (!st->n) st->pos = pos - st->n_missed;
    x->m->dev->ops->copy(x->m->dev, staged_row(x, slot, st->n), row,
                         (size_t)x->m->hp.n_embd * sizeof(float));
    st->n++;
}

/* Runs the block on all staged pairs whose token is known; the last row stays staged. */
static int flush(struct mtp *x, struct seq *s, struct err *e) {
    struct stage *st = &x->stage[seq_slot(s)];
    if (st->n < 2) return 0;
    int32_t n = st->n - 1;
    const struct mtp_item run = {.seq = s,
                                 .tokens = st->tokens,
                                 .n_tok = n,
                                 .pos = st->pos,
                                 .hidden = staged_row(x, seq_slot(s), 0)};
    const float *logits, *hidden;
    int rc = forward_mtp(x->f, &run, 1, &logits, &hidden, e);
    x->m->dev->ops->copy(x->m->dev, staged_row(x, seq_slot(s), 0), staged_row(x, seq_slot(s), n),
                         (size_t)x->m->hp.n_embd * sizeof(float));
    st->n = 1;
    st->pos += n;
    return rc;
}

/* Leaves out the tokens from the last observed one to pos. The row before them lacks its token. */
static int skip_to(struct mtp *x, struct seq *s, int64_t pos, struct err *e) {
    struct stage *st = &x->stage[seq_slot(s)];
    if (!st->end || pos <= st->end) return 0;
    int rc = flush(x, s, e);
    st->n_missed += pos - st->end + st->n;
    st->n = 0;
    return rc;
}

/* For long runs (prompts): the block takes the pairs directly from the forward pass's hidden rows, without staging. */
static int feed_prompt(struct mtp *x, const struct batch_item *r, const float *hidden,
                       struct err *e) {
    struct stage *st = &x->stage[seq_slot(r->seq)];
    int64_t first = seq_pos(r->seq) - r->n_tok - st->n_missed, d = x->m->hp.n_embd;
    const float *logits, *next;
    int rc = flush(x, r->seq, e);
    if (!rc && st->n && first > 0) { /* last row of the previous chunk, first token of this one */
        const struct mtp_item border = {.seq = r->seq,
                                        .tokens = r->tokens,
                                        .n_tok = 1,
                                        .pos = first - 1,
                                        .hidden = staged_row(x, seq_slot(r->seq), st->n - 1)};
        rc = forward_mtp(x->f, &border, 1, &logits, &next, e);
    }
    if (!rc && r->n_tok > 1) {
        const struct mtp_item inner = {.seq = r->seq,
                                       .tokens = r->tokens + 1,
                                       .n_tok = r->n_tok - 1,
                                       .pos = first,
                                       .hidden = hidden};
        rc = forward_mtp(x->f, &inner, 1, &logits, &next, e);
    }
    st->n = 0;
    if (!rc)
        stage_row(x, seq_slot(r->seq), seq_pos(r->seq) - 1, hidden + (int64_t)(r->n_tok - 1) * d);
    return rc;
}

static int mtp_observe(struct drafter *d, const struct batch_item *runs, const int32_t *n_kept,
                       const bool *follow, int32_t n_run, struct err *e) {
    struct mtp *x = (struct mtp *)d;
    const float *hidden = forward_hidden(x->f);
    int64_t row = 0, n_embd = x->m->hp.n_embd;
    int rc = 0;
    for (int32_t i = 0; !rc && i < n_run; row += runs[i++].n_tok) {
        if (!follow[i]) continue; /* its sequence may have been freed */
        struct stage *st = &x->stage[seq_slot(runs[i].seq)];
        int64_t pos = seq_pos(runs[i].seq) - n_kept[i];
        rc = skip_to(x, runs[i].seq, pos, e);
        st->end = pos + n_kept[i];
        if (!rc && runs[i].n_tok > STEP_MAX_TOK) {
            rc = feed_prompt(x, &runs[i], hidden + row * n_embd, e);
            continue;
        }
        for (int32_t t = 0; !rc && t < n_kept[i]; t++) {
            if (st->n) st->tokens[st->n - 1] = runs[i].tokens[t];
            if (st->n == STAGE) rc = flush(x, runs[i].seq, e);
            if (!rc) stage_row(x, seq_slot(runs[i].seq), pos + t, hidden + (row + t) * n_embd);
        }
    }
    return rc;
}

/* Replaces the best tokens of this rank's n rows by those of all ranks. */
static int agree(struct mtp *x, int32_t n, struct err *e) {
    int rc = forward_gather(x->f, &x->top[0].logit, n * TOP, &x->all[0].logit, e);
    for (int32_t k = 0; !rc && k < n; k++) {
        struct top best = x->all[k];
        bool is_finite = true;
        double sum = 0; /* of all probabilities, in parts of the best token's */
        for (int32_t i = 1; i < x->n_rank; i++)
            if (x->all[i * n + k].logit > best.logit) best = x->all[i * n + k];
        for (int32_t i = 0; i < x->n_rank; i++) {
            const struct top *t = &x->all[i * n + k];
            is_finite &= t->p > 0;
            if (t->p > 0) sum += exp((double)t->logit - (double)best.logit) / (double)t->p;
        }
        best.p = is_finite ? (float)(1 / sum) : 0;
        x->top[k] = best;
    }
    return rc;
}

/* Fills x->top for the n rows of the last pass; logits NULL: they are on the device. */
static int find_tops(struct mtp *x, const float *logits, int32_t n, struct err *e) {
    struct select_args select = {.rows = x->best};
    int rc = x->best ? forward_select(x->f, &select, e) : 0;
    int32_t n_id = draft_head_n_id(x->m);
    for (int32_t k = 0; !rc && k < n; k++) {
        const float *row = logits + (int64_t)k * n_id;
        int32_t id;
        float p = x->best ? drafter_top_selected(&x->best[k], &id) : drafter_top(row, n_id, &id);
        x->top[k] = (struct top){.logit = x->best ? x->best[k].max : row[id],
                                 .token = (float)(x->m->hp.first_logit + id),
                                 .p = p};
    }
    return rc || !x->all ? rc : agree(x, n, e);
}

static int mtp_draft(struct drafter *d, struct drafter_request *drafts, int32_t n, struct err *e) {
    struct mtp *x = (struct mtp *)d;
    struct dev *dev = x->m->dev;
    int64_t n_embd = x->m->hp.n_embd;
    struct mtp_item runs[MAX_SEQS];
    int32_t who[MAX_SEQS], n_open = 0, want[MAX_SEQS];
    if (n > MAX_SEQS) n = MAX_SEQS;
    for (int32_t i = 0; i < n; i++) {
        struct drafter_request *t = &drafts[i];
        struct stage *st = &x->stage[seq_slot(t->seq)];
        want[i] = t->n_draft;
        t->n_draft = 0;
        if (want[i] < 1 || !st->n) continue;
        if (seq_reserve(t->seq, want[i] + 1, NULL)) continue; /* no room for a draft */
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
        int rc = forward_mtp(x->f, runs, n_open, x->best ? NULL : &logits, &hidden, e);
        if (rc) return rc;
        if ((rc = find_tops(x, logits, n_open, e))) return rc;
        int32_t still = 0;
        for (int32_t k = 0; k < n_open; k++) {
            struct drafter_request *t = &drafts[who[k]];
            struct stage *st = &x->stage[seq_slot(t->seq)];
            if (first) st->n = 0; /* the block has consumed all staged pairs */
            if (!(x->top[k].p >= t->min_p)) continue;
            t->tokens[t->n_draft++] = (int32_t)x->top[k].token;
            if (t->n_draft == want[who[k]]) continue;
            float *own = x->chain + (int64_t)seq_slot(t->seq) * n_embd;
            dev->ops->copy(dev, own, hidden + (int64_t)k * n_embd, (size_t)n_embd * sizeof(float));
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

static void mtp_rewind(struct drafter *d, const struct seq *s) {
    ((struct mtp *)d)->stage[seq_slot(s)] = (struct stage){.n = 0};
}

static void mtp_close(struct drafter *d) {
    struct mtp *x = (struct mtp *)d;
    if (x->rows) x->m->dev->ops->free(x->m->dev, x->rows);
    if (x->chain) x->m->dev->ops->free(x->m->dev, x->chain);
    mem_free(x->stage);
    mem_free(x->best);
    mem_free(x->top);
    mem_free(x->all);
    mem_free(x);
}

static int mtp_open(struct drafter **out, const struct drafter_params *p, struct err *e) {
    struct model *m = p->m;
    size_t row = (size_t)m->hp.n_embd * sizeof(float);
    struct mtp *x = mem_zalloc(sizeof *x);
    if (!x) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    x->drafter = (struct drafter){.ops = &drafter_mtp, .n_max = LM_N_DRAFT};
    x->m = m;
    x->f = p->f;
    /* On the host, without a copy of the head, only the first half of the vocabulary is drafted, in place: it holds at
     * least nine tokens in ten. The head is two thirds of the cost of a small model's drafted token. */
    if (m->dev->ops->is_host && !p->select && p->n_rank < 2 && !m->draft_head.data)
        m->n_draft_id = (m->hp.n_vocab / 2 + 31) / 32 * 32;
    if (m->n_draft_id > m->hp.n_logit) m->n_draft_id = 0;
    x->rows = m->dev->ops->alloc(m->dev, (size_t)p->n_seq * STAGE * row);
    x->chain = m->dev->ops->alloc(m->dev, (size_t)p->n_seq * row);
    x->stage = mem_alloc_array((size_t)p->n_seq, sizeof *x->stage);
    x->top = mem_alloc_array(MAX_SEQS, sizeof *x->top);
    x->n_rank = p->n_rank;
    if (p->n_rank > 1) x->all = mem_alloc_array((size_t)p->n_rank * MAX_SEQS, sizeof *x->all);
    if (p->select) x->best = mem_alloc_array(MAX_SEQS, sizeof *x->best);
    if (!x->rows || !x->chain || !x->stage || !x->top || (p->n_rank > 1 && !x->all) ||
        (p->select && !x->best)) {
        mtp_close(&x->drafter);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    *out = &x->drafter;
    return 0;
}

static bool mtp_fits(const struct model *m) { return m->hp.n_nextn > 0; }

const struct drafter_ops drafter_mtp = {.name = "prediction block",
                                        .fits = mtp_fits,
                                        .open = mtp_open,
                                        .observe = mtp_observe,
                                        .draft = mtp_draft,
                                        .rewind = mtp_rewind,
                                        .close = mtp_close};
