/* gate.h: the statistics of a promotion. Pure functions; normal approximations. */
#ifndef CHIMERE_LEARN_GATE_H
#define CHIMERE_LEARN_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GATE_ALPHA 0.025 /* one-sided: as a 95 % interval above zero */

/* Chance of a mean of differences as high as this one or higher if nothing gained; 1: it says nothing. */
double gate_p(double mean, double error);
/* Holm's step-down correction of n tests at level alpha: limits[i] is what p[i] was compared with, passes[i] whether it
 * is below. n at most 64. */
void gate_holm(const double *p, size_t n, double alpha, double *limits, bool *passes);
/* The gain that n pairs would show at level alpha (one-sided) in four of five nights: error of their mean. */
double gate_detectable(double error, double alpha);
/* The same for shares right of n pairs, n_differ of which differ, in the unit of a share. */
double gate_detectable_share(int64_t n, int64_t n_differ, double alpha);

#endif
