/* quant_search.c: see quant_search.h. */
#include "format/quant_search.h"

#include <math.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "format/quant.h"
#include "format/v4.h"

V4_INLINE v4 v4_all(float f) { return (v4){f, f, f, f}; }

V4_INLINE v4 v4_clamp(v4 x, v4 lo, v4 hi) {
#if defined(__SSE2__)
    return (v4)_mm_min_ps(_mm_max_ps((__m128)x, (__m128)lo), (__m128)hi);
#else
    v4i below = x<lo, above = x> hi;
    v4i v = (below & (v4i)lo) | (~below & (v4i)x);
    return (v4)((above & (v4i)hi) | (~above & v));
#endif
}

/* Rounds to the nearest integer, ties to even, for magnitudes below 2^22: the sum has no bits for a fraction. */
V4_INLINE v4 v4_round(v4 x) { return (x + 12582912.0f) - 12582912.0f; }

/* The level nearest to t. */
V4_INLINE v4 nearest_value(v4 t, const struct levels *l, bool table) {
    if (!table) return v4_round(v4_clamp(t, v4_all(l->lo), v4_all(l->hi)));
    v4 v = v4_all(l->values[0]);
    for (int k = 0; k < 15; k++) {
        v4i above = t > v4_all(l->bounds[k]);
        v += (v4)(above & (v4i)v4_all(l->values[k + 1] - l->values[k]));
    }
    return v;
}

/* Scales too small for any format count as zero, so that inverses are finite. */
V4_INLINE float inverse_of(float scale) { return fabsf(scale) > 1e-20f ? 1 / scale : 0; }

uint16_t quant_search_f16(float d) {
    return quant_f32_to_f16(d > 65504.0f ? 65504.0f : d < -65504.0f ? -65504.0f : d);
}

float quant_search_load(const float *x, const float *weights, int n, float *out_x, float *out_w) {
    const float most = 1e9f, least = 1e-15f, most_weight = 1e30f;
    float top = 0, top_w = 0;
    for (int i = 0; i < n; i++) {
        float v = x[i] == x[i] ? x[i] : 0; /* true unless NaN */
        v = v > most ? most : v < -most ? -most : v;
        out_x[i] = v;
        top = fabsf(v) > top ? fabsf(v) : top;
    }
    if (weights)
        for (int i = 0; i < n; i++) {
            float v = weights[i] > 0 ? weights[i] : 0;
            out_w[i] = v < most_weight ? v : most_weight;
            top_w = out_w[i] > top_w ? out_w[i] : top_w;
        }
    /* The floor gives elements with weight 0 reasonable codes. */
    if (top_w > 1e-30f)
        for (int i = 0; i < n; i++) out_w[i] = out_w[i] / top_w + 1e-7f;
    else
        for (int i = 0; i < n; i++) out_w[i] = 1;
    return top < least ? 0 : top;
}

/* ---- one scale ---- */

V4_INLINE struct fit nearest_of(const float *x, const float *w, int n, const struct levels *l,
                                float scale, float inverse, bool table, bool want_error) {
    v4 wqq = {0}, wxq = {0}, error = {0};
    for (int i = 0; i < n; i += 4) {
        v4 vx = v4_load(x + i), vw = v4_load(w + i);
        v4 q = nearest_value(vx * inverse, l, table), wq = vw * q;
        wqq += wq * q;
        wxq += wq * vx;
        if (want_error) {
            v4 rest = vx - q * scale;
            error += vw * rest * rest;
        }
    }
    return (struct fit){
        .scale = scale, .wqq = v4_sum(wqq), .wxq = v4_sum(wxq), .error = v4_sum(error)};
}

static struct fit nearest(const float *x, const float *w, int n, const struct levels *l,
                          float inverse) {
    return l->values ? nearest_of(x, w, n, l, 0, inverse, true, false)
                     : nearest_of(x, w, n, l, 0, inverse, false, false);
}

struct fit quant_search_nearest(const float *x, const float *w, int n, const struct levels *l,
                                float scale) {
    float inverse = inverse_of(scale);
    return l->values ? nearest_of(x, w, n, l, scale, inverse, true, true)
                     : nearest_of(x, w, n, l, scale, inverse, false, true);
}

static float signed_top(const float *x, int n) {
    float top = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(top)) top = x[i];
    return top;
}

