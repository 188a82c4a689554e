/* quant_k.c: K types: super-blocks of 256, divided into sub-blocks whose scales are quantized too.
 *
 * | type | fields: offset name                                                    | sub-block | value          |
 * |------|------------------------------------------------------------------------|-----------|----------------|
 * | q2_K | 0 u8 scales[16], 16 u8 qs[64], 80 f16 d, 82 f16 dmin                   | 16        | d s q - dmin m |
 * | q3_K | 0 u8 hmask[32], 32 u8 qs[64], 96 u8 scales[12], 108 f16 d              | 16        | d (s - 32) q   |
 * | q4_K | 0 f16 d, 2 f16 dmin, 4 u8 scales[12], 16 u8 qs[128]                    | 32        | d s q - dmin m |
 * | q5_K | 0 f16 d, 2 f16 dmin, 4 u8 scales[12], 16 u8 qh[32], 48 u8 qs[128]      | 32        | d s q - dmin m |
 * | q6_K | 0 u8 ql[128], 128 u8 qh[64], 192 i8 scales[16], 208 f16 d              | 16        | d s (q - 32)   |
 *
 * q2_K: scales[b] = s | m << 4. Element e of half h (128 elements): the two bits from bit 2 (e / 32) on of
 *   qs[32 h + e % 32].
 * q3_K: two bits as q2_K; q is those minus 4 unless bit 4 h + e / 32 of hmask[e % 32] is set. Scale b:
 *   low 4 bits in scales[b % 8] (low nibble for b < 8), high 2 from bit 2 (b / 4) on of scales[8 + b % 4].
 * q4_K, q5_K: sub-blocks 2 c and 2 c + 1 are the low and high nibbles of qs[32 c ...]; q5_K adds bit b
 *   of qh[e % 32] as bit 4. Scale and minimum of sub-block b have 6 bits each. If b < 4, they are the low
 *   6 bits of scales[b] and of scales[b + 4]. Otherwise their low 4 bits are the low and the high nibble of
 *   scales[b + 4], and their high 2 bits are the upper 2 bits of scales[b - 4] and of scales[b].
 * q6_K: element e of half h: low 4 bits in nibble e / 64 of ql[64 h + e % 64], high 2 from bit 2 (e / 32) on
 *   of qh[32 h + e % 32].
 */
#include "format/quant_impl.h"
#include "format/quant_search.h"

void quant_decode_q2_k(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 84) {
        float d = load_f16(b + 80), dmin = load_f16(b + 82);
        for (int sub = 0; sub < 16; sub++, dst += 16) {
            const uint8_t *q = b + 16 + sub / 8 * 32 + sub % 2 * 16;
            int shift = sub % 8 / 2 * 2;
            float scale = d * (float)(b[sub] & 15), min = dmin * (float)(b[sub] >> 4);
            for (int j = 0; j < 16; j++) dst[j] = scale * (float)(q[j] >> shift & 3) - min;
        }
    }
}

static inline int q3_scale(const uint8_t *s, int sub) {
    int low = sub < 8 ? s[sub] & 15 : s[sub - 8] >> 4;
    return (low | (s[8 + sub % 4] >> sub / 4 * 2 & 3) << 4) - 32;
}

void quant_decode_q3_k(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 110) {
        float d = load_f16(b + 108);
        for (int sub = 0; sub < 16; sub++, dst += 16) {
            const uint8_t *q = b + 32 + sub / 8 * 32 + sub % 2 * 16, *h = b + sub % 2 * 16;
            int shift = sub % 8 / 2 * 2, bit = sub / 2;
            float scale = d * (float)q3_scale(b + 96, sub);
            for (int j = 0; j < 16; j++)
                dst[j] = scale * (float)((q[j] >> shift & 3) - 4 + (h[j] >> bit & 1) * 4);
        }
    }
}

static inline void k4_scale_min(const uint8_t *s, int sub, int *scale, int *min) {
    if (sub < 4) {
        *scale = s[sub] & 63;
        *min = s[sub + 4] & 63;
    } else {
        *scale = (s[sub + 4] & 15) | s[sub - 4] >> 6 << 4;
        *min = s[sub + 4] >> 4 | s[sub] >> 6 << 4;
    }
}

