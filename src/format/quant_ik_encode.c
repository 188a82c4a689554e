/* quant_ik_encode.c: encoders of ik_llama.cpp's types except the trellis types (layouts: quant_ik.c).
 *
 * For each group and each of its two tables, scan scales for the best weighted fit. Choose the scale of the block (or
 * of the row) of which integer multiples come nearest to these. Choose each group's table and integer by exact error.
 * Fit the scale again to the result, and choose integers again. Always four lanes, so the result is the same on every
 * machine. A row scale is stored as an f32 that is exact in half precision, so that repacked products are lossless.
 * Trellis types would need a search over 65,536 vectors per 8 weights, minutes per gigabyte; they are not encoded
 * here. */
#include <math.h>

#include "base/mem.h"
#include "format/quant_ik.h"
#include "format/quant_impl.h"
#include "format/quant_search.h"
#include "format/v4.h"

enum {
    MAX_LEVEL = 64,
    FEW = 8,     /* levels up to which comparing with every bound is faster than cells */
    N_CELL = 128 /* of two units each, from -128 on: narrower than any two levels are apart */
};

/* In a cell there is at most one bound; below it, the nearest level is one value, above it another one. */
struct cell {
    float bound, below, above;
};

/* Values of a code book and the midpoints between them, per table. */
struct book {
    int n, n_table;
    bool is_pairs; /* a code encodes two weights: quant_ik_pairs */
    float value[2][MAX_LEVEL], bound[2][MAX_LEVEL];
    struct cell cell[2][N_CELL]; /* if n > FEW */
    float pair[2][32];           /* if is_pairs: first and second weights */
};

struct form {
    uint32_t type;
    int group;                /* weights per scale */
    int first, step, n_scale; /* integer scales: first, first + step, ... */
    bool even;                /* words of four codes have even parity (iq4_kss) */
};

struct group {              /* being encoded */
    float ideal[2], wqq[2]; /* best unrestricted scale, its curvature; per table */
    int scale, table;
};

/* ---- nearest codes ---- */

static void fill_cells(struct book *b, int table) {
    for (int i = 0, at = 0; i < N_CELL; i++) {
        float end = 2 * (float)(i + 1) - 128;
        struct cell *c = &b->cell[table][i];
        bool has_bound = at + 1 < b->n && b->bound[table][at] < end;
        *c = (struct cell){has_bound ? b->bound[table][at] : INFINITY, b->value[table][at], 0};
        at += has_bound;
        c->above = b->value[table][at];
    }
}

static void fill_book(struct book *b, uint32_t type) {
    const int8_t *values = quant_ik_4;
    *b = (struct book){.n = 16, .n_table = 2};
    switch (type) {
    case QUANT_IQ2_K:
    case QUANT_IQ2_KS:
        values = quant_ik_2;
        b->n = 4;
        break;
    case QUANT_IQ3_K:
    case QUANT_IQ3_KS:
        values = quant_ik_3;
        b->n = 8;
        break;
    case QUANT_IQ5_K:
    case QUANT_IQ5_KS:
        values = quant_ik_5;
        b->n = 32;
        break;
    case QUANT_IQ6_K:
        values = NULL;
        b->n = 64;
        break;
    case QUANT_IQ2_KL:
        b->is_pairs = true;
        b->n_table = 1;
        b->n = 8;
        values = quant_ik_3;
        break;
    default: break;
    }
    for (int t = 0; t < 2; t++) {
        for (int i = 0; i < b->n; i++)
            b->value[t][i] = values ? (float)values[b->n * t + i] : quant_ik_6(i, t);
        for (int i = 0; i + 1 < b->n; i++)
            b->bound[t][i] = (b->value[t][i] + b->value[t][i + 1]) / 2;
        if (b->n > FEW) fill_cells(b, t);
    }
    for (int i = 0; i < 32 && b->is_pairs; i++)
        for (int k = 0; k < 2; k++) b->pair[k][i] = (float)quant_ik_pairs[i][k];
}

