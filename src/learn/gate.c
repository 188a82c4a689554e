#include "learn/gate.h"

#include <math.h>

#define POWER 0.80

double gate_p(double mean, double error) {
    if (!isfinite(error) || !isfinite(mean)) return 1;
    if (!(error > 0)) return mean > 0 ? 0 : 1;
    return 0.5 * erfc(mean / error / sqrt(2));
}

/* Returns the z above which a share p of the normal distribution is, by bisection; 40 halvings of an interval of
 * 20 give 1e-9. */
static double z_above(double p) {
    double low = -10, high = 10;
    for (int i = 0; i < 60; i++) {
        double z = 0.5 * (low + high);
        if (0.5 * erfc(z / sqrt(2)) > p) low = z;
        else high = z;
    }
    return low;
}

void gate_holm(const double *p, size_t n, double alpha, double *limits, bool *passes) {
    bool done[64] = {false}, refused = false;
    if (n > 64) n = 64;
    for (size_t k = 0; k < n; k++) {
        size_t least = n;
        for (size_t i = 0; i < n; i++)
            if (!done[i] && (least == n || p[i] < p[least])) least = i;
        done[least] = true;
        limits[least] = alpha / (double)(n - k);
        refused |= !(p[least] < limits[least]);
        passes[least] = !refused;
    }
}

static double log_choose(int64_t n, int64_t k) {
    return lgamma((double)n + 1) - lgamma((double)k + 1) - lgamma((double)(n - k) + 1);
}

double gate_fisher(int64_t bad_a, int64_t n_a, int64_t bad_b, int64_t n_b) {
    int64_t bad = bad_a + bad_b, most = bad < n_a ? bad : n_a;
    double p = 0;
    for (int64_t k = bad_a; k <= most; k++)
        if (bad - k <= n_b)
            p += exp(log_choose(n_a, k) + log_choose(n_b, bad - k) - log_choose(n_a + n_b, bad));
    return p < 1 ? p : 1;
}

double gate_binomial(int64_t k, int64_t n, double share) {
    double p = 0;
    for (int64_t i = k; i <= n; i++)
        p += exp(log_choose(n, i) + (double)i * log(share) + (double)(n - i) * log1p(-share));
    return p < 1 ? p : 1;
}

double gate_detectable(double error, double alpha) {
    return error * (z_above(alpha) + z_above(1 - POWER));
}

double gate_detectable_share(int64_t n, int64_t n_differ, double alpha) {
    double differ = n_differ > 0 ? (double)n_differ : 1; /* with no difference, assume one */
    return n > 0 ? gate_detectable(sqrt(differ) / (double)n, alpha) : INFINITY;
}
