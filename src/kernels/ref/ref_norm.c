/* ref_norm.c: norms and elementwise ops. */
#include <math.h>

#include "kernels/ref/ref.h"

void ref_rms_norm(struct dev *d, float *out, const float *x, const float *w, int64_t n_row,
                  int64_t n, float eps) {
    (void)d;
    for (int64_t r = 0; r < n_row; r++, x += n, out += n) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
        double f = 1 / sqrt(sum / (double)n + eps);
        for (int64_t i = 0; i < n; i++) out[i] = (float)(x[i] * f * (w ? w[i] : 1.0f));
    }
}

void ref_layer_norm(struct dev *d, float *out, const float *x, const float *w, const float *b,
                    int64_t n_row, int64_t n, float eps) {
    (void)d;
    for (int64_t r = 0; r < n_row; r++, x += n, out += n) {
        double sum = 0, var = 0;
        for (int64_t i = 0; i < n; i++) sum += x[i];
        double mean = sum / (double)n;
        for (int64_t i = 0; i < n; i++) var += (x[i] - mean) * (x[i] - mean);
        double f = 1 / sqrt(var / (double)n + eps);
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)((x[i] - mean) * f * (w ? w[i] : 1.0f) + (b ? b[i] : 0.0f));
    }
}

double ref_act(enum act act, double x) {
    switch (act) {
    case ACT_SILU: return x / (1 + exp(-x));
    case ACT_GELU: return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case ACT_GELU_ERF: return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
    case ACT_RELU: return x < 0 ? 0 : x; /* NaN propagates */
    case ACT_RELU2: return x < 0 ? 0 : x * x;
    case ACT_SIGMOID: return 1 / (1 + exp(-x));
    case ACT_NONE: return x;
    case ACT_TANH: return tanh(x);
    case ACT_CLAMPED: break; /* takes two arguments: ref_glu */
    }
    return NAN;
}

double ref_glu(enum act act, double gate, double up) {
    if (act != ACT_CLAMPED) return ref_act(act, gate) * up;
    gate = gate > 7 ? 7 : gate; /* NaN propagates */
    up = up > 7 ? 7 : up < -7 ? -7 : up;
    return gate / (1 + exp(-1.702 * gate)) * (1 + up);
}

void ref_act_mul(struct dev *d, float *out, const float *a, const float *b, int64_t n,
                 enum act act) {
    (void)d;
    for (int64_t i = 0; i < n; i++) out[i] = (float)(ref_act(act, a[i]) * (b ? b[i] : 1.0f));
}

void ref_axpby(struct dev *d, float *y, float alpha, const float *x, float beta, int64_t n) {
    (void)d;
    for (int64_t i = 0; i < n; i++) y[i] = (float)((double)alpha * x[i] + (double)beta * y[i]);
}
