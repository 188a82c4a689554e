/* ref_ssm.c: the causal convolution and the recurrences of Mamba-1 and Mamba-2, token by token. */
#include <math.h>
#include <string.h>

#include "kernels/ref/ref.h"

static double silu(double x) { return x / (1 + exp(-x)); }
static double softplus(double x) { return x > 30 ? x : log1p(exp(x)); }

static float *log_of(const struct rec_view *r, const struct span *s) {
    return r->log ? r->log + (size_t)s->slot * (size_t)r->log_cap * r->log_row : NULL;
}

/* ---- convolution ---- */

static void conv_token(const struct conv_args *a, float *kept, const float *in, float *out) {
    int32_t keep = a->d_conv - 1;
    for (int64_t i = 0; out && i < a->n_conv; i++) {
        const float *w = a->w + i * a->d_conv;
        double sum = a->b ? a->b[i] : 0.0;
        for (int32_t j = 0; j < keep; j++) sum += (double)w[j] * kept[j * a->n_conv + i];
        sum += (double)w[keep] * in[i];
        out[i] = (float)(a->silu ? silu(sum) : sum);
    }
    for (int32_t j = 0; j < keep; j++)
        memcpy(kept + j * a->n_conv, j + 1 < keep ? kept + (j + 1) * a->n_conv : in,
               (size_t)a->n_conv * sizeof *kept);
}

void ref_conv(struct dev *d, const struct conv_args *a) {
    struct ref *r = (struct ref *)d;
    size_t n_kept = (size_t)(a->d_conv - 1) * (size_t)a->n_conv;
    float *copy = ref_begin(r) ? ref_take(r, n_kept) : NULL;
    if (!copy) return;
    for (int32_t n = 0; n < a->n_span; n++) {
        const struct span *s = &a->spans[n];
        float *log = log_of(&a->state, s), *kept = a->state.conv;
        kept += (size_t)s->slot * a->state.conv_stride;
        for (int32_t i = 0; i < s->n_replay; i++)
            conv_token(a, kept, log + (size_t)i * a->state.log_row, NULL);
        if (!s->n_commit) kept = memcpy(copy, kept, n_kept * sizeof *kept);
        for (int32_t i = 0; i < s->n_tok; i++) {
            const float *in = a->x + (s->row + i) * a->x_stride;
            if (!s->n_commit)
                memcpy(log + (size_t)i * a->state.log_row, in, (size_t)a->n_conv * sizeof *in);
            conv_token(a, kept, in, a->out + (s->row + i) * a->out_stride);
        }
    }
}

/* ---- Mamba-1 ---- */

/* One token; out and z NULL while replaying. */
static void ssm_token(const struct ssm_args *a, float *s, const float *x, const float *dt,
                      const float *b, const float *c, const float *z, float *out) {
    for (int64_t i = 0; i < a->n_inner; i++) {
        double t = softplus(dt[i]), y = (double)a->d[i] * x[i];
        for (int32_t n = 0; n < a->d_state; n++) {
            float *at = s + i * a->d_state + n;
            *at = (float)(exp(t * a->a[i * a->d_state + n]) * *at + t * x[i] * b[n]);
            y += (double)*at * c[n];
        }
        if (out) out[i] = (float)(z ? y * silu(z[i]) : y);
    }
}

void ref_ssm(struct dev *d, const struct ssm_args *a) {
    struct ref *r = (struct ref *)d;
    size_t n_inner = (size_t)a->n_inner, n_state = n_inner * (size_t)a->d_state;
    float *copy = ref_begin(r) ? ref_take(r, n_state) : NULL;
    if (!copy) return;
    for (int32_t n = 0; n < a->n_span; n++) {
        const struct span *sp = &a->spans[n];
        float *log = log_of(&a->state, sp), *s = a->state.s + (size_t)sp->slot * a->state.s_stride;
        for (int32_t i = 0; i < sp->n_replay; i++) {
            const float *x = log + (size_t)i * a->state.log_row + a->log_at;
            const float *b = x + 2 * n_inner;
            ssm_token(a, s, x, x + n_inner, b, b + a->d_state, NULL, NULL);
        }
        if (!sp->n_commit) s = memcpy(copy, s, n_state * sizeof *s);
        for (int32_t i = 0; i < sp->n_tok; i++) {
            int64_t t = sp->row + i;
            const float *x = a->x + t * a->x_stride, *dt = a->dt + t * a->dt_stride;
            const float *b = a->b + t * a->bc_stride, *c = a->c + t * a->bc_stride;
            if (!sp->n_commit) {
                float *row = log + (size_t)i * a->state.log_row + a->log_at;
                memcpy(row, x, n_inner * sizeof *row);
                memcpy(row + n_inner, dt, n_inner * sizeof *row);
                memcpy(row + 2 * n_inner, b, (size_t)a->d_state * sizeof *row);
                memcpy(row + 2 * n_inner + a->d_state, c, (size_t)a->d_state * sizeof *row);
            }
            ssm_token(a, s, x, dt, b, c, a->z ? a->z + t * a->z_stride : NULL,
                      a->out + t * a->n_inner);
        }
    }
}

