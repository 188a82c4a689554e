/* ref_attn.c: stores queries, keys and values; attention over pages and inside a batch. */
#include <math.h>
#include <string.h>

#include "format/quant.h"
#include "kernels/ref/ref.h"

static void hadamard(float *x, int64_t n) {
    for (int64_t h = 1; h < n; h *= 2)
        for (int64_t i = 0; i < n; i += 2 * h)
            for (int64_t j = i; j < i + h; j++) {
                float a = x[j], b = x[j + h];
                x[j] = a + b;
                x[j + h] = a - b;
            }
    float f = (float)(1 / sqrt((double)n));
    for (int64_t i = 0; i < n; i++) x[i] *= f;
}

void ref_hadamard_heads(float *x, int64_t n_head, int64_t d) {
    int64_t n = d & -d;
    for (int64_t i = 0; i < n_head * d; i += n) hadamard(x + i, n);
}

/* The first n_lead elements are not part of the norm. */
static void norm_rope(float *x, int64_t d, int32_t n_lead, const float *w, float eps,
                      const struct rope *rope, int64_t pos) {
    if (w) ref_rms_norm(NULL, x + n_lead, x + n_lead, w, 1, d - n_lead, eps);
    if (rope->mode == ROPE_NONE) return;
    int32_t half = rope->n_rot / 2;
    for (int32_t i = 0; i < half; i++) {
        /* the angle is computed in float, as in the training of the models */
        double angle = (float)pos * rope->inv_freq[i];
        double c = cos(angle) * rope->magnitude, s = sin(angle) * rope->magnitude;
        float *a = rope->mode == ROPE_NORM ? x + 2 * i : x + i;
        float *b = rope->mode == ROPE_NORM ? a + 1 : a + half;
        double x0 = *a, x1 = *b;
        *a = (float)(x0 * c - x1 * s);
        *b = (float)(x0 * s + x1 * c);
    }
}

static void *page_row(void *base, size_t page_bytes, size_t row_bytes, const struct span *s,
                      int64_t pos, int32_t head) {
    return (char *)base + (size_t)s->pages[pos / KV_PAGE] * page_bytes +
           ((size_t)head * KV_PAGE + (size_t)(pos % KV_PAGE)) * row_bytes;
}

static size_t row_bytes(struct ref *r, uint32_t type, int32_t d) {
    uint64_t n;
    if (quant_row_bytes(type, (uint64_t)d, &n)) return n;
    ref_fail(r, CHIMERE_EUNSUPPORTED, "cache type does not divide the head size");
    return 0;
}

static void store(struct ref *r, uint32_t type, void *dst, const float *x, int32_t d) {
    const struct quant_traits *t = quant_traits(type);
    if (type == QUANT_F32) memcpy(dst, x, (size_t)d * sizeof *x);
    else if (!t || !t->encode || !t->encode(x, dst, (size_t)d, NULL))
        ref_fail(r, CHIMERE_EUNSUPPORTED, "cache type cannot be written");
}

static void load(struct ref *r, uint32_t type, const void *src, float *x, int32_t d) {
    const struct quant_traits *t = quant_traits(type);
    if (type == QUANT_F32) memcpy(x, src, (size_t)d * sizeof *x);
    else if (!t || !t->decode) ref_fail(r, CHIMERE_EUNSUPPORTED, "cache type cannot be read");
    else t->decode(src, x, (size_t)d);
}

/* A head of d elements, of which n_lead are at `lead`; rest may follow them in x already. */
static void take_head(float *x, const float *rest, const float *lead, int32_t n_lead, int32_t d) {
    memmove(x + n_lead, rest, (size_t)(d - n_lead) * sizeof *x);
    if (n_lead) memcpy(x, lead, (size_t)n_lead * sizeof *x);
}

static void turn(const struct kv_view *kv, float *x, int32_t d) {
    int32_t n = tensor_rotation(kv, d);
    if (kv->rotate) ref_hadamard_heads(x, d / n, n);
}