static int nearest_code(const struct book *b, int table, float v) {
    int low = 0, high = b->n - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (v > b->bound[table][middle]) low = middle + 1;
        else high = middle;
    }
    return low;
}

V4_INLINE v4 v4_choose(v4i mask, v4 a, v4 b) { return (v4)((mask & (v4i)a) | (~mask & (v4i)b)); }

/* Costs are not negative. A pair's number replaces their lowest bits, so the minimum needs no branches. */
static int nearest_pair(const struct book *b, const float *v, const float *w) {
    v4i least = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX}, number = {0, 1, 2, 3};
    for (int k = 0; k < 32; k += 4, number += 4) {
        v4 a = v4_load(b->pair[0] + k) - v[0], c = v4_load(b->pair[1] + k) - v[1];
        v4 cost = a * a * w[0] + c * c * w[1];
        v4i bits = ((v4i)cost & ~31) | number, less = bits < least;
        least = (less & bits) | (~less & least);
    }
    int32_t best = least[0];
    for (int i = 1; i < 4; i++) best = least[i] < best ? least[i] : best;
    return best & 31;
}

/* The levels nearest to four values. */
V4_INLINE v4 nearest_few(const struct book *b, int table, v4 v, int n) {
    v4 q = (v4){0} + b->value[table][0];
    for (int k = 0; k + 1 < n; k++) {
        v4i above = v > b->bound[table][k];
        q += (v4)(above & (v4i)((v4){0} + (b->value[table][k + 1] - b->value[table][k])));
    }
    return q;
}

V4_INLINE v4 nearest_many(const struct book *b, int table, v4 v) {
    v4 at = (v + 128.0f) * 0.5f, last = (v4){0} + (float)(N_CELL - 1);
    at = v4_choose(at > 0.0f, at, (v4){0});
    at = v4_choose(at < last, at, last);
    v4 q;
    for (int i = 0; i < 4; i++) {
        const struct cell *c = &b->cell[table][(int)at[i]];
        q[i] = v[i] > c->bound ? c->above : c->below;
    }
    return q;
}

struct sums { /* over a group for x ~ q / inverse */
    float wxq, wqq;
};

V4_INLINE struct sums sums_with(const struct book *b, int table, const float *x, const float *w,
                                int n, float inverse, int n_level) {
    v4 wxq = {0}, wqq = {0};
    for (int i = 0; i < n; i += 4) {
        v4 vx = v4_load(x + i), vw = v4_load(w + i), v = vx * inverse, q;
        if (b->is_pairs) {
            float t[4] = {v[0], v[1], v[2], v[3]};
            int first = nearest_pair(b, t, w + i), second = nearest_pair(b, t + 2, w + i + 2);
            q = (v4){b->pair[0][first], b->pair[1][first], b->pair[0][second], b->pair[1][second]};
        } else {
            q = n_level > FEW ? nearest_many(b, table, v) : nearest_few(b, table, v, n_level);
        }
        v4 wq = vw * q;
        wxq += wq * vx;
        wqq += wq * q;
    }
    return (struct sums){v4_sum(wxq), v4_sum(wqq)};
}

static struct sums sums_of(const struct book *b, int table, const float *x, const float *w, int n,
                           float inverse) {
    if (b->n == 4) return sums_with(b, table, x, w, n, inverse, 4);
    if (b->n == 8) return sums_with(b, table, x, w, n, inverse, 8);
    return sums_with(b, table, x, w, n, inverse, MAX_LEVEL);
}

/* With fixed codes the error is sum w x x - wxq^2 / wqq at scale wxq / wqq, so the second term is maximized. */
static bool take_better(struct group *g, int table, float *gain, struct sums s) {
    if (!(s.wqq > 0) || !(s.wxq * s.wxq > *gain * s.wqq)) return false;
    *gain = s.wxq * s.wxq / s.wqq;
    g->ideal[table] = s.wxq / s.wqq;
    g->wqq[table] = s.wqq;
    return true;
}

