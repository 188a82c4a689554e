/* ramp_evolve.h: improves a choice by measured divergence.
 *
 * There is one parent. Each generation makes `population` children and keeps the best of three stages, on more and more
 * tokens; the parent competes again in the last stage. Half of the children are solutions of the Lagrangian with noisy
 * gains, half exchange forms between tensors at equal size. State is saved after each generation (search.json). */
#ifndef CHIMERE_RAMP_RAMP_EVOLVE_H
#define CHIMERE_RAMP_RAMP_EVOLVE_H

#include "ramp/ramp_hull.h"
#include "ramp/ramp_measure.h"

struct ramp_evolved {
    double start, best; /* divergence of the first choice and of the result, over all tokens */
    int32_t generations;
};

/* choice: in and out. */
int ramp_evolve(const struct ramp_set *s, struct ramp_measure *x, const struct ramp_options *o,
                const struct ramp_limit *l, uint8_t *choice, struct ramp_evolved *out,
                struct err *e);

#endif
