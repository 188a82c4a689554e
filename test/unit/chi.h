/* chi.h: do counts follow a distribution? */
#ifndef CHIMERE_TEST_CHI_H
#define CHIMERE_TEST_CHI_H

#include <math.h>

/* Fails the test when the counts of n draws over k categories are as unlikely as 1 in 10,000 under p (chi
 * square; what is expected less than 8 times is taken together), or where something impossible came up. */
static inline void chi_check(const int *count, const double *p, int k, int n) {
    double chi = 0, rest_p = 0;
    int rest = 0, df = -1;
    for (int i = 0; i < k; i++) {
        if (p[i] == 0 && count[i])
            fail_msg("%d times category %d, which is impossible", count[i], i);
        if (p[i] * n < 8) {
            rest_p += p[i];
            rest += count[i];
            continue;
        }
        chi += (count[i] - p[i] * n) * (count[i] - p[i] * n) / (p[i] * n);
        df++;
    }
    if (rest_p * n >= 8) {
        chi += (rest - rest_p * n) * (rest - rest_p * n) / (rest_p * n);
        df++;
    }
    if (df < 1) return;
    double limit =
        df * pow(1 - 2.0 / (9 * df) + 3.72 * sqrt(2.0 / (9 * df)), 3); /* Wilson-Hilferty */
    if (chi > limit) fail_msg("chi-square %.1f with %d degrees of freedom", chi, df);
}

#endif
