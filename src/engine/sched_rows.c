/* sched_rows.c: reads from the device what the samplers need. If rows of logits cannot be read in place, each sampler
 * reports before the step which logits its picks will read. The device selects these with the samplers' masks, and one
 * read copies all of them. Whole rows are read one by one, only for picks that need more. */
#include "base/mem.h"
#include "engine/sched.h"

int sched_open_rows(struct sched *s, struct err *e) {
    struct sched_rows *r = &s->rows;
    if (!s->lm->ops->select || s->lm->n_row_max < 1) return 0;
    size_t n = (size_t)s->lm->n_row_max;
    r->rows = mem_alloc_array(n, sizeof *r->rows);
    r->masks = mem_alloc_array(n, sizeof *r->masks);
    r->ids = mem_alloc_array(n * SELECT_MAX_IDS, sizeof *r->ids);
    r->id_at = mem_alloc_array(n + 1, sizeof *r->id_at);
    r->id_logits = mem_alloc_array(n * SELECT_MAX_IDS, sizeof *r->id_logits);
    r->whole = mem_alloc_array(n, sizeof *r->whole);
    if (!r->rows || !r->masks || !r->ids || !r->id_at || !r->id_logits || !r->whole)
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    r->n_max = s->lm->n_row_max;
    return 0;
}

void sched_close_rows(struct sched *s) {
    struct sched_rows *r = &s->rows;
    mem_free(r->rows);
    mem_free((void *)r->masks);
    mem_free(r->ids);
    mem_free(r->id_at);
    mem_free(r->id_logits);
    mem_free(r->whole);
    *r = (struct sched_rows){.n = 0};
}

/* Number of logits rows that run r wants; the first row belongs to its first wanted token. */
static int32_t n_wanted(const struct batch_item *r) {
    return r->want == WANT_ALL ? r->n_tok : r->want == WANT_LAST;
}

/* Collects the samplers' needs for all rows. Returns false if every row is needed whole, or if there are too many
 * rows. */
static bool request(struct sched *s, int32_t n_run) {
    struct sched_rows *r = &s->rows;
    int32_t n_whole = 0;
    r->n = 0;
    for (int32_t i = 0; i < n_run; i++) {
        const struct batch_item *run = &s->runs[i];
        const struct active *a = &s->active[s->owner[i]];
        struct sampler *sampler = a->sampler;
        if (a->phase == PHASE_PREFILL && a->job->p.prompt_probs) return false;
        for (int32_t t = 0; t < n_wanted(run); t++, r->n++) {
            struct sampler_need need;
            if (r->n == r->n_max) return false;
            int32_t at = r->id_at[r->n];
            sampler_needs(sampler, run->want == WANT_ALL ? run->tokens + 1 : NULL, t, r->ids + at,
                          &need);
            r->id_at[r->n + 1] = at + (need.whole ? 0 : need.n_id);
            r->masks[r->n] = need.mask;
            r->whole[r->n] = need.whole;
            n_whole += need.whole;
        }
    }
    return n_whole < r->n;
}

int sched_run_batch(struct sched *s, int32_t n_run, struct err *e) {
    struct sched_rows *r = &s->rows;
    r->logits = NULL;
    if (!r->n_max || !request(s, n_run))
        return s->lm->ops->run(s->lm, s->runs, n_run, &r->logits, e);
    int rc = s->lm->ops->run(s->lm, s->runs, n_run, NULL, e);
    if (rc) return rc;
    r->args = (struct select_args){.masks = r->masks,
                                   .ids = r->ids,
                                   .id_at = r->id_at,
                                   .rows = r->rows,
                                   .id_logits = r->id_logits};
    return s->lm->ops->select(s->lm, &r->args, e);
}

int32_t sched_pick(struct sched *s, struct active *a, int32_t row, struct sampler_probs *probs,
                   struct err *e) {
    const struct sched_rows *r = &s->rows;
    s->totals.n_row++;
    s->totals.n_row_whole += r->logits && r->n_max;
    if (r->logits)
        return sampler_pick(a->sampler, r->logits + (int64_t)row * s->lm->n_vocab, probs);
    const struct sampler_few few = {.row = &r->rows[row],
                                    .is_masked = r->masks[row] != NULL,
                                    .ids = r->ids + r->id_at[row],
                                    .id_logits = r->id_logits + r->id_at[row],
                                    .n_id = r->id_at[row + 1] - r->id_at[row]};
    int32_t token = r->whole[row] ? SAMPLER_WHOLE : sampler_pick_few(a->sampler, &few, probs);
    if (token != SAMPLER_WHOLE) return token;
    s->totals.n_row_whole++;
    const float *logits = s->lm->ops->row(s->lm, row, e);
    return logits ? sampler_pick(a->sampler, logits, probs) : e->code;
}
