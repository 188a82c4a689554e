/* gate.h: statistics that decide whether a proposal is promoted. Pure functions; normal approximations. */
#ifndef CHIMERE_LEARN_GATE_H
#define CHIMERE_LEARN_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GATE_ALPHA 0.025 /* one-sided; equivalent to a 95 % interval above zero */

#define GATE_ROLLBACK 0.05 /* one-sided; of a trial (trial.h) */

/* Returns the probability of a mean difference of at least this size if there is no gain. 1: no evidence. */
double gate_p(double mean, double error);
/* Applies Holm's step-down correction to n tests at level alpha. limits[i]: the limit for p[i]. passes[i]: p[i] is
 * below it and no smaller p failed. n is at most 64. */
void gate_holm(const double *p, size_t n, double alpha, double *limits, bool *passes);
/* Returns the probability, by Fisher's exact test, of at least bad_a of n_a in the first group, if both groups have the
 * same share of bad ones: bad_a + bad_b of n_a + n_b. */
double gate_fisher(int64_t bad_a, int64_t n_a, int64_t bad_b, int64_t n_b);
/* Returns the probability of at least k of n, each with probability share, 0 < share < 1. */
double gate_binomial(int64_t k, int64_t n, double share);
/* Returns the gain that would be detected at level alpha (one-sided) in four of five nights. error: standard error
 * of the mean difference. */
double gate_detectable(double error, double alpha);
/* Does the same for the share of right answers of n pairs, n_differ of which differ. The result is a share. */
double gate_detectable_share(int64_t n, int64_t n_differ, double alpha);

#endif
