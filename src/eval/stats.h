/* stats.h: intervals and tests on counts of right answers. Pure functions. */
#ifndef CHIMERE_EVAL_STATS_H
#define CHIMERE_EVAL_STATS_H

#include <stdint.h>

struct share {
    double value, low, high; /* low, high: 95 % interval */
};

/* right of n, with Wilson's score interval; n 0: all 0. */
struct share stats_share(int64_t right, int64_t n);
/* Mean of two independent shares (balanced accuracy); the interval by squaring and adding distances
 * (Newcombe, 1998). */
struct share stats_mean(struct share a, struct share b);
/* McNemar's exact two-sided test on pairs: only_a, only_b: right in one run alone. Returns p. */
double stats_mcnemar(int64_t only_a, int64_t only_b);

/* b - a of paired shares, from the pairs that differ; interval of paired proportions (Wald). */
struct share stats_pair(int64_t n, int64_t only_a, int64_t only_b);
/* 1 - mean(b) / mean(a) of n pairs, from their sums and sums of products; interval by the delta method. */
struct share stats_saved(int64_t n, const double sums[2], const double squares[3]);

#endif
