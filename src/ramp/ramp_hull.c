/* ramp_hull.c: see ramp_hull.h. */
#include "ramp/ramp_hull.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "format/quant.h"
#include "ramp/ramp_type.h"

enum { LAMBDA_STEPS = 80, MIX_STEPS = 40 };

static double form_seconds(const struct ramp_gene *g, int form, const struct ramp_card *card) {
    const struct ramp_form *f = &g->forms[form];
    return (double)f->n_bytes * g->share / ramp_type_speed(card, f->to.type);
}

double ramp_seconds(const struct ramp_set *s, const struct ramp_card *card, const uint8_t *choice) {
    double sum = 0;
    for (size_t i = 0; i < s->n_gene; i++) sum += form_seconds(&s->genes[i], choice[i], card);
    return sum;
}

bool ramp_fits(const struct ramp_set *s, const struct ramp_limit *l, const uint8_t *choice) {
    if (ramp_set_bytes(s, choice) > l->bytes) return false;
    return !(l->tok_s > 0) || ramp_seconds(s, l->card, choice) * l->tok_s <= 1;
}

void ramp_hull_mark(struct ramp_set *s) {
    for (size_t i = 0; i < s->n_gene; i++) {
        struct ramp_gene *g = &s->genes[i];
        for (int k = 0; k < g->n_form; k++) g->forms[k].on_hull = false;
        int at = 0; /* best of the smallest forms, then always the steepest descent */
        for (int k = 1; k < g->n_form && g->forms[k].n_bytes == g->forms[0].n_bytes; k++)
            if (g->forms[k].error < g->forms[at].error) at = k;
        while (at >= 0) {
            int next = -1;
            double steepest = 0;
            g->forms[at].on_hull = true;
            for (int k = 0; k < g->n_form; k++) {
                if (g->forms[k].n_bytes <= g->forms[at].n_bytes) continue;
                double slope = (g->forms[at].error - g->forms[k].error) /
                               (double)(g->forms[k].n_bytes - g->forms[at].n_bytes);
                if (slope > steepest) {
                    steepest = slope;
                    next = k;
                }
            }
            at = next;
        }
    }
}

/* Cost of a form: its bytes, plus its weighted time. */
static double cost(const struct ramp_set *s, const struct ramp_gene *g, int form,
                   const struct ramp_limit *l, double mix) {
    double bytes = (double)ramp_form_bytes(s, g, form);
    return mix > 0 ? (1 - mix) * bytes + mix * form_seconds(g, form, l->card) * l->card->bandwidth
                   : bytes;
}

static void pick(const struct ramp_set *s, const double *gain, const struct ramp_limit *l,
                 double mix, double lambda, uint8_t *choice) {
    for (size_t i = 0; i < s->n_gene; i++) {
        const struct ramp_gene *g = &s->genes[i];
        double c = gain ? gain[i] : g->gain, least = INFINITY;
        for (int k = 0; k < g->n_form; k++) {
            double v = c * g->forms[k].error + lambda * cost(s, g, k, l, mix);
            if (v < least && ramp_form_is_open(s, g, k)) {
                least = v;
                choice[i] = (uint8_t)k;
            }
        }
    }
}

/* The least lambda (bisected logarithmically) whose choice fits; returns false if none does. */
static bool bisect(const struct ramp_set *s, const double *gain, const struct ramp_limit *l,
                   double mix, uint8_t *choice) {
    double low = -140, high = 140;
    pick(s, gain, l, mix, exp(high), choice);
    if (!ramp_fits(s, l, choice)) return false;
    for (int i = 0; i < LAMBDA_STEPS; i++) {
        double middle = (low + high) / 2;
        pick(s, gain, l, mix, exp(middle), choice);
        if (ramp_fits(s, l, choice)) high = middle;
        else low = middle;
    }
    pick(s, gain, l, mix, exp(high), choice);
    return true;
}

void ramp_fill(const struct ramp_set *s, const double *gain, const struct ramp_limit *l,
               uint8_t *choice) {
    uint64_t used = ramp_set_bytes(s, choice);
    for (;;) {
        size_t best = s->n_gene;
        int form = 0;
        double ratio = 0;
        for (size_t i = 0; i < s->n_gene; i++) {
            const struct ramp_gene *g = &s->genes[i];
            const struct ramp_form *now = &g->forms[choice[i]];
            for (int k = 0; k < g->n_form; k++) {
                double won = (gain ? gain[i] : g->gain) * (now->error - g->forms[k].error);
                if (g->forms[k].n_bytes < now->n_bytes || !(won > 0)) continue;
                if (!ramp_form_is_open(s, g, k)) continue;
                uint64_t more = g->forms[k].n_bytes - now->n_bytes;
                if (used + more + s->alignment > l->bytes || won / (double)(more + 1) <= ratio)
                    continue;
                uint8_t old = choice[i];
                choice[i] = (uint8_t)k;
                bool fits = ramp_fits(s, l, choice);
                choice[i] = old;
                if (!fits) continue;
                ratio = won / (double)(more + 1);
                best = i;
                form = k;
            }
        }
        if (best == s->n_gene) return;
        choice[best] = (uint8_t)form;
        used = ramp_set_bytes(s, choice);
    }
}

