/* ref_gdn.c: the gated delta net, token by token. State [n_v_head, d_k, d_v] row-major. */
#include <math.h>
#include <string.h>

#include "kernels/ref/ref.h"

struct scan {
    const struct gdn_args *a;
    int64_t n_conv, nq; /* nq: elements of all query (and of all key) heads */
    float *s, *conv;    /* state in use: that of the slot, or a copy that is discarded */
    float *mixed;       /* [n_conv] after convolution, SiLU and norms */
};

static float silu(double x) { return (float)(x / (1 + exp(-x))); }

static void convolve(struct scan *c, const float *in) {
    const struct gdn_args *a = c->a;
    int32_t keep = a->d_conv - 1;
    for (int64_t i = 0; i < c->n_conv; i++) {
        double sum = a->conv_b ? a->conv_b[i] : 0.0;
        const float *w = a->conv_w + i * a->d_conv;
        for (int32_t j = 0; j < keep; j++) sum += (double)w[j] * c->conv[j * c->n_conv + i];
        c->mixed[i] = silu(sum + (double)w[keep] * in[i]);
    }
    for (int32_t j = 0; j < keep; j++)
        memcpy(c->conv + j * c->n_conv, j + 1 < keep ? c->conv + (j + 1) * c->n_conv : in,
               (size_t)c->n_conv * sizeof(float));
}

static void l2_norm(float *x, int32_t d, double eps, double factor) {
    double sum = 0;
    for (int32_t i = 0; i < d; i++) sum += (double)x[i] * x[i];
    double f = factor / sqrt(sum + eps);
    for (int32_t i = 0; i < d; i++) x[i] = (float)(x[i] * f);
}

/* One value head: decays s, corrects it towards v, reads it out. o may be NULL. */
static void delta_step(float *s, int32_t dk, int32_t dv, const float *q, const float *k,
                       const float *v, double decay, double b, float *o) {
    for (int32_t j = 0; j < dv; j++) {
        double kept = 0, read = 0;
        for (int32_t i = 0; i < dk; i++) kept += decay * s[i * dv + j] * k[i];
        double delta = b * (v[j] - kept);
        for (int32_t i = 0; i < dk; i++) {
            float x = (float)(decay * s[i * dv + j] + k[i] * delta);
            s[i * dv + j] = x;
            read += (double)x * q[i];
        }
        if (o) o[j] = (float)read;
    }
}

/* One token from its raw inputs; out and z NULL while replaying. */
static void token(struct scan *c, const float *in, const float *alpha, const float *beta,
                  const float *z, float *out) {
    const struct gdn_args *a = c->a;
    convolve(c, in);
    for (int32_t h = 0; h < a->n_k_head; h++) {
        l2_norm(c->mixed + (int64_t)h * a->d_k, a->d_k, a->eps, 1 / sqrt((double)a->d_k));
        l2_norm(c->mixed + c->nq + (int64_t)h * a->d_k, a->d_k, a->eps, 1);
    }
    for (int32_t h = 0; h < a->n_v_head; h++) {
        int64_t kh = a->is_grouped ? h / (a->n_v_head / a->n_k_head) : h % a->n_k_head;
        double x = (double)alpha[h] + a->dt_bias[h];
        double g = (x > 30 ? x : log1p(exp(x))) * a->a[h];
        float *o = out ? out + (int64_t)h * a->d_v : NULL;
        delta_step(c->s + (int64_t)h * a->d_k * a->d_v, a->d_k, a->d_v, c->mixed + kh * a->d_k,
                   c->mixed + c->nq + kh * a->d_k, c->mixed + 2 * c->nq + (int64_t)h * a->d_v,
                   exp(g), a->beta_scale * (double)ref_act(ACT_SIGMOID, beta[h]), o);
        if (!o) continue;
        ref_rms_norm(NULL, o, o, a->norm_w, 1, a->d_v, a->norm_eps);
        for (int32_t j = 0; j < a->d_v; j++) o[j] *= silu(z[(int64_t)h * a->d_v + j]);
    }
}

static void gdn_span(struct scan *c, const struct span *s, float *s_copy, float *conv_copy) {
    const struct gdn_args *a = c->a;
    const struct rec_view *rec = &a->state;
    size_t s_bytes = (size_t)a->n_v_head * a->d_k * a->d_v * sizeof(float);
    size_t conv_bytes = (size_t)(a->d_conv - 1) * (size_t)c->n_conv * sizeof(float);
    float *log = rec->log ? rec->log + (size_t)s->slot * rec->log_cap * rec->log_row : NULL;
    c->s = rec->s + (size_t)s->slot * rec->s_stride;
    c->conv = rec->conv + (size_t)s->slot * rec->conv_stride;
    for (int32_t i = 0; i < s->n_replay; i++) {
        const float *row = log + (size_t)i * rec->log_row;
        token(c, row, row + c->n_conv, row + c->n_conv + a->n_v_head, NULL, NULL);
    }
    bool defer = s->n_commit == 0;
    if (defer) {
        c->s = memcpy(s_copy, c->s, s_bytes);
        c->conv = memcpy(conv_copy, c->conv, conv_bytes);
    }
    for (int32_t i = 0; i < s->n_tok; i++) {
        int64_t t = s->row + i;
        const float *in = a->qkv + t * a->qkv_stride;
        const float *alpha = a->alpha + t * a->n_v_head, *beta = a->beta + t * a->n_v_head;
        if (defer) {
            float *row = log + (size_t)i * rec->log_row;
            memcpy(row, in, (size_t)c->n_conv * sizeof *row);
            memcpy(row + c->n_conv, alpha, (size_t)a->n_v_head * sizeof *row);
            memcpy(row + c->n_conv + a->n_v_head, beta, (size_t)a->n_v_head * sizeof *row);
        }
        token(c, in, alpha, beta, a->z + t * a->z_stride, a->out + t * a->n_v_head * a->d_v);
    }
}

void ref_gdn(struct dev *d, const struct gdn_args *a) {
    struct ref *r = (struct ref *)d;
    if (!ref_begin(r)) return;
    struct scan c = {.a = a, .nq = (int64_t)a->n_k_head * a->d_k};
    c.n_conv = 2 * c.nq + (int64_t)a->n_v_head * a->d_v;
    c.mixed = ref_take(r, (size_t)c.n_conv);
    float *conv = ref_take(r, (size_t)c.n_conv * (size_t)(a->d_conv - 1));
    float *s = ref_take(r, (size_t)a->n_v_head * a->d_k * a->d_v);
    if (!c.mixed || !conv || !s) return;
    for (int32_t n = 0; n < a->n_span; n++) gdn_span(&c, &a->spans[n], s, conv);
}