static void fit_group(const struct book *b, const float *x, const float *w, int n,
                      struct group *g) {
    enum { SCAN = 8, AGAIN = 3 };
    /* of the range, to which the largest element is mapped: many levels need a finer scan */
    float first = b->n > 16 ? .8f : .55f, step = b->n > 16 ? .05f : .1f, top = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(top)) top = x[i];
    for (int table = 0; table < b->n_table; table++) {
        float gain = 0;
        g->ideal[table] = 0;
        g->wqq[table] = 1;
        if (fabsf(top) < 1e-15f) continue;
        for (int k = 0; k < 2 * SCAN; k++) {
            int turn = k / 2;
            float end = b->value[table][k % 2 ? b->n - 1 : 0] * (first + step * (float)turn);
            take_better(g, table, &gain, sums_of(b, table, x, w, n, end / top));
        }
        for (int k = 0; k < AGAIN && fabsf(g->ideal[table]) > 1e-20f; k++)
            if (!take_better(g, table, &gain, sums_of(b, table, x, w, n, 1 / g->ideal[table])))
                break;
    }
}

/* ---- integer scales ---- */

static int scale_index(const struct form *f, float ratio) {
    float k = roundf((ratio - (float)f->first) / (float)f->step);
    return !(k > 0) ? 0 : k >= (float)(f->n_scale - 1) ? f->n_scale - 1 : (int)k;
}

static float scale_value(const struct form *f, int index) {
    return (float)(f->first + f->step * index);
}

/* The half-precision d of which multiples come nearest to the ideal scales; a deviation of e costs wqq e^2. */
static float choose_d(const struct form *f, const struct group *g, int n) {
    float top = 0, best = 0, least = INFINITY;
    for (int i = 0; i < n; i++)
        if (fabsf(g[i].ideal[0]) > fabsf(top)) top = g[i].ideal[0];
    for (int side = 0; side < 2; side++)
        for (int k = -5; k <= 5; k++) {
            float end = scale_value(f, side ? f->n_scale - 1 : 0) * (1 + .02f * (float)k), cost = 0;
            float d = quant_f16_to_f32(quant_search_f16(top / end));
            for (int i = 0; i < n && d != 0; i++) {
                float s = g[i].ideal[0], miss = s - d * scale_value(f, scale_index(f, s / d));
                cost += g[i].wqq[0] * miss * miss;
            }
            if (d == 0 || !(cost < least)) continue;
            least = cost;
            best = d;
        }
    return best;
}

/* The integer nearest to the ideal scale, and the one on its other side. */
static void integers_at(const struct form *f, float ideal, float d, int k[2]) {
    float ratio = d != 0 ? ideal / d : 0;
    k[0] = scale_index(f, ratio);
    k[1] = scale_value(f, k[0]) < ratio ? k[0] + 1 : k[0] - 1;
}

/* Chooses table and integer of each group by exact error at d (`again`: the integer alone); returns the d that fits
 * the result best. */
static float settle(const struct form *f, const struct book *b, const float *x, const float *w,
                    struct group *g, int n, float d, bool again) {
    double num = 0, den = 0;
    for (int i = 0; i < n; i++, x += f->group, w += f->group) {
        float least = INFINITY;
        struct sums won = {0, 0};
        int first = again ? g[i].table : 0, last = again ? g[i].table : b->n_table - 1;
        for (int t = first; t <= last; t++) {
            int k[2];
            integers_at(f, g[i].ideal[t], d, k);
            for (int j = 0; j < 2; j++) {
                if (k[j] < 0 || k[j] >= f->n_scale) continue;
                float scale = d * scale_value(f, k[j]);
                struct sums s =
                    sums_of(b, t, x, w, f->group, fabsf(scale) > 1e-20f ? 1 / scale : 0);
                float e = scale * (scale * s.wqq - 2 * s.wxq); /* without the constant w x x */
                if (!(e < least)) continue;
                least = e;
                g[i].scale = k[j];
                g[i].table = t;
                won = s;
            }
        }
        float s = scale_value(f, g[i].scale);
        num += (double)(won.wxq * s);
        den += (double)(won.wqq * s * s);
    }
    return den > 0 ? quant_f16_to_f32(quant_search_f16((float)(num / den))) : d;
}