static double predict(const struct ramp_set *s, const double *gain, const uint8_t *choice) {
    double sum = 0;
    for (size_t i = 0; i < s->n_gene; i++)
        sum += (gain ? gain[i] : s->genes[i].gain) * s->genes[i].forms[choice[i]].error;
    return sum;
}

void ramp_uniform(const struct ramp_set *s, uint32_t type, uint8_t *choice) {
    const struct quant_traits *q = quant_traits(type);
    for (size_t i = 0; i < s->n_gene; i++) {
        const struct ramp_gene *g = &s->genes[i];
        double bytes =
            (double)g->tensor->n_elements / (double)q->block_elements * (double)q->block_bytes;
        int k = ramp_gene_form(g, type);
        for (int j = 0; k < 0 && j < g->n_form; j++)
            if ((double)g->forms[j].n_bytes >= bytes) k = j;
        choice[i] = (uint8_t)(k < 0 ? g->n_form - 1 : k);
    }
}

static bool is_form(const struct ramp_set *s, uint32_t type) {
    for (size_t i = 0; i < s->n_gene; i++)
        if (ramp_gene_form(&s->genes[i], type) >= 0) return true;
    return false;
}

int ramp_uniform_best(const struct ramp_set *s, const double *gain, const struct ramp_limit *l,
                      uint8_t *room, int n, uint32_t *types) {
    double least[RAMP_MAX_UNIFORM];
    int have = 0;
    for (uint32_t type = 0; type < QUANT_N_ID; type++) {
        if (!is_form(s, type)) continue;
        ramp_uniform(s, type, room);
        if (!ramp_fits(s, l, room)) continue;
        double v = predict(s, gain, room);
        int at = have < n ? have++ : n;
        for (; at > 0 && v < least[at - 1]; at--)
            if (at < n) least[at] = least[at - 1], types[at] = types[at - 1];
        if (at < n) least[at] = v, types[at] = type;
    }
    return have;
}

/* The Lagrangian misses choices inside the hull, and filling is greedy: a uniform choice can be better than both. */
static int take_uniform(const struct ramp_set *s, const double *gain, const struct ramp_limit *l,
                        uint8_t *choice, struct err *e) {
    uint32_t type;
    uint8_t *room = mem_alloc_array(s->n_gene, 1);
    if (!room) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!s->only_encoded && ramp_uniform_best(s, gain, l, room, 1, &type)) {
        ramp_uniform(s, type, room);
        if (predict(s, gain, room) < predict(s, gain, choice)) {
            memcpy(choice, room, s->n_gene);
            ramp_fill(s, gain, l, choice);
        }
    }
    mem_free(room);
    return 0;
}

static int nothing_fits(const struct ramp_set *s, const struct ramp_limit *l, struct err *e) {
    uint64_t least, most;
    char a[16], b[16];
    ramp_set_range(s, &least, &most);
    str_bytes(a, least);
    str_bytes(b, l->bytes);
    if (least > l->bytes)
        err_set(
            e, CHIMERE_ELIMIT,
            "the smallest file that these types give has %s (%llu bytes, %.2f bits per weight); "
            "the budget is %s",
            a, (unsigned long long)least,
            (double)(least - s->header_bytes) * 8 / (double)s->n_weights, b);
    else
        err_set(e, CHIMERE_ELIMIT,
                "no choice of types within %s reads its weights %.1f times per second", b,
                l->tok_s);
    err_hint(e, least > l->bytes
                    ? "raise the budget, or allow more types with --mode chimere or an "
                      "importance matrix"
                    : "lower --min-speed");
    return CHIMERE_ELIMIT;
}

int ramp_least_fits(const struct ramp_set *s, const struct ramp_limit *l, struct err *e) {
    uint64_t least, most;
    ramp_set_range(s, &least, &most);
    return least > l->bytes ? nothing_fits(s, l, e) : 0;
}

int ramp_solve(const struct ramp_set *s, const double *gain, const struct ramp_limit *l,
               uint8_t *choice, struct err *e) {
    bool found = bisect(s, gain, l, 0, choice);
    /* a byte limit alone does not reach the speed: find the least weight of time with which a choice fits */
    if (!found && l->tok_s > 0) {
        double low = 0, high = 1;
        found = bisect(s, gain, l, high, choice);
        for (int i = 0; found && i < MIX_STEPS; i++) {
            double middle = (low + high) / 2;
            if (bisect(s, gain, l, middle, choice)) high = middle;
            else low = middle;
        }
        if (found) bisect(s, gain, l, high, choice);
    }
    if (!found) return nothing_fits(s, l, e);
    ramp_fill(s, gain, l, choice);
    return take_uniform(s, gain, l, choice, e);
}
