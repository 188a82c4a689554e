/* ref_linear.c: products with matrices, row lookup, and the rounding of activations to 8 bits. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "format/quant.h"
#include "kernels/ref/ref.h"

bool ref_is_quantised(uint32_t type) {
    const struct quant_traits *t = quant_traits(type);
    return t && t->block_elements > 1;
}

float ref_quantise8(const float *x, int8_t *q) {
    uint32_t amax = 0; /* of the bit patterns: NaN > infinity > all numbers */
    for (int i = 0; i < 32; i++) {
        uint32_t u;
        memcpy(&u, &x[i], 4);
        u &= 0x7fffffff;
        if (u > amax) amax = u;
    }
    float m;
    memcpy(&m, &amax, 4);
    float d = m / 127.0f;
    if (!isfinite(m)) {
        memset(q, 1, 32);
        return NAN;
    }
    float inv = d >= FLT_MIN ? 1.0f / d : 0.0f;
    for (int i = 0; i < 32; i++) {
        float v = nearbyintf(x[i] * inv);
        q[i] = (int8_t)(v > 127 ? 127 : v < -127 ? -127 : v);
    }
    return d >= FLT_MIN ? d : 0.0f;
}

void ref_round8_row(const float *x, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i += 32) {
        int8_t q[32];
        float d = ref_quantise8(x + i, q);
        for (int j = 0; j < 32; j++) out[i + j] = d * q[j];
    }
}

const float *ref_rounded(const struct ref *r, const struct weight *w, const float *x, float *buf) {
    bool rounds = ref_is_quantised(w->type), tail = w->tail && ref_is_quantised(w->tail->type);
    if (!r->round8 || !(rounds || tail)) return x;
    memcpy(buf, x, (size_t)tensor_n_in(w) * sizeof *buf);
    if (rounds) ref_round8_row(x, buf, w->n_in);
    if (tail) ref_round8_row(x + w->n_in, buf + w->n_in, w->tail->n_in);
    return buf;
}

static void decode_row(struct ref *r, const struct weight *w, int64_t mat, int64_t i, float *row) {
    const struct quant_traits *t = quant_traits(w->type);
    if (w->layout != 0 || !t || !t->decode) {
        ref_fail(r, CHIMERE_EUNSUPPORTED, "weight of a type or layout that cannot be decoded");
        memset(row, 0, (size_t)w->n_in * sizeof *row);
        return;
    }
    const char *p = (const char *)w->data + (size_t)mat * w->mat_bytes + (size_t)i * w->row_bytes;
    t->decode(p, row, (size_t)w->n_in);
    if (w->tail) decode_row(r, w->tail, mat, i, row + w->n_in);
}

static double dot(const float *a, const float *b, int64_t n) {
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += (double)a[i] * b[i];
    return s;
}

void ref_matvec(struct ref *r, const struct weight *w, int64_t mat, const float *x, float *row,
                double scale, float *dst) {
    for (int64_t i = 0; i < w->n_out; i++) {
        decode_row(r, w, mat, i, row);
        dst[i] = (float)(scale * dot(row, x, tensor_n_in(w)));
    }
}

static void linear_one(struct ref *r, const struct linear_out *o, const float *x, int64_t x_stride,
                       int32_t n_tok, float *row, float *buf) {
    const struct weight *w = o->w;
    for (int64_t i = 0; i < w->n_out; i++) {
        decode_row(r, w, 0, i, row);
        for (int32_t t = 0; t < n_tok; t++) {
            const float *xt = ref_rounded(r, w, x + t * x_stride, buf);
            float y = (float)(o->scale * dot(row, xt, tensor_n_in(w)));
            if (o->bias) y += o->bias[i];
            float *dst = o->dst + t * o->dst_stride + i;
            *dst = o->add ? *dst + y : y;
        }
    }
}

void ref_linear(struct dev *d, const struct linear_out *o, int32_t n_o, const float *x,
                int64_t x_stride, int32_t n_tok) {
    struct ref *r = (struct ref *)d;
    if (!ref_begin(r)) return;
    size_t n_in = (size_t)tensor_n_in(o[0].w);
    float *row = ref_take(r, n_in), *buf = ref_take(r, n_in);
    if (!row || !buf) return;
    for (int32_t i = 0; i < n_o; i++) linear_one(r, &o[i], x, x_stride, n_tok, row, buf);
}

void ref_embed(struct dev *d, float *out, const struct weight *w, const int32_t *ids, int32_t n_tok,
               float scale) {
    struct ref *r = (struct ref *)d;
    int64_t n = tensor_n_in(w);
    if (!ref_begin(r)) return;
    for (int32_t t = 0; t < n_tok; t++) {
        float *dst = out + t * n;
        decode_row(r, w, 0, ids[t], dst);
        for (int64_t i = 0; i < n; i++) dst[i] *= scale;
    }
}

void ref_gather_rows(struct dev *d, float *out, const float *x, const int32_t *rows, int32_t n_row,
                     int64_t n) {
    (void)d;
    for (int32_t i = 0; i < n_row; i++)
        memcpy(out + i * n, x + rows[i] * n, (size_t)n * sizeof *out);
}
