/* quant_iq4.c: 4-bit codes, indices of a table of 16 unevenly spaced values (quant_codebook.h).
 *
 * | type   | fields: offset name                                        | block     | value                  |
 * |--------|------------------------------------------------------------|-----------|------------------------|
 * | iq4_nl | 0 f16 d, 2 u8 qs[16]                                       | 32        | d iq4[q]               |
 * | iq4_xs | 0 f16 d, 2 u16 scales_h, 4 u8 scales_l[4], 8 u8 qs[128]    | 256 by 32 | d (s - 32) iq4[q]      |
 * | mxfp4  | 0 u8 e, 1 u8 qs[16]                                        | 32        | 2^(e - 128) mxfp4[q]   |
 *
 * In each 32, code j < 16 is the low nibble of byte j, code j + 16 the high one. iq4_xs: scale b has its
 * low 4 bits in nibble b % 2 of scales_l[b / 2], its high 2 in bits 2 b of scales_h.
 */
#include <math.h>

#include "format/quant_codebook.h"
#include "format/quant_impl.h"
#include "format/quant_search.h"

static inline void decode_nibbles(const uint8_t *qs, float d, const int8_t *values, float *dst) {
    for (int j = 0; j < 16; j++) {
        dst[j] = d * (float)values[qs[j] & 15];
        dst[j + 16] = d * (float)values[qs[j] >> 4];
    }
}

void quant_decode_iq4_nl(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += 32, b += 18, dst += 32)
        decode_nibbles(b + 2, load_f16(b), quant_values_iq4, dst);
}

static inline int iq4_xs_scale(const uint8_t *b, int sub) {
    int low = b[4 + sub / 2] >> sub % 2 * 4 & 15;
    return (low | (load_u16(b + 2) >> 2 * sub & 3) << 4) - 32;
}

void quant_decode_iq4_xs(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 136) {
        float d = load_f16(b);
        for (int sub = 0; sub < 8; sub++, dst += 32)
            decode_nibbles(b + 8 + sub * 16, d * (float)iq4_xs_scale(b, sub), quant_values_iq4,
                           dst);
    }
}

/* 2^(e - 128), exact; the two smallest are subnormal floats. */
static inline float e8m0_half(uint8_t e) {
    uint32_t bits = e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

void quant_decode_mxfp4(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += 32, b += 17, dst += 32)
        decode_nibbles(b + 1, e8m0_half(b[0]), quant_values_mxfp4, dst);
}

static const float iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
static const float iq4_bounds[15] = {-115.5f, -93.5f, -74,   -57,   -42, -28.5f, -16, -4.5f,
                                     7,       19,     31.5f, 45.5f, 61,  79,     101};
static const struct levels iq4_levels = {-127, 113, iq4_values, iq4_bounds};
/* mxfp4 has two zeros; the second entry is a duplicate that is never the nearest. */
static const float fp4_values[16] = {-12, -8, -6, -4, -3, -2, -1, 0, 0, 1, 2, 3, 4, 6, 8, 12};
static const float fp4_bounds[15] = {-10,  -7,   -5,   -3.5f, -2.5f, -1.5f, -0.5f, 0,
                                     0.5f, 1.5f, 2.5f, 3.5f,  5,     7,     10};
static const uint8_t fp4_codes[16] = {15, 14, 13, 12, 11, 10, 9, 0, 0, 1, 2, 3, 4, 5, 6, 7};
static const struct levels fp4_levels = {-12, 12, fp4_values, fp4_bounds};

static void pack_nibbles(const uint8_t *codes, uint8_t *qs) {
    for (int j = 0; j < 16; j++) qs[j] = (uint8_t)(codes[j] | codes[j + 16] << 4);
}

static const struct scan iq4_scan = {0.7f, 0.05f, 9};

bool quant_encode_iq4_nl(const float *src, void *dst, size_t n, const float *weights) {
    uint8_t *b = dst, codes[32];
    for (size_t i = 0; i < n; i += 32, b += 18) {
        float x[32], w[32], d = 0;
        if (quant_search_load(src + i, weights ? weights + i : NULL, 32, x, w) > 0)
            d = quant_search_symmetric(x, w, 32, &iq4_levels, iq4_scan).scale;
        uint16_t half = quant_search_f16(d);
        quant_search_codes(x, 32, &iq4_levels, quant_f16_to_f32(half), 0, codes);
        store_u16(b, half);
        pack_nibbles(codes, b + 2);
    }
    return true;
}

bool quant_encode_iq4_xs(const float *src, void *dst, size_t n, const float *weights) {
    uint8_t *b = dst, codes[32];
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 136) {
        float x[QUANT_SUPER], w[QUANT_SUPER];
        struct super s = {0};
        if (quant_search_load(src + i, weights ? weights + i : NULL, QUANT_SUPER, x, w) > 0)
            quant_search_super(x, w, 8, 32, &iq4_levels, iq4_scan, -32, 31, &s);
        uint32_t high = 0;
        store_u16(b, s.d);
        memset(b + 4, 0, 4);
        for (int sub = 0; sub < 8; sub++) {
            uint32_t scale = (uint32_t)(s.scale[sub] + 32);
            high |= scale >> 4 << 2 * sub;
            b[4 + sub / 2] |= (uint8_t)((scale & 15) << sub % 2 * 4);
            quant_search_codes(x + sub * 32, 32, &iq4_levels,
                               quant_f16_to_f32(s.d) * (float)s.scale[sub], 0, codes);
            pack_nibbles(codes, b + 8 + sub * 16);
        }
        store_u16(b + 2, high);
    }
    return true;
}

/* The scale is a power of two: among those that scale the largest element to between half the largest value and four
 * times it, the one with the least error. */
bool quant_encode_mxfp4(const float *src, void *dst, size_t n, const float *weights) {
    uint8_t *b = dst, codes[32];
    for (size_t i = 0; i < n; i += 32, b += 17) {
        float x[32], w[32], least = INFINITY;
        float top = quant_search_load(src + i, weights ? weights + i : NULL, 32, x, w);
        int exponent = 0, best = 0;
        if (top > 0) frexpf(top, &exponent);
        for (int e = exponent + 128 - 6; top > 0 && e <= exponent + 128 - 3; e++) {
            float error = quant_search_nearest(x, w, 32, &fp4_levels, e8m0_half((uint8_t)e)).error;
            if (error < least) {
                least = error;
                best = e;
            }
        }
        quant_search_codes(x, 32, &fp4_levels, best ? e8m0_half((uint8_t)best) : 0, 0, codes);
        for (int j = 0; j < 32; j++) codes[j] = fp4_codes[codes[j]];
        b[0] = (uint8_t)best;
        pack_nibbles(codes, b + 1);
    }
    return true;
}