static void store_token(struct ref *r, const struct qkv_store_args *a, const struct span *s,
                        int32_t i, float *tmp) {
    const struct kv_view *kv = &a->kv;
    int32_t t = s->row + i;
    int64_t pos = s->pos + i;
    int32_t n_lead = a->q_lead ? a->rope.n_rot : 0;
    size_t kb = row_bytes(r, kv->k_type, kv->d_k), vb = row_bytes(r, kv->v_type, kv->d_v);
    for (int32_t h = 0; h < a->n_head; h++) {
        const float *lead = a->q_lead;
        if (lead) lead += t * a->q_lead_tok_stride + h * a->q_lead_head_stride;
        take_head(tmp, a->q + t * a->q_tok_stride + h * a->q_head_stride, lead, n_lead, kv->d_k);
        norm_rope(tmp, kv->d_k, n_lead, a->q_norm, a->eps, &a->rope, pos);
        turn(kv, tmp, kv->d_k);
        memcpy(a->q_out + ((int64_t)t * a->n_head + h) * kv->d_k, tmp,
               (size_t)kv->d_k * sizeof *tmp);
    }
    for (int32_t h = 0; a->k && h < kv->n_kv_head; h++) {
        take_head(tmp, a->k + t * a->k_tok_stride + (int64_t)h * kv->d_k,
                  n_lead ? a->k_lead + t * a->k_tok_stride : NULL, n_lead, kv->d_k);
        norm_rope(tmp, kv->d_k, n_lead, a->k_norm, a->eps, &a->rope, pos);
        turn(kv, tmp, kv->d_k);
        store(r, kv->k_type, page_row(kv->k, kv->k_page_bytes, kb, s, pos, h), tmp, kv->d_k);
        if (!a->v) continue;
        memcpy(tmp, a->v + t * a->v_tok_stride + (int64_t)h * kv->d_v,
               (size_t)kv->d_v * sizeof *tmp);
        if (a->v_norm) ref_rms_norm(NULL, tmp, tmp, a->v_norm, 1, kv->d_v, a->eps);
        turn(kv, tmp, kv->d_v);
        store(r, kv->v_type, page_row(kv->v, kv->v_page_bytes, vb, s, pos, h), tmp, kv->d_v);
    }
}

void ref_qkv_store(struct dev *d, const struct qkv_store_args *a) {
    struct ref *r = (struct ref *)d;
    if (!ref_begin(r)) return;
    float *tmp = ref_take(r, (size_t)(a->kv.d_k > a->kv.d_v ? a->kv.d_k : a->kv.d_v));
    if (!tmp) return;
    for (int32_t n = 0; n < a->n_span; n++)
        for (int32_t i = 0; i < a->spans[n].n_tok; i++) store_token(r, a, &a->spans[n], i, tmp);
}

/* Converts score[0..n) to weights in place; returns 1 / sum. A sink, if there is one, is included in the sum. */
static double softmax(double *score, int64_t n, const float *sink) {
    double max = sink ? *sink : -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) max = score[i] > max ? score[i] : max;
    for (int64_t i = 0; i < n; i++) sum += score[i] = exp(score[i] - max);
    if (sink) sum += exp(*sink - max);
    return 1 / sum;
}

static double dot(const float *a, const float *b, int64_t n) {
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += (double)a[i] * b[i];
    return s;
}

