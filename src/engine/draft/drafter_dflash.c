/* drafter_dflash.c: drafts with a separate model that reads the target's hidden states (dflash.h). Drafting is
 * greedy. */
#include "base/log.h"
#include "base/mem.h"
#include "engine/draft/drafter.h"
#include "engine/engine.h"
#include "model/dflash.h"

enum { DRAFT_BLOCK = 7 /* longest draft that pays off; used if the user gives no number */ };

struct reader {
    struct drafter drafter;
    struct model *m;  /* borrowed: the target */
    struct dflash *d; /* owned */
    /* owned [n_seq]: the drafter had no room for this sequence and has stopped drafting for it */
    bool *lost;
    bool was_told;           /* the log has reported a lost sequence */
    struct select_row *best; /* owned [STEP_MAX_TOK]; NULL: logits are read in place */
};

/* A sequence for which the drafter has no memory decodes without it; the log reports the first one. Returns other
 * failures. */
static int lose(struct reader *x, int32_t slot, int rc) {
    if (rc != CHIMERE_ELIMIT && rc != CHIMERE_ENOMEM) return rc;
    x->lost[slot] = true;
    if (!x->was_told)
        log_warn("the drafter has no room for a sequence, which is decoded without it");
    x->was_told = true;
    return 0;
}

static int reader_observe(struct drafter *d, const struct batch_item *runs, const int32_t *n_kept,
                          const bool *follow, int32_t n_run, struct err *e) {
    struct reader *x = (struct reader *)d;
    int64_t row = 0;
    int rc = 0;
    for (int32_t i = 0; !rc && i < n_run; row += runs[i++].n_tok) {
        if (!follow[i]) continue; /* its sequence may have been freed */
        int32_t slot = seq_slot(runs[i].seq);
        if (x->lost[slot] || !n_kept[i]) continue;
        rc = dflash_observe(x->d, slot, row, n_kept[i], e);
        if (rc) rc = lose(x, slot, rc);
    }
    return rc;
}

/* Each token depends on the one drafted before it. */
static int follow(struct reader *x, struct drafter_request *t, int32_t n, const float *logits,
                  struct err *e) {
    int32_t prev = t->next, n_vocab = dflash_n_logit(x->d);
    while (t->n_draft < n) {
        const float *row = logits + (int64_t)t->n_draft * n_vocab;
        float p, sure;
        int rc = dflash_follow(x->d, t->n_draft, prev, &sure, e);
        if (rc) return rc;
        if (x->best) {
            struct select_args a = {.n_row = 1, .n_vocab = n_vocab, .logits = row, .rows = x->best};
            x->m->dev->ops->select(x->m->dev, &a);
            if ((rc = x->m->dev->ops->status(x->m->dev, e))) return rc;
        }
        p = x->best ? drafter_top_selected(x->best, &prev) : drafter_top(row, n_vocab, &prev);
        if (p > 0 && sure >= 0) p = sure;
        if (!(p > 0 && p >= t->min_p)) break;
        t->tokens[t->n_draft++] = prev;
    }
    return 0;
}

static int draft_one(struct reader *x, struct drafter_request *t, struct err *e) {
    int32_t slot = seq_slot(t->seq), n = t->n_draft, most = dflash_n_draft(x->d);
    const float *logits;
    t->n_draft = 0;
    if (n > most) n = most;
    if (n < 1 || x->lost[slot]) return 0;
    int rc = dflash_draft(x->d, slot, t->next, n, &logits, e);
    if (rc == CHIMERE_ELIMIT) return 0; /* no room for the drafted positions: draft nothing */
    if (rc) return lose(x, slot, rc);
    if (dflash_has_heads(x->d)) return follow(x, t, n, logits, e);
    if (x->best) {
        struct select_args a = {
            .n_row = n, .n_vocab = dflash_n_logit(x->d), .logits = logits, .rows = x->best};
        x->m->dev->ops->select(x->m->dev, &a);
        if ((rc = x->m->dev->ops->status(x->m->dev, e))) return rc;
    }
    while (t->n_draft < n) {
        int32_t best, i = t->n_draft, n_vocab = dflash_n_logit(x->d);
        float p = x->best ? drafter_top_selected(&x->best[i], &best)
                          : drafter_top(logits + (int64_t)i * n_vocab, n_vocab, &best);
        if (!(p >= t->min_p)) break;
        t->tokens[t->n_draft++] = best;
    }
    return 0;
}

static int reader_draft(struct drafter *d, struct drafter_request *drafts, int32_t n,
                        struct err *e) {
    int rc = 0;
    for (int32_t i = 0; i < n; i++) {
        if (rc) drafts[i].n_draft = 0;
        else rc = draft_one((struct reader *)d, &drafts[i], e);
    }
    return rc;
}

static void reader_rewind(struct drafter *d, const struct seq *s) {
    struct reader *x = (struct reader *)d;
    dflash_reset(x->d, seq_slot(s));
    x->lost[seq_slot(s)] = false;
}

static void reader_close(struct drafter *d) {
    struct reader *x = (struct reader *)d;
    dflash_close(x->d);
    mem_free(x->lost);
    mem_free(x->best);
    mem_free(x);
}

static int reader_open(struct drafter **out, const struct drafter_params *p, struct err *e) {
    struct reader *x = mem_zalloc(sizeof *x);
    if (!x) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    const struct engine_params *g = p->engine;
    const struct dflash_params params = {.target = p->m,
                                         .f = p->f,
                                         .n_slot = p->n_seq,
                                         .n_ctx = g->n_ctx,
                                         .n_ctx_seq = g->n_ctx_seq > 0 ? g->n_ctx_seq : g->n_ctx,
                                         .k_type = g->k_type,
                                         .v_type = g->v_type};
    x->m = p->m;
    x->drafter = (struct drafter){.ops = &drafter_dflash};
    x->lost = mem_alloc_array((size_t)p->n_seq, sizeof *x->lost);
    if (p->select) x->best = mem_alloc_array(STEP_MAX_TOK, sizeof *x->best);
    int rc = x->lost && (!p->select || x->best) ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = dflash_open(&x->d, g->draft, &params, e);
    if (rc) {
        reader_close(&x->drafter);
        return rc;
    }
    int32_t most = dflash_n_draft(x->d);
    x->drafter.n_max = most < DRAFT_BLOCK ? most : DRAFT_BLOCK;
    *out = &x->drafter;
    return 0;
}

const struct drafter_ops drafter_dflash = {.name = "drafter",
                                           .open = reader_open,
                                           .observe = reader_observe,
                                           .draft = reader_draft,
                                           .rewind = reader_rewind,
                                           .close = reader_close};