/* With fixed codes the error is sum w x x - wxq^2 / wqq at scale wxq / wqq, so the second term is maximized. */
V4_INLINE bool take_better(struct fit *best, float *gain, struct fit f) {
    if (!(f.wqq > 0) || !(f.wxq * f.wxq > *gain * f.wqq)) return false;
    *gain = f.wxq * f.wxq / f.wqq;
    *best = f;
    best->scale = f.wxq / f.wqq;
    return true;
}

struct fit quant_search_symmetric(const float *x, const float *w, int n, const struct levels *l,
                                  struct scan scan) {
    struct fit best = {0};
    float gain = 0, top = signed_top(x, n);
    if (fabsf(top) < 1e-15f) return best;
    for (int side = 0; side < (l->lo == -l->hi ? 1 : 2); side++)
        for (int k = 0; k < scan.count; k++) {
            float end = (side ? l->hi : l->lo) * (scan.first + scan.step * (float)k);
            take_better(&best, &gain, nearest(x, w, n, l, end / top));
        }
    for (int k = 0; k < 3 && best.scale != 0; k++)
        if (!take_better(&best, &gain, nearest(x, w, n, l, inverse_of(best.scale)))) break;
    return best;
}

/* ---- scale and minimum ---- */

V4_INLINE struct fit affine_of(const float *x, const float *w, int n, float hi, float scale,
                               float inverse, float min, bool want_error) {
    v4 wq = {0}, wqq = {0}, wxq = {0}, wx = {0}, ww = {0}, error = {0};
    for (int i = 0; i < n; i += 4) {
        v4 vx = v4_load(x + i), vw = v4_load(w + i);
        v4 q = v4_round(v4_clamp((vx - min) * inverse, v4_all(0), v4_all(hi))), t = vw * q;
        wq += t;
        wqq += t * q;
        wxq += t * vx;
        wx += vw * vx;
        ww += vw;
        if (want_error) {
            v4 rest = vx - min - q * scale;
            error += vw * rest * rest;
        }
    }
    return (struct fit){scale,       min,        v4_sum(wq), v4_sum(wqq),
                        v4_sum(wxq), v4_sum(wx), v4_sum(ww), v4_sum(error)};
}

struct fit quant_search_affine_nearest(const float *x, const float *w, int n, float hi, float scale,
                                       float min) {
    return affine_of(x, w, n, hi, scale, inverse_of(scale), min, true);
}

/* Best scale >= 0 and min <= ceiling for the codes whose sums f holds; returns the error
 * without the constant sum w x x. */
static float solve_affine(struct fit *f, float ceiling) {
    float det = f->ww * f->wqq - f->wq * f->wq;
    float scale = 0, min = f->wx / f->ww;
    if (det > 1e-6f * f->ww * f->wqq) {
        scale = (f->ww * f->wxq - f->wx * f->wq) / det;
        min = (f->wx - scale * f->wq) / f->ww;
    }
    if (min > ceiling) {
        min = ceiling;
        scale = f->wqq > 0 ? (f->wxq - min * f->wq) / f->wqq : 0;
    }
    if (scale < 0) {
        scale = 0;
        min = f->wx / f->ww;
        if (min > ceiling) min = ceiling;
    }
    f->scale = scale;
    f->min = min;
    return scale * (scale * f->wqq - 2 * f->wxq + 2 * min * f->wq) +
           min * (min * f->ww - 2 * f->wx);
}