static void attn_head(struct ref *r, const struct attn_args *a, const struct span *s, int32_t tok,
                      int32_t h, double *score, double *acc, float *tmp) {
    const struct kv_view *kv = &a->kv;
    int64_t t = s->row + tok, own = s->pos + tok, first = 0;
    if (a->window > 0 && own + 1 > a->window) first = own + 1 - a->window;
    int32_t g = h / (a->n_head / kv->n_kv_head);
    size_t kb = row_bytes(r, kv->k_type, kv->d_k), vb = row_bytes(r, kv->v_type, kv->d_v);
    if (kv->v_in_k) vb = kb;
    const float *q = a->q + (t * a->n_head + h) * kv->d_k;
    int64_t n_keep = a->n_keep < first ? a->n_keep : first, n = n_keep + own + 1 - first;
    for (int64_t i = 0; i < n; i++) {
        int64_t p = i < n_keep ? i : first + i - n_keep;
        load(r, kv->k_type, page_row(kv->k, kv->k_page_bytes, kb, s, p, g), tmp, kv->d_k);
        double x = a->scale * dot(q, tmp, kv->d_k);
        score[i] = a->softcap != 0 ? a->softcap * tanh(x / a->softcap) : x;
    }
    double f = softmax(score, n, a->sinks ? &a->sinks[h] : NULL);
    for (int32_t j = 0; j < kv->d_v; j++) acc[j] = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t p = i < n_keep ? i : first + i - n_keep;
        load(r, kv->v_type, page_row(kv->v, kv->v_page_bytes, vb, s, p, g), tmp, kv->d_v);
        for (int32_t j = 0; j < kv->d_v; j++) acc[j] += score[i] * tmp[j];
    }
    float *out = a->out + (t * a->n_head + h) * kv->d_v;
    for (int32_t j = 0; j < kv->d_v; j++) out[j] = (float)(acc[j] * f);
    turn(kv, out, kv->d_v);
    if (!a->gate) return;
    const float *gate = a->gate + t * a->gate_tok_stride + h * a->gate_head_stride;
    for (int32_t j = 0; j < kv->d_v; j++) out[j] = (float)(out[j] * ref_act(ACT_SIGMOID, gate[j]));
}

void ref_attn(struct dev *d, const struct attn_args *a) {
    struct ref *r = (struct ref *)d;
    if (!ref_begin(r)) return;
    int64_t most = 0;
    for (int32_t n = 0; n < a->n_span; n++) {
        int64_t end = a->spans[n].pos + a->spans[n].n_tok;
        most = end > most ? end : most;
    }
    double *score = (double *)ref_take(r, 2 * (size_t)most);
    double *acc = (double *)ref_take(r, 2 * (size_t)a->kv.d_v);
    float *tmp = ref_take(r, (size_t)(a->kv.d_k > a->kv.d_v ? a->kv.d_k : a->kv.d_v));
    if (!score || !acc || !tmp) return;
    for (int32_t n = 0; n < a->n_span; n++)
        for (int32_t i = 0; i < a->spans[n].n_tok; i++)
            for (int32_t h = 0; h < a->n_head; h++)
                attn_head(r, a, &a->spans[n], i, h, score, acc, tmp);
}

static double full_score(const struct attn_full_args *a, const float *q, const float *k, int32_t h,
                         int32_t distance) {
    if (a->window > 0 && (distance > a->window || -distance > a->window)) return -INFINITY;
    double x = a->scale * dot(q, k, a->d_head);
    int32_t n = distance > a->n_bias ? a->n_bias : distance < -a->n_bias ? -a->n_bias : distance;
    return a->bias ? x + (double)a->bias[(2 * (int64_t)a->n_bias + 1) * h + n + a->n_bias] : x;
}

void ref_attn_full(struct dev *d, const struct attn_full_args *a) {
    struct ref *r = (struct ref *)d;
    if (!ref_begin(r)) return;
    double *score = (double *)ref_take(r, 2 * (size_t)a->n_tok);
    if (!score) return;
    int64_t n_embd = (int64_t)a->n_head * a->d_head;
    for (int32_t n = 0; n < a->n_span; n++)
        for (int32_t i = 0; i < a->spans[n].n_tok; i++)
            for (int32_t h = 0; h < a->n_head; h++) {
                const struct span *s = &a->spans[n];
                int64_t at = h * (int64_t)a->d_head, base = s->row * n_embd + at;
                const float *q = a->q + base + i * n_embd;
                for (int32_t j = 0; j < s->n_tok; j++)
                    score[j] = full_score(a, q, a->k + base + j * n_embd, h, j - i);
                double f = softmax(score, s->n_tok, NULL);
                for (int32_t c = 0; c < a->d_head; c++) {
                    double sum = 0;
                    for (int32_t j = 0; j < s->n_tok; j++)
                        if (score[j] > 0) sum += score[j] * a->v[base + j * n_embd + c];
                    a->out[base + i * n_embd + c] = (float)(sum * f);
                }
            }
}
