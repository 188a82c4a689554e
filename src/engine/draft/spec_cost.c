#include "engine/draft/spec_cost.h"

#include <stddef.h>

/* Initial guess: an additional row costs this share of a plain step's row, and a drafted token this share of a plain
 * step. This is less than on any measured machine, so that drafting is tried. */
static const double hopeful_row = 0.1, hopeful_draft = 0.05;
/* a sample below this share of the mean changes the mean at once */
static const double quick = 0.6;
/* a sample counts as at most this multiple of the mean: it was interrupted */
static const double most_beyond = 3;
enum { MEAN_OF = 24, SPEED_OF = 12 };

double spec_expected(const double *accept, int32_t k) {
    double sum = 1, product = 1;
    for (int32_t j = 0; j < k; j++) sum += product *= accept[j];
    return sum;
}

int32_t spec_best_depth(const double *accept, const double *cost, int32_t n, double *gain) {
    int32_t best = 0;
    double most = 1;
    for (int32_t k = 1; k <= n; k++) {
        double speed =
            cost[k] > 0 && cost[0] > 0 ? spec_expected(accept, k) * cost[0] / cost[k] : 0;
        if (speed > most) most = speed, best = k;
    }
    if (gain) *gain = most;
    return best;
}

static void learn(struct spec_mean *m, double ms, int32_t most) {
    if (m->ms > 0 && ms > most_beyond * m->ms) ms = most_beyond * m->ms;
    if (m->n == 1 && ms < m->ms) m->ms = ms; /* the first sample included cold caches */
    /* interruptions only add time, so a shorter sample is right */
    if (ms < quick * m->ms && m->n > 4) m->n = 4;
    if (m->n < (float)most) m->n++;
    m->ms += (ms - m->ms) / (double)m->n;
}

double spec_cost_verify(const struct spec_costs *c, int32_t n_seq, int32_t n_row) {
    const struct spec_mean *m = c->verify;
    if (n_row > SPEC_MAX_ROWS) n_row = SPEC_MAX_ROWS;
    if (m[n_row].n > 0) return m[n_row].ms;
    int32_t low = n_row - 1, high = n_row + 1;
    while (low > n_seq && !(m[low].n > 0)) low--;
    if (low < n_seq || !(m[low].n > 0)) return 0;
    while (high <= SPEC_MAX_ROWS && !(m[high].n > 0)) high++;
    double slope = hopeful_row * m[n_seq].ms / n_seq;
    if (high <= SPEC_MAX_ROWS) slope = (m[high].ms - m[low].ms) / (high - low);
    return m[low].ms + (slope > 0 ? slope : 0) * (n_row - low);
}

double spec_cost_draft(const struct spec_costs *c, int32_t n_seq, int32_t n_tok) {
    const struct spec_mean *m = c->draft;
    if (n_tok < 1) return 0;
    if (m[n_tok].n > 0) return m[n_tok].ms;
    int32_t low = n_tok, high = n_tok;
    while (low > 0 && !(m[low].n > 0)) low--;
    while (high < STEP_MAX_TOK && !(m[high].n > 0)) high++;
    if (low) return m[low].ms * n_tok / low;
    if (high < STEP_MAX_TOK) return m[high].ms * n_tok / high;
    return hopeful_draft * n_tok * spec_cost_verify(c, n_seq, n_seq);
}

void spec_cost_learn(struct spec_costs *c, int32_t n_seq, int32_t n_row, bool after_draft,
                     double ms) {
    if (n_row < 1 || n_row > SPEC_MAX_ROWS || !(ms > 0)) return;
    struct spec_mean *m = &c->verify[n_row];
    bool is_plain = n_row == n_seq;
    if (!(c->slowness > 0)) c->slowness = 1;
    if (after_draft && is_plain && m->n > 0) {
        learn(&c->replay, ms / c->slowness - m->ms, MEAN_OF);
        return; /* the additional time is due to the draft, not to the plain step */
    }
    if (after_draft) {
        ms -= c->replay.ms > 0 ? c->replay.ms * c->slowness : 0;
        if (!(ms > 0)) return;
    }
    if (m->n >= 4) { /* only well-known means can measure the machine's speed */
        double ratio = ms / m->ms;
        if (ratio > most_beyond * c->slowness) ratio = most_beyond * c->slowness;
        c->slowness += (ratio - c->slowness) / SPEED_OF;
    }
    learn(m, ms / c->slowness, MEAN_OF);
}

void spec_cost_learn_draft(struct spec_costs *c, int32_t n_tok, double ms) {
    if (n_tok < 1 || n_tok >= STEP_MAX_TOK || !(ms > 0)) return;
    learn(&c->draft[n_tok], ms / (c->slowness > 0 ? c->slowness : 1), MEAN_OF);
}
