/* ramp_evolve.h: improves a choice by measured divergence.
 *
 * There is one parent: at first the given choice, or the best uniform choice if that is measured to be better. Each generation makes `population` children and selects the best in three stages, each on more
 * tokens and with fewer children; the parent competes in the last stage. Half of the children are solutions of the
 * Lagrangian with noisy gains; the others swap forms between tensors at equal size. State is saved after each
 * generation (search.json). */
#ifndef CHIMERE_RAMP_RAMP_EVOLVE_H
#define CHIMERE_RAMP_RAMP_EVOLVE_H

#include "ramp/ramp_hull.h"
#include "ramp/ramp_measure.h"

struct ramp_evolved {
    double start, best;    /* divergence of the first choice and of the result, over all tokens */
    double uniform;        /* of the best uniform choice; negative: none fits bytes and effort */
    uint32_t uniform_type; /* its type */
    int32_t generations;
};

/* Tokens that all candidates of an evolution are measured on at most, in its three stages. */
double ramp_evolve_tokens(const struct ramp_options *o);
/* choice: in and out; it is encoded, within the effort of s. Candidates are restricted to encoded forms when the effort
 * is used up; each generation may use an equal part of what is left. */
int ramp_evolve(struct ramp_set *s, struct ramp_measure *x, const struct ramp_options *o,
                const struct ramp_limit *l, uint8_t *choice, struct ramp_evolved *out,
                struct err *e);

#endif