/* Subtracts the weighted mean of x first, so that an offset much larger than the spread costs no precision. */
struct fit quant_search_affine(const float *x, const float *w, int n, float hi,
                               bool min_nonpositive) {
    float centred[SEARCH_MAX], mean_w = 0, mean_wx = 0, low = x[0], high = x[0];
    for (int i = 0; i < n; i++) {
        mean_w += w[i];
        mean_wx += w[i] * x[i];
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    float mean = mean_wx / mean_w, ceiling = min_nonpositive ? -mean : INFINITY;
    if (min_nonpositive && low > 0) low = 0;
    for (int i = 0; i < n; i++) centred[i] = x[i] - mean;
    struct fit best = {.min = (min_nonpositive && mean > 0 ? 0 : mean) - mean};
    float least = INFINITY;
    if (high - low > 1e-15f) {
        /* the ends of the range map to codes -inset and hi + width k */
        static const float insets[] = {0, 0.25f, 0.5f};
        float width = hi < 4 ? 0.25f : 0.5f;
        int n_inset = hi < 4 ? 3 : 2;
        for (int a = 0; a < n_inset; a++)
            for (int k = -3; k <= 4; k++) {
                float steps = hi + width * (float)k + insets[a], scale = (high - low) / steps;
                if (steps < 0.5f) continue;
                struct fit f = affine_of(centred, w, n, hi, 0, 1 / scale,
                                         low - mean + scale * insets[a], false);
                float error = solve_affine(&f, ceiling);
                if (error < least) {
                    least = error;
                    best = f;
                }
            }
        for (int k = 0; k < 3 && best.scale > 0; k++) {
            struct fit f = affine_of(centred, w, n, hi, 0, inverse_of(best.scale), best.min, false);
            float error = solve_affine(&f, ceiling);
            if (!(error < least)) break;
            least = error;
            best = f;
        }
    }
    struct fit out = quant_search_affine_nearest(x, w, n, hi, best.scale, best.min + mean);
    return out;
}

void quant_search_codes(const float *x, int n, const struct levels *l, float scale, float min,
                        uint8_t *codes) {
    float inverse = inverse_of(scale);
    for (int i = 0; i < n; i++) {
        float t = (x[i] - min) * inverse;
        if (!l->values) {
            t = t < l->lo ? l->lo : t > l->hi ? l->hi : t;
            codes[i] = (uint8_t)((t + 12582912.0f) - 12582912.0f - l->lo);
        } else {
            int rank = 0;
            for (int k = 0; k < 15; k++) rank += t > l->bounds[k];
            codes[i] = (uint8_t)rank;
        }
    }
}

/* ---- quantized scales ---- */

static int clamp_int(int v, int lo, int hi) { return v < lo ? lo : v > hi ? hi : v; }

static int round_ratio(float a, float b, int lo, int hi) {
    float t = b != 0 ? a / b : 0;
    return t <= (float)lo ? lo : t >= (float)hi ? hi : (int)lrintf(t);
}

/* The half-precision d of which multiples by integers lo..hi come nearest to the fitted scales; a deviation of e from
 * the scale of sub-block b costs wqq[b] e^2. */
static uint16_t choose_super(const struct fit *sub, int n_sub, int lo, int hi) {
    float top = 0, least = INFINITY;
    uint16_t best = 0;
    for (int b = 0; b < n_sub; b++)
        if (fabsf(sub[b].scale) > fabsf(top)) top = sub[b].scale;
    for (int side = lo < 0 ? 0 : 1; side < 2; side++)
        for (int k = -4; k <= 4; k++) {
            float end = (float)(side ? hi : lo) * (1 + 0.02f * (float)k);
            uint16_t half = quant_search_f16(top / end);
            float d = quant_f16_to_f32(half), cost = 0;
            for (int b = 0; b < n_sub; b++) {
                float miss = sub[b].scale - d * (float)round_ratio(sub[b].scale, d, lo, hi);
                cost += sub[b].wqq * miss * miss;
            }
            if (cost < least) {
                least = cost;
                best = half;
            }
        }
    return best;
}

/* Chooses integer scales for a given d: the rounded ideal or a neighbour, by exact error. Returns the total error and
 * accumulates the sums for fitting d again. */
static float settle(const float *x, const float *w, int n_sub, int len, const struct levels *l,
                    int lo, int hi, const struct fit *ideal, struct super *s, float *refit) {
    float d = quant_f16_to_f32(s->d), total = 0, num = 0, den = 0;
    for (int b = 0; b < n_sub; b++) {
        struct fit best = {.error = INFINITY};
        int mid = round_ratio(ideal[b].scale, d, lo, hi);
        for (int k = clamp_int(mid - 1, lo, hi); k <= clamp_int(mid + 1, lo, hi); k++) {
            struct fit f = quant_search_nearest(x + b * len, w + b * len, len, l, d * (float)k);
            if (f.error < best.error) {
                best = f;
                s->scale[b] = k;
            }
        }
        total += best.error;
        num += best.wxq * (float)s->scale[b];
        den += best.wqq * (float)(s->scale[b] * s->scale[b]);
    }
    *refit = den > 0 ? num / den : 0;
    return total;
}

void quant_search_super(const float *x, const float *w, int n_sub, int len, const struct levels *l,
                        struct scan scan, int lo, int hi, struct super *out) {
    struct fit ideal[SEARCH_MAX_SUB] = {0};
    for (int b = 0; b < n_sub; b++)
        ideal[b] = quant_search_symmetric(x + b * len, w + b * len, len, l, scan);
    memset(out, 0, sizeof *out);
    out->d = choose_super(ideal, n_sub, lo, hi);
    float refit, least = settle(x, w, n_sub, len, l, lo, hi, ideal, out, &refit);
    for (int k = 0; k < 2; k++) {
        struct super next = *out;
        next.d = quant_search_f16(refit);
        if (next.d == out->d) break;
        float error = settle(x, w, n_sub, len, l, lo, hi, ideal, &next, &refit);
        if (!(error < least)) break;
        least = error;
        *out = next;
    }
}

/* In choose_super, minima take the place of scales; a deviation of e costs ww e^2. */
static uint16_t choose_super_min(const struct fit *sub, int n_sub, int top) {
    struct fit as_scale[SEARCH_MAX_SUB];
    for (int b = 0; b < n_sub; b++)
        as_scale[b] = (struct fit){.scale = -sub[b].min, .wqq = sub[b].ww};
    return choose_super(as_scale, n_sub, 0, top);
}

struct normal { /* sums for x ~ d (scale q) - dmin min over the super-block */
    double aa, ab, bb, ax, bx;
};

static void add_normal(struct normal *m, const struct fit *f, int scale, int min) {
    m->aa += (double)scale * scale * f->wqq;
    m->ab -= (double)scale * min * f->wq;
    m->bb += (double)min * min * f->ww;
    m->ax += (double)scale * f->wxq;
    m->bx -= (double)min * f->wx;
}

static float settle_affine(const float *x, const float *w, int n_sub, int len, float hi, int top,
                           const struct fit *ideal, struct super *s, struct normal *m) {
    float d = quant_f16_to_f32(s->d), dmin = quant_f16_to_f32(s->dmin), total = 0;
    memset(m, 0, sizeof *m);
    for (int b = 0; b < n_sub; b++) {
        const float *bx = x + b * len, *bw = w + b * len;
        struct fit best = {.error = INFINITY};
        int mid = round_ratio(ideal[b].scale, d, 0, top);
        for (int k = clamp_int(mid - 1, 0, top); k <= clamp_int(mid + 1, 0, top); k++) {
            float scale = d * (float)k;
            int min = round_ratio(-ideal[b].min, dmin, 0, top);
            for (int trial = 0; trial < 2; trial++) {
                struct fit f =
                    quant_search_affine_nearest(bx, bw, len, hi, scale, -dmin * (float)min);
                if (f.error < best.error) {
                    best = f;
                    s->scale[b] = k;
                    s->min[b] = min;
                }
                int better = round_ratio((scale * f.wq - f.wx) / f.ww, dmin, 0, top);
                if (better == min) break;
                min = better;
            }
        }
        total += best.error;
        add_normal(m, &best, s->scale[b], s->min[b]);
    }
    return total;
}

static void refit_affine(const struct normal *m, struct super *s) {
    double det = m->aa * m->bb - m->ab * m->ab;
    double d, dmin;
    if (det > 1e-9 * m->aa * m->bb) {
        d = (m->ax * m->bb - m->bx * m->ab) / det;
        dmin = (m->bx * m->aa - m->ax * m->ab) / det;
    } else {
        d = m->aa > 0 ? m->ax / m->aa : 0;
        dmin = m->aa > 0 ? 0 : m->bb > 0 ? m->bx / m->bb : 0;
    }
    if (d < 0 || dmin < 0) return;
    s->d = quant_search_f16((float)d);
    s->dmin = quant_search_f16((float)dmin);
}

void quant_search_super_affine(const float *x, const float *w, int n_sub, int len, float hi,
                               int top, struct super *out) {
    struct fit ideal[SEARCH_MAX_SUB] = {0};
    for (int b = 0; b < n_sub; b++)
        ideal[b] = quant_search_affine(x + b * len, w + b * len, len, hi, true);
    memset(out, 0, sizeof *out);
    out->d = choose_super(ideal, n_sub, 0, top);
    out->dmin = choose_super_min(ideal, n_sub, top);
    struct normal m;
    float least = settle_affine(x, w, n_sub, len, hi, top, ideal, out, &m);
    for (int k = 0; k < 2; k++) {
        struct super next = *out;
        refit_affine(&m, &next);
        if (next.d == out->d && next.dmin == out->dmin) break;
        float error = settle_affine(x, w, n_sub, len, hi, top, ideal, &next, &m);
        if (!(error < least)) break;
        least = error;
        *out = next;
    }
}
