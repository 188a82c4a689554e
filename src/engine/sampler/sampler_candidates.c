/* sampler_candidates.c: the sampler chain over some of a row's logits: the candidates that a device selected, and the
 * tokens that processors touch. These logits are stored in `work` at the positions of their tokens; all other entries
 * are undefined. Processors that list the tokens they touch therefore run unchanged. All other logits are known only to
 * be smaller than `least`. If a choice would depend on more, sampler_pick makes it. */
#include <math.h>
#include <string.h>

#include "engine/sampler/sampler_impl.h"

static bool is_known(const struct sampler *s, int32_t id) {
    return s->few.known[id / 64] >> (id % 64) & 1;
}
static void set_known(struct sampler *s, int32_t id) {
    s->few.known[id / 64] |= (uint64_t)1 << id % 64;
}
static void forget(struct sampler *s, const int32_t *ids, int32_t n) {
    for (int32_t i = 0; i < n; i++) s->few.known[ids[i] / 64] = 0;
}

bool sampler_list_add(struct sampler *s, struct sampler_list *l, int32_t id) {
    if (id < 0 || id >= s->n_vocab) return true;
    if (is_known(s, id)) return true;
    if (!l->ids || l->n == SELECT_MAX_IDS) return false;
    l->ids[l->n++] = id;
    set_known(s, id);
    return true;
}

void sampler_needs(struct sampler *s, const int32_t *ahead, int32_t n_ahead, int32_t *ids,
                   struct sampler_need *out) {
    struct sampler_list l = {.ahead = ahead, .n_ahead = n_ahead, .ids = ids};
    *out = (struct sampler_need){.whole = false};
    bool draws = s->p.temperature > 0;
    if (draws && (s->p.top_n_sigma > 0 || sampler_k(s) > SELECT_TOP)) out->whole = true;
    if (sampler_think_reads(s)) out->whole = true;
    for (int i = 0; i < SAMPLER_N_PROCESSOR && !out->whole; i++) {
        const struct sampler_processor *p = &sampler_processors[i];
        if (p->list && (n_ahead || p->on(s)) && !p->list(s, &l)) out->whole = true;
    }
    forget(s, ids, l.n);
    out->n_id = l.n;
    if (out->whole || n_ahead || s->p.n_probs) return;
    const struct sampler_processor *grammar = &sampler_processors[SAMPLER_GRAMMAR];
    if (!grammar->on(s)) return;
    s->failed = 0;
    s->few.n = 0;
    grammar->apply_few(s); /* there are no candidates yet: this only computes the mask */
    if (s->failed) out->whole = true;
    else out->mask = s->mask;
}

/* ---- the pick ---- */

static void fill(struct sampler *s, const struct sampler_few *few) {
    const struct select_row *r = few->row;
    float least = INFINITY;
    s->few.n = 0;
    for (int32_t i = 0; i < r->n; i++) {
        s->work[r->ids[i]] = r->logits[i];
        set_known(s, r->ids[i]);
        s->few.ids[s->few.n++] = r->ids[i];
        if (r->logits[i] < least) least = r->logits[i];
    }
    for (int32_t i = 0; i < few->n_id; i++) {
        int32_t id = few->ids[i];
        s->work[id] = few->id_logits[i];
        if (is_known(s, id)) continue;
        set_known(s, id);
        s->few.ids[s->few.n++] = id;
    }
    s->few.least = r->n < r->n_finite ? least : -INFINITY;
}

/* The two most likely tokens (ties: lower id), and the sums that the device computed. */
static void sum_up(struct sampler *s, const struct select_row *r) {
    struct sampler_sums *sums = &s->few.sums;
    float second = -INFINITY;
    sums->first = -1;
    for (int32_t i = 0; i < r->n; i++) {
        if (r->logits[i] == r->max && (sums->first < 0 || r->ids[i] < sums->first)) {
            if (sums->first >= 0) second = r->max;
            sums->first = r->ids[i];
        } else if (r->logits[i] > second) {
            second = r->logits[i];
        }
    }
    sums->norm = (float)((double)r->max + r->log_sum);
    sums->entropy = (float)r->entropy;
    sums->p_first = (float)exp(-r->log_sum);
    sums->p_second = second > -INFINITY ? expf(second - sums->norm) : 0;
    s->few.has_sums = r->n > 0;
}

