/* spec_cost.h: what a round of drafting and verification gives and costs.
 *
 * A round drafts k tokens and verifies them together with the token before. Slot j of a draft is accepted with
 * probability accept[j], given that all slots before it were. The tables hold running means of measured times, relative
 * to the machine's speed of the moment, so that a machine that slows down for a while slows all of them. Any one thread. */
#ifndef CHIMERE_ENGINE_SPEC_COST_H
#define CHIMERE_ENGINE_SPEC_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/tensor.h"

/* Tokens per round of depth k: 1 + sum over j < k of accept[0] * ... * accept[j]. */
double spec_expected(const double *accept, int32_t k);
/* The depth 0..n of most tokens per cost; cost[k]: of a round of depth k, [n + 1], depth 0 a plain step. *gain, if not
 * NULL: its speed relative to plain steps, 1 for depth 0. A cost that is not positive is unknown: never chosen. */
int32_t spec_best_depth(const double *accept, const double *cost, int32_t n, double *gain);

enum {
    SPEC_MAX_SEQS = 4, /* decoding together beyond this, batching is cheaper than verifying */
    SPEC_MAX_ROWS = SPEC_MAX_SEQS * STEP_MAX_TOK
};

struct spec_mean {
    double ms; /* at speed 1 */
    float n;   /* samples that it stands for */
};

/* Of one number of sequences that decode together. */
struct spec_costs {
    struct spec_mean verify[SPEC_MAX_ROWS +
                            1]; /* [rows]: a step that verifies so many; [n_seq] is a plain one */
    struct spec_mean
        draft[STEP_MAX_TOK]; /* [tokens]: what the model drafter takes for so many each */
    struct spec_mean replay; /* more time of a step after a draft, that its draft caused */
    double slowness;         /* of the machine now; 1: as the means */
};

/* Estimated ms of a step of n_row rows of n_seq sequences, at speed 1: the mean, or between those of neighbours, or a
 * hopeful guess from a plain step. 0: not even that is known. */
double spec_cost_verify(const struct spec_costs *c, int32_t n_seq, int32_t n_row);
double spec_cost_draft(const struct spec_costs *c, int32_t n_seq, int32_t n_tok);
/* A step of n_row rows took ms without drafting; after_draft: the step before had drafts. */
void spec_cost_learn(struct spec_costs *c, int32_t n_seq, int32_t n_row, bool after_draft,
                     double ms);
void spec_cost_learn_draft(struct spec_costs *c, int32_t n_tok, double ms);

#endif
