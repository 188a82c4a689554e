/* ramp_hull.h: the choice of types that minimises predicted divergence within limits.
 *
 * Each gene takes the form with the least gain * error + lambda * cost, which is a point of its convex
 * hull. lambda is bisected until the cost fits; the remaining budget is spent by the best ratio. A uniform
 * choice that fits replaces a result that is predicted to be worse.
 * Deterministic, no state; microseconds per lambda. */
#ifndef CHIMERE_RAMP_RAMP_HULL_H
#define CHIMERE_RAMP_RAMP_HULL_H

#include "ramp/ramp_set.h"
#include "ramp/ramp_type.h"

struct ramp_limit {
    uint64_t bytes;               /* of the file */
    double tok_s;                 /* minimum tokens per second; 0: none */
    const struct ramp_card *card; /* for tok_s */
};

/* Sets on_hull of every form. */
void ramp_hull_mark(struct ramp_set *s);
/* With only_encoded, every gene must have an encoded form. gain [n_gene]; NULL: the genes' own. CHIMERE_ELIMIT: no choice fits; the message states the least possible. */
int ramp_solve(const struct ramp_set *s, const double *gain, const struct ramp_limit *l,
               uint8_t *choice, struct err *e);
/* Every gene in this type; those that cannot have it take their smallest form with no fewer bits per weight, or the
 * largest. */
void ramp_uniform(const struct ramp_set *s, uint32_t type, uint8_t *choice);
/* The n types, best predicted first, of which a uniform choice fits; returns how many. room: [n_gene]. */
enum { RAMP_MAX_UNIFORM = 4 };
int ramp_uniform_best(const struct ramp_set *s, const double *gain, const struct ramp_limit *l,
                      uint8_t *room, int n, uint32_t *types);
/* Spends the budget that a choice leaves, best ratio first. */
void ramp_fill(const struct ramp_set *s, const double *gain, const struct ramp_limit *l,
               uint8_t *choice);
/* CHIMERE_ELIMIT if even the smallest file is larger than the budget. */
int ramp_least_fits(const struct ramp_set *s, const struct ramp_limit *l, struct err *e);
bool ramp_fits(const struct ramp_set *s, const struct ramp_limit *l, const uint8_t *choice);
/* Seconds per token for reading the weights. */
double ramp_seconds(const struct ramp_set *s, const struct ramp_card *card, const uint8_t *choice);

#endif