/* ---- Mamba-2 ---- */

static void gate_and_norm(const struct ssd_args *a, const float *z, float *y) {
    int64_t n = (int64_t)a->n_head * a->d_head, part = a->norm_w ? n / a->n_norm : n;
    for (int64_t i = 0; z && !a->norm_first && i < n; i++) y[i] = (float)(y[i] * silu(z[i]));
    for (int64_t i = 0; a->norm_w && i < n; i += part)
        ref_rms_norm(NULL, y + i, y + i, a->norm_w + i, 1, part, a->eps);
    for (int64_t i = 0; z && a->norm_first && i < n; i++) y[i] = (float)(y[i] * silu(z[i]));
}

/* One token; out NULL while replaying. */
static void ssd_token(const struct ssd_args *a, float *s, const float *xbc, const float *dt,
                      const float *z, float *out) {
    int64_t n_inner = (int64_t)a->n_head * a->d_head, n_bc = (int64_t)a->n_group * a->d_state;
    for (int32_t h = 0; h < a->n_head; h++) {
        double t = softplus((double)dt[h] + a->dt_bias[h]);
        t = t < a->dt_min ? a->dt_min : t > a->dt_max ? a->dt_max : t;
        double decay = exp(t * a->a[h]);
        const float *b = xbc + n_inner + h / (a->n_head / a->n_group) * a->d_state, *c = b + n_bc;
        for (int32_t i = 0; i < a->d_head; i++) {
            float x = xbc[(int64_t)h * a->d_head + i];
            float *at = s + ((int64_t)h * a->d_head + i) * a->d_state;
            double y = (double)a->d[h] * x;
            for (int32_t n = 0; n < a->d_state; n++) {
                at[n] = (float)(decay * at[n] + t * x * b[n]);
                y += (double)at[n] * c[n];
            }
            if (out) out[(int64_t)h * a->d_head + i] = (float)y;
        }
    }
    if (out) gate_and_norm(a, z, out);
}

void ref_ssd(struct dev *d, const struct ssd_args *a) {
    struct ref *r = (struct ref *)d;
    size_t n_inner = (size_t)a->n_head * (size_t)a->d_head;
    size_t n_xbc = n_inner + 2 * (size_t)a->n_group * (size_t)a->d_state;
    size_t n_state = n_inner * (size_t)a->d_state;
    float *copy = ref_begin(r) ? ref_take(r, n_state) : NULL;
    if (!copy) return;
    for (int32_t n = 0; n < a->n_span; n++) {
        const struct span *sp = &a->spans[n];
        float *log = log_of(&a->state, sp), *s = a->state.s + (size_t)sp->slot * a->state.s_stride;
        for (int32_t i = 0; i < sp->n_replay; i++) {
            const float *row = log + (size_t)i * a->state.log_row + a->log_at;
            ssd_token(a, s, row, row + n_xbc, NULL, NULL);
        }
        if (!sp->n_commit) s = memcpy(copy, s, n_state * sizeof *s);
        for (int32_t i = 0; i < sp->n_tok; i++) {
            int64_t t = sp->row + i;
            const float *xbc = a->xbc + t * a->xbc_stride, *dt = a->dt + t * a->dt_stride;
            if (!sp->n_commit) {
                float *row = log + (size_t)i * a->state.log_row + a->log_at;
                memcpy(row, xbc, n_xbc * sizeof *row);
                memcpy(row + n_xbc, dt, (size_t)a->n_head * sizeof *row);
            }
            ssd_token(a, s, xbc, dt, a->z ? a->z + t * a->z_stride : NULL,
                      a->out + t * (int64_t)n_inner);
        }
    }
}