void quant_decode_q4_k(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 144) {
        float d = load_f16(b), dmin = load_f16(b + 2);
        for (int sub = 0; sub < 8; sub++, dst += 32) {
            const uint8_t *q = b + 16 + sub / 2 * 32;
            int s, m, shift = sub % 2 * 4;
            k4_scale_min(b + 4, sub, &s, &m);
            float scale = d * (float)s, min = dmin * (float)m;
            for (int j = 0; j < 32; j++) dst[j] = scale * (float)(q[j] >> shift & 15) - min;
        }
    }
}

void quant_decode_q5_k(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 176) {
        float d = load_f16(b), dmin = load_f16(b + 2);
        for (int sub = 0; sub < 8; sub++, dst += 32) {
            const uint8_t *q = b + 48 + sub / 2 * 32, *h = b + 16;
            int s, m, shift = sub % 2 * 4;
            k4_scale_min(b + 4, sub, &s, &m);
            float scale = d * (float)s, min = dmin * (float)m;
            for (int j = 0; j < 32; j++)
                dst[j] = scale * (float)((q[j] >> shift & 15) + (h[j] >> sub & 1) * 16) - min;
        }
    }
}

void quant_decode_q6_k(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 210) {
        float d = load_f16(b + 208);
        for (int sub = 0; sub < 16; sub++, dst += 16) {
            int e = sub % 8 * 16, half = sub / 8; /* e: first element within the half */
            const uint8_t *l = b + half * 64 + e % 64, *h = b + 128 + half * 32 + e % 32;
            int low = e / 64 * 4, high = e / 32 * 2;
            float scale = d * (float)(int8_t)b[192 + sub];
            for (int j = 0; j < 16; j++)
                dst[j] = scale * (float)((l[j] >> low & 15) + (h[j] >> high & 3) * 16 - 32);
        }
    }
}

static const struct levels levels_2 = {0, 3, NULL, NULL}, levels_3 = {-4, 3, NULL, NULL},
                           levels_4 = {0, 15, NULL, NULL}, levels_5 = {0, 31, NULL, NULL},
                           levels_6 = {-32, 31, NULL, NULL};

struct block { /* a super-block being encoded */
    float x[QUANT_SUPER], w[QUANT_SUPER];
    uint8_t codes[QUANT_SUPER];
    struct super s;
};

static void fit_symmetric(struct block *k, const float *src, const float *weights, int n_sub,
                          const struct levels *l, struct scan scan, int lo, int hi) {
    int len = QUANT_SUPER / n_sub;
    memset(&k->s, 0, sizeof k->s);
    if (quant_search_load(src, weights, QUANT_SUPER, k->x, k->w) > 0)
        quant_search_super(k->x, k->w, n_sub, len, l, scan, lo, hi, &k->s);
    float d = quant_f16_to_f32(k->s.d);
    for (int b = 0; b < n_sub; b++)
        quant_search_codes(k->x + b * len, len, l, d * (float)k->s.scale[b], 0, k->codes + b * len);
}

static void fit_affine(struct block *k, const float *src, const float *weights, int n_sub,
                       const struct levels *l, int top) {
    int len = QUANT_SUPER / n_sub;
    memset(&k->s, 0, sizeof k->s);
    if (quant_search_load(src, weights, QUANT_SUPER, k->x, k->w) > 0)
        quant_search_super_affine(k->x, k->w, n_sub, len, l->hi, top, &k->s);
    float d = quant_f16_to_f32(k->s.d), dmin = quant_f16_to_f32(k->s.dmin);
    for (int b = 0; b < n_sub; b++)
        quant_search_codes(k->x + b * len, len, l, d * (float)k->s.scale[b],
                           -dmin * (float)k->s.min[b], k->codes + b * len);
}

/* Packs two bits of each code: four codes per byte, 32 apart (q2_K, q3_K). */
static void pack_pairs(const uint8_t *codes, uint8_t *qs) {
    for (int half = 0; half < 2; half++)
        for (int j = 0; j < 32; j++) {
            const uint8_t *c = codes + half * 128 + j;
            qs[half * 32 + j] =
                (uint8_t)((c[0] & 3) | (c[32] & 3) << 2 | (c[64] & 3) << 4 | (c[96] & 3) << 6);
        }
}

bool quant_encode_q2_k(const float *src, void *dst, size_t n, const float *weights) {
    struct block k;
    uint8_t *b = dst;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 84) {
        fit_affine(&k, src + i, weights ? weights + i : NULL, 16, &levels_2, 15);
        for (int sub = 0; sub < 16; sub++) b[sub] = (uint8_t)(k.s.scale[sub] | k.s.min[sub] << 4);
        pack_pairs(k.codes, b + 16);
        store_u16(b + 80, k.s.d);
        store_u16(b + 82, k.s.dmin);
    }
    return true;
}

