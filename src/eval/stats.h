/* stats.h: intervals and tests on counts of right answers. Pure functions. */
#ifndef CHIMERE_EVAL_STATS_H
#define CHIMERE_EVAL_STATS_H

#include <stdint.h>

struct share {
    double value, low, high; /* low, high: 95 % interval */
};

/* Returns the share right / n with Wilson's score interval; n 0: all 0. */
struct share stats_share(int64_t right, int64_t n);
/* Returns the mean of two independent shares (balanced accuracy). The interval adds the squared distances of both
 * intervals (Newcombe, 1998). */
struct share stats_mean(struct share a, struct share b);
/* McNemar's exact two-sided test on pairs. only_a, only_b: number of pairs that are right only in run a, only in
 * run b. Returns p. */
double stats_mcnemar(int64_t only_a, int64_t only_b);

/* Returns b - a of paired shares from the numbers of differing pairs, with the interval of paired proportions
 * (Wald). */
struct share stats_pair(int64_t n, int64_t only_a, int64_t only_b);
/* Returns 1 - mean(b) / mean(a) of n pairs, from their sums and sums of products, with an interval by the delta
 * method. */
struct share stats_saved(int64_t n, const double sums[2], const double squares[3]);

#endif