static int process(struct sampler *s, const struct sampler_few *few) {
    s->failed = 0;
    sum_up(s, few->row);
    for (int i = 0; i < SAMPLER_N_PROCESSOR; i++) {
        const struct sampler_processor *p = &sampler_processors[i];
        struct sampler_list check = {.ids = NULL};
        if (!p->on(s)) continue;
        if (p->list && !p->list(s, &check)) return SAMPLER_WHOLE;
        if (i == SAMPLER_GRAMMAR && !few->is_masked) s->few.has_sums = false;
        if (p->apply_few) p->apply_few(s);
        else p->apply(s);
        if (s->failed) return s->failed;
    }
    return 0;
}

/* Like gather in sampler.c, for the known logits. */
static int32_t draw_few(struct sampler *s, float max) {
    float cut = sampler_cut(s, max), least = s->few.least;
    int32_t k = sampler_k(s), n = 0;
    for (int32_t i = 0; i < s->few.n; i++) n += s->work[s->few.ids[i]] >= least;
    if (s->p.top_n_sigma > 0 || (cut < least && n < k)) return SAMPLER_WHOLE;
    float from = cut > least ? cut : least;
    return sampler_draw(s, sampler_top_of(s, s->few.ids, NULL, s->few.n, k, from));
}

static int32_t choose(struct sampler *s, const struct sampler_few *few) {
    int rc = process(s, few);
    if (rc) return rc;
    float max = -INFINITY;
    int32_t best = -1;
    for (int32_t i = 0; i < s->few.n; i++) {
        int32_t id = s->few.ids[i];
        float x = s->work[id];
        if (isnan(x) || x == INFINITY) return CHIMERE_ENUMERIC;
        if (x > max || (x == max && id < best)) max = x, best = id;
    }
    if (best < 0 || max < s->few.least)
        return s->few.least > -INFINITY ? SAMPLER_WHOLE : CHIMERE_ENUMERIC;
    return s->p.temperature <= 0 ? best : draw_few(s, max);
}

/* Like report in sampler.c, for a row that was not masked. */
static void report_few(struct sampler *s, const struct sampler_few *few, float logit,
                       struct sampler_probs *out) {
    const struct select_row *r = few->row;
    out->entropy = (float)r->entropy;
    out->chosen = (float)((double)logit - (double)r->max - r->log_sum);
    int32_t n = s->p.n_probs < s->n_vocab ? s->p.n_probs : s->n_vocab;
    n = sampler_top_of(s, r->ids, r->logits, r->n, n, -INFINITY);
    sampler_sort(s->cand, n, sampler_by_logit);
    out->n = n;
    for (int32_t i = 0; i < n; i++) {
        out->ids[i] = s->cand[i].id;
        out->logprobs[i] = (float)((double)s->cand[i].logit - (double)r->max - r->log_sum);
    }
}

/* Finds a token's logit as the model computed it, before any processor. */
static bool own_logit(const struct sampler_few *few, int32_t token, float *out) {
    for (int32_t i = 0; i < few->row->n; i++)
        if (few->row->ids[i] == token) return *out = few->row->logits[i], true;
    for (int32_t i = 0; i < few->n_id; i++)
        if (few->ids[i] == token) return *out = few->id_logits[i], true;
    return false;
}

int32_t sampler_pick_few(struct sampler *s, const struct sampler_few *few,
                         struct sampler_probs *probs) {
    float logit = 0;
    if (!few->row->is_finite) return CHIMERE_ENUMERIC;
    if (few->row->n < 0 || few->row->n > SELECT_CAP || few->n_id > SELECT_MAX_IDS)
        return SAMPLER_WHOLE;
    if (sampler_think_reads(s)) return SAMPLER_WHOLE;
    s->think.look = -1;
    /* a forced token is chosen without its logit, but the report needs that logit */
    int32_t forced = sampler_think_forced(s);
    if (probs && (few->is_masked || (forced >= 0 && !own_logit(few, forced, &logit))))
        return SAMPLER_WHOLE;
    struct rng rng = s->rng;
    float mu = s->mu;
    fill(s, few);
    int32_t token = choose(s, few);
    forget(s, few->row->ids, few->row->n);
    forget(s, few->ids, few->n_id);
    if (token >= 0 && sampler_trigger_refuses(s, token)) {
        s->rng = rng; /* restore the random stream: the draw does not count */
        s->mu = mu;
        return SAMPLER_WHOLE;
    }
    if (token >= 0 && probs && own_logit(few, token, &logit)) report_few(s, few, logit, probs);
    return token;
}