/* ---- codes ---- */

static int parity(uint32_t v) { return __builtin_parity(v); }

/* Makes the parity of words of four codes even; a word has weights 2 k, 2 k + 1 and these plus 16. If its sixteen
 * bits have odd parity, the code whose second best value costs least is changed. */
static void make_even(const struct book *b, int table, const float *x, const float *w, float scale,
                      uint8_t *codes) {
    float inverse = fabsf(scale) > 1e-20f ? 1 / scale : 0;
    for (int k = 0; k < 8; k++) {
        const int at[4] = {2 * k, 2 * k + 16, 2 * k + 1, 2 * k + 17};
        uint32_t word = 0;
        for (int j = 0; j < 4; j++) word |= (uint32_t)codes[at[j]] << 4 * j;
        if (!parity(word)) continue;
        float least = INFINITY;
        int best = 0, code = codes[at[0]] ^ 1;
        for (int j = 0; j < 4; j++)
            for (int c = 0; c < 16; c++) {
                if (parity((uint32_t)c ^ codes[at[j]]) == 0) continue;
                float v = x[at[j]] * inverse, old = v - b->value[table][codes[at[j]]],
                      e = v - b->value[table][c], cost = w[at[j]] * (e * e - old * old);
                if (!(cost < least)) continue;
                least = cost;
                best = j;
                code = c;
            }
        codes[at[best]] = (uint8_t)code;
    }
}

static void make_codes(const struct form *f, const struct book *b, const float *x, const float *w,
                       const struct group *g, float d, uint8_t *codes) {
    float scale = d * scale_value(f, g->scale), inverse = fabsf(scale) > 1e-20f ? 1 / scale : 0;
    for (int i = 0; i < f->group; i++) {
        float v[2] = {x[i] * inverse, i + 1 < f->group ? x[i + 1] * inverse : 0};
        if (!b->is_pairs) codes[i] = (uint8_t)nearest_code(b, g->table, v[0]);
        else if (i % 2 == 0) codes[i] = (uint8_t)nearest_pair(b, v, w + i);
    }
    if (f->even) make_even(b, g->table, x, w, scale, codes);
}

/* ---- packing: codes [256] and groups of one super-block ---- */

static void put_two_bits(uint8_t *qs, const uint8_t *c) {
    for (int i = 0; i < 256; i++)
        qs[32 * (i / 128) + i % 32] |= (uint8_t)((c[i] & 3) << 2 * (i / 32 % 4));
}

static void put_nibbles(uint8_t *qs, const uint8_t *c, int half) {
    for (int i = 0; i < 256; i++)
        qs[half * (i / (2 * half)) + i % half] |=
            (uint8_t)((c[i] & 15) << i % (2 * half) / half * 4);
}

static void put_bit(uint8_t *qh, const uint8_t *c, int bit) {
    for (int i = 0; i < 256; i++) qh[i % 32] |= (uint8_t)((c[i] >> bit & 1) << i / 32);
}

static uint32_t table_bits(const struct group *g, int n) {
    uint32_t bits = 0;
    for (int i = 0; i < n; i++) bits |= (uint32_t)g[i].table << i;
    return bits;
}