bool quant_encode_q3_k(const float *src, void *dst, size_t n, const float *weights) {
    static const struct scan scan = {0.6f, 0.06f, 10};
    struct block k;
    uint8_t *b = dst;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 110) {
        fit_symmetric(&k, src + i, weights ? weights + i : NULL, 16, &levels_3, scan, -32, 31);
        memset(b, 0, 32);
        for (int e = 0; e < QUANT_SUPER; e++)
            b[e % 32] |= (uint8_t)((k.codes[e] >> 2) << (e / 128 * 4 + e % 128 / 32));
        pack_pairs(k.codes, b + 32);
        memset(b + 96, 0, 12);
        for (int sub = 0; sub < 16; sub++) {
            int s = k.s.scale[sub] + 32;
            b[96 + sub % 8] |= (uint8_t)((s & 15) << sub / 8 * 4);
            b[104 + sub % 4] |= (uint8_t)((s >> 4) << sub / 4 * 2);
        }
        store_u16(b + 108, k.s.d);
    }
    return true;
}

static void pack_scales_mins(const struct super *s, uint8_t *out) {
    for (int sub = 0; sub < 4; sub++) {
        int s0 = s->scale[sub], m0 = s->min[sub], s1 = s->scale[sub + 4], m1 = s->min[sub + 4];
        out[sub] = (uint8_t)(s0 | (s1 >> 4) << 6);
        out[sub + 4] = (uint8_t)(m0 | (m1 >> 4) << 6);
        out[sub + 8] = (uint8_t)((s1 & 15) | (m1 & 15) << 4);
    }
}

/* Sub-block 2 c is in the low nibbles, sub-block 2 c + 1 in the high nibbles of the same bytes. */
static void pack_nibbles(const uint8_t *codes, uint8_t *qs) {
    for (int c = 0; c < 4; c++)
        for (int j = 0; j < 32; j++)
            qs[c * 32 + j] =
                (uint8_t)((codes[c * 64 + j] & 15) | (codes[c * 64 + 32 + j] & 15) << 4);
}

bool quant_encode_q4_k(const float *src, void *dst, size_t n, const float *weights) {
    struct block k;
    uint8_t *b = dst;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 144) {
        fit_affine(&k, src + i, weights ? weights + i : NULL, 8, &levels_4, 63);
        store_u16(b, k.s.d);
        store_u16(b + 2, k.s.dmin);
        pack_scales_mins(&k.s, b + 4);
        pack_nibbles(k.codes, b + 16);
    }
    return true;
}

bool quant_encode_q5_k(const float *src, void *dst, size_t n, const float *weights) {
    struct block k;
    uint8_t *b = dst;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 176) {
        fit_affine(&k, src + i, weights ? weights + i : NULL, 8, &levels_5, 63);
        store_u16(b, k.s.d);
        store_u16(b + 2, k.s.dmin);
        pack_scales_mins(&k.s, b + 4);
        for (int j = 0; j < 32; j++) {
            int bits = 0;
            for (int sub = 0; sub < 8; sub++) bits |= k.codes[sub * 32 + j] >> 4 << sub;
            b[16 + j] = (uint8_t)bits;
        }
        pack_nibbles(k.codes, b + 48);
    }
    return true;
}

bool quant_encode_q6_k(const float *src, void *dst, size_t n, const float *weights) {
    static const struct scan scan = {0.92f, 0.015f, 8};
    struct block k;
    uint8_t *b = dst;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 210) {
        fit_symmetric(&k, src + i, weights ? weights + i : NULL, 16, &levels_6, scan, -128, 127);
        for (int half = 0; half < 2; half++) {
            const uint8_t *c = k.codes + half * 128;
            for (int j = 0; j < 64; j++)
                b[half * 64 + j] = (uint8_t)((c[j] & 15) | (c[j + 64] & 15) << 4);
            for (int j = 0; j < 32; j++)
                b[128 + half * 32 + j] = (uint8_t)(c[j] >> 4 | c[j + 32] >> 4 << 2 |
                                                   c[j + 64] >> 4 << 4 | c[j + 96] >> 4 << 6);
        }
        for (int sub = 0; sub < 16; sub++) b[192 + sub] = (uint8_t)(int8_t)k.s.scale[sub];
        store_u16(b + 208, k.s.d);
    }
    return true;
}
