/* spec_cost.h: the arithmetic of speculation: what a round of drafting and verification is worth.
 *
 * A round drafts k tokens and verifies them together with the token before. Slot j of a draft is accepted with
 * probability accept[j], given that all slots before it were. Pure functions; any thread. */
#ifndef CHIMERE_ENGINE_SPEC_COST_H
#define CHIMERE_ENGINE_SPEC_COST_H

#include <stdint.h>

/* Tokens per round of depth k: 1 + sum over j < k of accept[0] * ... * accept[j]. */
double spec_expected(const double *accept, int32_t k);
/* The depth 0..n of most tokens per cost; cost[k]: of a round of depth k, [n + 1], depth 0 a plain step. *gain, if not
 * NULL: its speed relative to plain steps, 1 for depth 0. A cost that is not positive is unknown: never chosen. */
int32_t spec_best_depth(const double *accept, const double *cost, int32_t n, double *gain);

#endif