static void pack_k(uint32_t type, const struct group *g, const uint8_t *c, uint8_t *b) {
    store_u16(b + 2, table_bits(g, 16));
    for (int i = 0; i < 16; i++) {
        int s = g[i].scale, low = i / 2, shift = i % 2 * 4;
        if (type == QUANT_IQ2_K) b[4 + low] |= (uint8_t)(s << shift);
        if (type == QUANT_IQ3_K) { /* index k means 2 k - 31 */
            int minus = s < 16, magnitude = minus ? 15 - s : s - 16;
            b[6 + low] |= (uint8_t)(magnitude << shift);
            b[4 + i / 8] |= (uint8_t)(minus << i % 8);
        }
        if (type == QUANT_IQ4_K || type == QUANT_IQ5_K) {
            b[8 + low] |= (uint8_t)((s & 15) << shift);
            b[4 + i / 4] |= (uint8_t)((s >> 4) << 2 * (i % 4));
        }
        if (type == QUANT_IQ6_K) b[4 + i] = (uint8_t)(s - 127);
    }
    switch (type) {
    case QUANT_IQ2_K: put_two_bits(b + 12, c); break;
    case QUANT_IQ3_K:
        put_two_bits(b + 14, c);
        put_bit(b + 78, c, 2);
        break;
    case QUANT_IQ4_K: put_nibbles(b + 16, c, 16); break;
    case QUANT_IQ5_K:
        put_nibbles(b + 16, c, 32);
        put_bit(b + 144, c, 4);
        break;
    default:
        put_nibbles(b + 20, c, 32);
        for (int i = 0; i < 256; i++)
            b[148 + 32 * (i / 128) + i % 32] |=
                (uint8_t)((c[i] >> 4) << 4 * (i / 64 % 2) << 2 * (i / 32 % 2));
    }
}

static void pack_kss(const struct group *g, const uint8_t *c, uint8_t *b) {
    uint8_t ks[136];
    for (int i = 0; i < 8; i++, c += 32) {
        ks[i] = (uint8_t)(g[i].scale << 1 | g[i].table);
        for (int j = 0; j < 16; j++) ks[8 + 16 * i + j] = (uint8_t)(c[j] | c[j + 16] << 4);
    }
    quant_ik_kss_close(ks, b);
}

static void pack_ks(uint32_t type, const struct group *g, const uint8_t *c, uint8_t *b) {
    uint32_t extra = table_bits(g, 8);
    if (type == QUANT_IQ3_KS) extra <<= 8;
    if (type == QUANT_IQ2_KL) extra = 0;
    for (int i = 0; i < 8; i++) {
        int s = g[i].scale;
        switch (type) {
        case QUANT_IQ2_KS:
            b[2 + i / 2] |= (uint8_t)((s & 15) << i % 2 * 4);
            extra |= (uint32_t)(s >> 4) << (8 + i);
            break;
        case QUANT_IQ3_KS:
            b[2 + i % 4] |= (uint8_t)((s & 15) << i / 4 * 4);
            extra |= (uint32_t)(s >> 4) << i;
            break;
        case QUANT_IQ2_KL:
            b[2 + i % 4] |= (uint8_t)((s & 15) << i / 4 * 4);
            extra |= (uint32_t)(s >> 4) << 2 * i;
            break;
        default: b[i] = (uint8_t)(s << 1 | g[i].table);
        }
    }
    if (type != QUANT_IQ4_KS && type != QUANT_IQ5_KS) store_u16(b, extra);
    switch (type) {
    case QUANT_IQ2_KS: put_two_bits(b + 6, c); break;
    case QUANT_IQ3_KS:
        put_two_bits(b + 6, c);
        put_bit(b + 70, c, 2);
        break;
    case QUANT_IQ2_KL:
        for (int k = 0; k < 128; k++) {
            int i = k / 16, j = k % 16;
            b[6 + 16 * (i / 2) + j] |= (uint8_t)((c[2 * k] & 15) << i % 2 * 4);
            b[70 + j] |= (uint8_t)((c[2 * k] >> 4) << i);
        }
        break;
    case QUANT_IQ4_KS: put_nibbles(b + 8, c, 16); break;
    default: put_nibbles(b + 8, c, 32); put_bit(b + 136, c, 4);
    }
}

static void pack(uint32_t type, const struct group *g, const uint8_t *c, uint8_t *b) {
    if (type == QUANT_IQ4_KSS) pack_kss(g, c, b);
    else if (quant_traits(type)->head_bytes) pack_ks(type, g, c, b);
    else pack_k(type, g, c, b);
}

