/* spec_cost.h: gain and cost of a round of drafting and verification.
 *
 * A round drafts k tokens and verifies them together with the token before them. Position j of a draft is accepted with
 * probability accept[j], given that all positions before it were. The tables hold running means of measured times. They
 * are relative to the machine's current speed, so that a temporary slowdown applies to all of them. Use from any one
 * thread. */
#ifndef CHIMERE_ENGINE_SPEC_COST_H
#define CHIMERE_ENGINE_SPEC_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/tensor.h"

/* Expected tokens per round of depth k: 1 + sum over j < k of accept[0] * ... * accept[j]. */
double spec_expected(const double *accept, int32_t k);
/* Returns the depth 0..n with most tokens per cost. cost [n + 1]: cost[k] of a round of depth k; depth 0 is a plain
 * step. *gain, if not NULL: the speed relative to plain steps, 1 for depth 0. A cost <= 0 is unknown, and that depth is
 * not chosen. */
int32_t spec_best_depth(const double *accept, const double *cost, int32_t n, double *gain);

enum {
    /* with more decoding sequences, batching is cheaper than verification */
    SPEC_MAX_SEQS = 4,
    SPEC_MAX_ROWS = SPEC_MAX_SEQS * STEP_MAX_TOK
};

struct spec_mean {
    double ms; /* mean time at normal speed (slowness 1) */
    float n;   /* number of samples in the mean */
};

/* Costs for one number of concurrently decoding sequences. */
struct spec_costs {
    /* [rows]: a step that verifies so many rows; [n_seq] is a plain step */
    struct spec_mean verify[SPEC_MAX_ROWS + 1];
    /* [tokens]: time in which the model drafter drafts so many tokens per sequence */
    struct spec_mean draft[STEP_MAX_TOK];
    struct spec_mean replay; /* additional time of the step after a draft, caused by that draft */
    double slowness;         /* current slowness of the machine; 1: normal */
};

/* Estimated ms of a step with n_row rows of n_seq sequences, at normal speed: the mean, or an interpolation between its
 * neighbours, or an optimistic guess from a plain step. 0: not even a plain step has been measured. */
double spec_cost_verify(const struct spec_costs *c, int32_t n_seq, int32_t n_row);
double spec_cost_draft(const struct spec_costs *c, int32_t n_seq, int32_t n_tok);
/* Called after a step with n_row rows that took ms without drafting; after_draft: the previous step verified a
 * draft. */
void spec_cost_learn(struct spec_costs *c, int32_t n_seq, int32_t n_row, bool after_draft,
                     double ms);
void spec_cost_learn_draft(struct spec_costs *c, int32_t n_tok, double ms);

#endif
