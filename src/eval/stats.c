/* stats.c: see stats.h. */
#include "eval/stats.h"

#include <math.h>

struct share stats_share(int64_t right, int64_t n) {
    if (n <= 0) return (struct share){0, 0, 0};
    const double z = 1.959963984540054, count = (double)n;
    double p = (double)right / count, z2 = z * z / count;
    double centre = (p + z2 / 2) / (1 + z2);
    double half = z / (1 + z2) * sqrt(p * (1 - p) / count + z2 / (4 * count));
    double low = centre - half, high = centre + half;
    return (struct share){p, right == 0 || low < 0 ? 0 : low, right == n || high > 1 ? 1 : high};
}

struct share stats_mean(struct share a, struct share b) {
    double mean = (a.value + b.value) / 2;
    return (struct share){mean, mean - hypot(a.value - a.low, b.value - b.low) / 2,
                          mean + hypot(a.high - a.value, b.high - b.value) / 2};
}

/* If neither run is better, only_a is binomially distributed over the pairs that differ, as with a fair coin. */
double stats_mcnemar(int64_t only_a, int64_t only_b) {
    int64_t n = only_a + only_b, k = only_a < only_b ? only_a : only_b;
    if (n == 0) return 1;
    double p = 0;
    for (int64_t i = 0; i <= k; i++)
        p += exp(lgamma((double)n + 1) - lgamma((double)i + 1) - lgamma((double)(n - i) + 1) -
                 (double)n * log(2));
    return 2 * p < 1 ? 2 * p : 1;
}

struct share stats_pair(int64_t n, int64_t only_a, int64_t only_b) {
    if (n < 1) return (struct share){0, 0, 0};
    double differ = (double)(only_a + only_b), d = (double)(only_b - only_a), m = (double)n;
    double half = 1.959964 * sqrt(differ - d * d / m) / m;
    return (struct share){d / m, d / m - half, d / m + half};
}

/* sums: of a, b; squares: sums of aa, ab, bb. */
struct share stats_saved(int64_t n, const double sums[2], const double squares[3]) {
    if (n < 2 || sums[0] <= 0) return (struct share){0, 0, 0};
    double m = (double)n, a = sums[0] / m, b = sums[1] / m, ratio = b / a;
    double aa = squares[0] / m - a * a, ab = squares[1] / m - a * b, bb = squares[2] / m - b * b;
    double var = (bb - 2 * ratio * ab + ratio * ratio * aa) / (m - 1) / (a * a);
    double half = 1.959964 * sqrt(var > 0 ? var : 0);
    return (struct share){1 - ratio, 1 - ratio - half, 1 - ratio + half};
}