/* ---- rows ---- */

/* Encodes the elements that share d: a row, or a block. */
static float fit_span(const struct form *f, const struct book *b, const float *x, const float *w,
                      struct group *g, int n_group) {
    for (int i = 0; i < n_group; i++) {
        const float *at = x + i * f->group, *of = w + i * f->group;
        fit_group(b, at, of, f->group, &g[i]);
    }
    float d = choose_d(f, g, n_group);
    for (int k = 0; k < 3; k++) {
        float next = settle(f, b, x, w, g, n_group, d, k > 0);
        if (next == d || next == 0) return d;
        d = next;
    }
    settle(f, b, x, w, g, n_group, d, true);
    return d;
}

static bool encode(const struct form *f, const float *src, void *dst, size_t n,
                   const float *weights) {
    const struct quant_traits *t = quant_traits(f->type);
    size_t span = t->head_bytes ? n : QUANT_SUPER;
    struct book b;
    float *x = mem_alloc_array(2 * n, sizeof *x), *w = x ? x + n : NULL;
    struct group *g = mem_alloc_array(n / (size_t)f->group, sizeof *g);
    uint8_t *out = dst, codes[QUANT_SUPER];
    bool ok = x && g;
    fill_book(&b, f->type);
    /* the weights of each block are divided by their maximum; this hardly changes how much one block of a row counts
     * against another */
    for (size_t i = 0; ok && i < n; i += SEARCH_MAX)
        quant_search_load(src + i, weights ? weights + i : NULL, SEARCH_MAX, x + i, w + i);
    memset(dst, 0, t->head_bytes + n / QUANT_SUPER * t->block_bytes);
    out += t->head_bytes;
    for (size_t at = 0; ok && at < n; at += span) {
        struct group *first = g + at / (size_t)f->group;
        float d = fit_span(f, &b, x + at, w + at, first, (int)(span / (size_t)f->group));
        if (t->head_bytes == 4) memcpy(dst, &d, sizeof d);
        if (t->head_bytes == 2) store_u16(dst, quant_f32_to_f16(d));
        for (size_t i = at; i < at + span; i += QUANT_SUPER, out += t->block_bytes) {
            const struct group *k = g + i / (size_t)f->group;
            if (!t->head_bytes) store_u16(out, quant_f32_to_f16(d));
            for (int j = 0; j < QUANT_SUPER; j += f->group)
                make_codes(f, &b, x + i + j, w + i + j, &k[j / f->group], d, codes + j);
            pack(f->type, k, codes, out);
        }
    }
    mem_free(x);
    mem_free(g);
    return ok;
}

#define ENCODER(name, TYPE, group, first, step, n_scale, even)                                     \
    bool quant_encode_##name(const float *src, void *dst, size_t n, const float *weights) {        \
        static const struct form f = {QUANT_##TYPE, group, first, step, n_scale, even};            \
        return encode(&f, src, dst, n, weights);                                                   \
    }
ENCODER(iq2_k, IQ2_K, 16, -8, 1, 16, false)
ENCODER(iq3_k, IQ3_K, 16, -31, 2, 32, false)
ENCODER(iq4_k, IQ4_K, 16, -32, 1, 64, false)
ENCODER(iq5_k, IQ5_K, 16, -32, 1, 64, false)
ENCODER(iq6_k, IQ6_K, 16, -127, 1, 255, false)
ENCODER(iq2_ks, IQ2_KS, 32, -16, 1, 32, false)
ENCODER(iq3_ks, IQ3_KS, 32, -16, 1, 32, false)
ENCODER(iq2_kl, IQ2_KL, 32, -32, 1, 64, false)
ENCODER(iq4_ks, IQ4_KS, 32, -127, 2, 128, false)
ENCODER(iq5_ks, IQ5_KS, 32, -127, 2, 128, false)
ENCODER(iq4_kss, IQ4_KSS, 32, -127, 2, 128, true)
