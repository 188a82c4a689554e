#include "engine/spec_cost.h"

#include <stddef.h>

double spec_expected(const double *accept, int32_t k) {
    double sum = 1, product = 1;
    for (int32_t j = 0; j < k; j++) sum += product *= accept[j];
    return sum;
}

int32_t spec_best_depth(const double *accept, const double *cost, int32_t n, double *gain) {
    int32_t best = 0;
    double most = 1;
    for (int32_t k = 1; k <= n; k++) {
        double speed =
            cost[k] > 0 && cost[0] > 0 ? spec_expected(accept, k) * cost[0] / cost[k] : 0;
        if (speed > most) most = speed, best = k;
    }
    if (gain) *gain = most;
    return best;
}
