/* ramp_effort.c: see ramp_effort.h. */
#include "ramp/ramp_effort.h"

#include "model/seq/swap.h"
#include "ramp/ramp_store.h"
#include "ramp/ramp_type.h"

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
        sum += (double)g->tensor->n_elements * ramp_type_cost(g->forms[choice[i]].to.type);
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
