/* ramp_effort.c: see ramp_effort.h. */
#include "ramp/ramp_effort.h"

#include "model/seq/swap.h"
#include "ramp/ramp_evolve.h"
#include "ramp/ramp_measure.h"
#include "ramp/ramp_store.h"
#include "ramp/ramp_type.h"

/* Products, tokens times active weights, per second of effort: 2e14 for the default. */
#define MEASURE_RATE 1.7e11

enum {
    LEAST_POPULATION = 32, /* bounds of reducing */
    LEAST_GENERATIONS = 3,
    LEAST_JUDGE = 8192,
    LEAST_PROBE = 512,
};

/* Tokens of all probes. */
static double probe_tokens(const struct ramp_options *o, const struct ramp_set *s) {
    size_t n = s->n_gene < RAMP_MAX_GROUPS ? s->n_gene : RAMP_MAX_GROUPS;
    return 2 * (double)n * (double)o->probe_tok; /* at both points */
}

double ramp_effort_active(const struct ramp_set *s) {
    double active = 0;
    for (size_t i = 0; i < s->n_gene; i++)
        active += s->genes[i].share * (double)s->genes[i].tensor->n_elements;
    return active;
}

static bool halve(int32_t *n, int32_t least) {
    if (*n <= least) return false;
    *n = *n / 2 > least ? *n / 2 : least;
    return true;
}

bool ramp_effort_limit(struct ramp_options *o, const struct ramp_set *s) {
    double most = MEASURE_RATE * o->effort_s, active = ramp_effort_active(s);
    bool reduced = false;
    while (active * (probe_tokens(o, s) + ramp_evolve_tokens(o)) > most) {
        bool probes = probe_tokens(o, s) > ramp_evolve_tokens(o);
        if (!(probes && halve(&o->probe_tok, LEAST_PROBE)) &&
            !halve(&o->population, LEAST_POPULATION) &&
            !halve(&o->generations, LEAST_GENERATIONS) && !halve(&o->judge_tok, LEAST_JUDGE) &&
            !halve(&o->probe_tok, LEAST_PROBE))
            break;
        reduced = true;
    }
    return reduced;
}

void ramp_effort_begin(struct ramp_set *s, const struct model *m, double seconds) {
    s->effort = seconds;
    s->only_encoded = false;
    for (size_t i = 0; i < s->n_gene; i++) {
        struct ramp_gene *g = &s->genes[i];
        bool is_free = g->is_draft || !swap_is_possible(m, g->tensor->name);
        g->encoded = is_free ? UINT32_MAX : 0;
        for (int k = 0; k < g->n_form; k++)
            if (g->forms[k].to.type == g->tensor->type) g->encoded |= 1u << k;
    }
}

static bool is_encoded(const struct ramp_gene *g, uint8_t form) {
    return form == RAMP_SOURCE || (g->encoded >> form & 1);
}

double ramp_effort_of(const struct ramp_set *s, const uint8_t *choice) {
    double sum = 0;
    for (size_t i = 0; i < s->n_gene; i++) {
        const struct ramp_gene *g = &s->genes[i];
        if (is_encoded(g, choice[i])) continue;
        sum += (double)g->tensor->n_elements *
               ramp_type_cost(g->forms[choice[i]].to.type, g->is_correlated);
    }
    return sum;
}

bool ramp_effort_take(struct ramp_set *s, const uint8_t *choice, double most) {
    double cost = ramp_effort_of(s, choice);
    if (cost > most || cost > s->effort) return false;
    s->effort -= cost;
    for (size_t i = 0; i < s->n_gene; i++)
        if (choice[i] != RAMP_SOURCE) s->genes[i].encoded |= 1u << choice[i];
    return true;
}
