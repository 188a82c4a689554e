/* quant_legacy.c: blocks of 32 with one scale (q4_0, q5_0, q8_0) or a scale and an offset (q4_1, q5_1).
 * Code j < 16 is the low nibble of byte j, code j + 16 its high nibble; bit j of qh is bit 4 of
 * code j.
 *
 * | type | 0     | 2          | 4       | 6, 8      | value            |
 * |------|-------|------------|---------|-----------|------------------|
 * | q4_0 | f16 d | u8 qs[16]  |         |           | d (q - 8)        |
 * | q4_1 | f16 d | f16 m      | qs[16]  |           | d q + m          |
 * | q5_0 | f16 d | u32 qh     |         | qs[16]    | d (q - 16)       |
 * | q5_1 | f16 d | f16 m      | u32 qh  | qs[16]    | d q + m          |
 * | q8_0 | f16 d | i8 qs[32]  |         |           | d q              |
 */
#include <math.h>

#include "format/quant_impl.h"
#include "format/quant_search.h"

enum { BLOCK = 32 };

void quant_decode_q4_0(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += BLOCK, b += 18, dst += BLOCK) {
        float d = load_f16(b);
        for (int j = 0; j < 16; j++) {
            dst[j] = (float)((b[2 + j] & 15) - 8) * d;
            dst[j + 16] = (float)((b[2 + j] >> 4) - 8) * d;
        }
    }
}

void quant_decode_q4_1(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += BLOCK, b += 20, dst += BLOCK) {
        float d = load_f16(b), m = load_f16(b + 2);
        for (int j = 0; j < 16; j++) {
            dst[j] = (float)(b[4 + j] & 15) * d + m;
            dst[j + 16] = (float)(b[4 + j] >> 4) * d + m;
        }
    }
}

void quant_decode_q5_0(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += BLOCK, b += 22, dst += BLOCK) {
        float d = load_f16(b);
        uint32_t qh = load_u32(b + 2);
        for (int j = 0; j < 16; j++) {
            int lo = (b[6 + j] & 15) | (int)(qh >> j & 1) << 4;
            int hi = b[6 + j] >> 4 | (int)(qh >> (j + 16) & 1) << 4;
            dst[j] = (float)(lo - 16) * d;
            dst[j + 16] = (float)(hi - 16) * d;
        }
    }
}

void quant_decode_q5_1(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += BLOCK, b += 24, dst += BLOCK) {
        float d = load_f16(b), m = load_f16(b + 2);
        uint32_t qh = load_u32(b + 4);
        for (int j = 0; j < 16; j++) {
            int lo = (b[8 + j] & 15) | (int)(qh >> j & 1) << 4;
            int hi = b[8 + j] >> 4 | (int)(qh >> (j + 16) & 1) << 4;
            dst[j] = (float)lo * d + m;
            dst[j + 16] = (float)hi * d + m;
        }
    }
}

void quant_decode_q8_0(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += BLOCK, b += 34, dst += BLOCK) {
        float d = load_f16(b);
        for (int j = 0; j < BLOCK; j++) dst[j] = (float)(int8_t)b[2 + j] * d;
    }
}

static const struct levels levels_4 = {-8, 7, NULL, NULL}, levels_5 = {-16, 15, NULL, NULL};
static const struct levels from_zero_4 = {0, 15, NULL, NULL}, from_zero_5 = {0, 31, NULL, NULL};

static void pack_nibbles(const uint8_t *codes, uint8_t *qs) {
    for (int j = 0; j < 16; j++) qs[j] = (uint8_t)((codes[j] & 15) | (codes[j + 16] & 15) << 4);
}

static void pack_fifth_bits(const uint8_t *codes, uint8_t *qh) {
    uint32_t bits = 0;
    for (int j = 0; j < BLOCK; j++) bits |= (uint32_t)(codes[j] >> 4) << j;
    store_u32(qh, bits);
}

/* Computes the codes of one block; returns the scale as f16. */
static uint16_t fit_symmetric(const float *src, const float *weights, const struct levels *l,
                              uint8_t *codes) {
    static const struct scan scan = {0.7f, 0.05f, 9};
    float x[BLOCK], w[BLOCK], d = 0;
    if (quant_search_load(src, weights, BLOCK, x, w) > 0)
        d = quant_search_symmetric(x, w, BLOCK, l, scan).scale;
    uint16_t half = quant_search_f16(d);
    quant_search_codes(x, BLOCK, l, quant_f16_to_f32(half), 0, codes);
    return half;
}

static void fit_affine(const float *src, const float *weights, const struct levels *l,
                       uint8_t *head, uint8_t *codes) {
    float x[BLOCK], w[BLOCK];
    quant_search_load(src, weights, BLOCK, x, w);
    struct fit f = quant_search_affine(x, w, BLOCK, l->hi, false);
    uint16_t d = quant_search_f16(f.scale), m = quant_search_f16(f.min);
    quant_search_codes(x, BLOCK, l, quant_f16_to_f32(d), quant_f16_to_f32(m), codes);
    store_u16(head, d);
    store_u16(head + 2, m);
}

static const float *block_weights(const float *weights, size_t i) {
    return weights ? weights + i : NULL;
}

bool quant_encode_q4_0(const float *src, void *dst, size_t n, const float *weights) {
    uint8_t *b = dst, codes[BLOCK];
    for (size_t i = 0; i < n; i += BLOCK, b += 18) {
        store_u16(b, fit_symmetric(src + i, block_weights(weights, i), &levels_4, codes));
        pack_nibbles(codes, b + 2);
    }
    return true;
}

bool quant_encode_q4_1(const float *src, void *dst, size_t n, const float *weights) {
    uint8_t *b = dst, codes[BLOCK];
    for (size_t i = 0; i < n; i += BLOCK, b += 20) {
        fit_affine(src + i, block_weights(weights, i), &from_zero_4, b, codes);
        pack_nibbles(codes, b + 4);
    }
    return true;
}

bool quant_encode_q5_0(const float *src, void *dst, size_t n, const float *weights) {
    uint8_t *b = dst, codes[BLOCK];
    for (size_t i = 0; i < n; i += BLOCK, b += 22) {
        store_u16(b, fit_symmetric(src + i, block_weights(weights, i), &levels_5, codes));
        pack_fifth_bits(codes, b + 2);
        pack_nibbles(codes, b + 6);
    }
    return true;
}

bool quant_encode_q5_1(const float *src, void *dst, size_t n, const float *weights) {
    uint8_t *b = dst, codes[BLOCK];
    for (size_t i = 0; i < n; i += BLOCK, b += 24) {
        fit_affine(src + i, block_weights(weights, i), &from_zero_5, b, codes);
        pack_fifth_bits(codes, b + 4);
        pack_nibbles(codes, b + 8);
    }
    return true;
}

/* With 255 steps a search gains nothing: the largest element gets code 127. If the scale is subnormal in half
 * precision, rounding it down could clip that element by several codes; then it is rounded up. */
bool quant_encode_q8_0(const float *src, void *dst, size_t n, const float *weights) {
    (void)weights;
    uint8_t *b = dst;
    for (size_t i = 0; i < n; i += BLOCK, b += 34) {
        float x[BLOCK], top = 0;
        for (int j = 0; j < BLOCK; j++) {
            float v = src[i + (size_t)j];
            v = v == v ? v : 0;
            x[j] = v > 1e9f ? 1e9f : v < -1e9f ? -1e9f : v;
        }
        for (int j = 0; j < BLOCK; j++) top = fabsf(x[j]) > top ? fabsf(x[j]) : top;
        uint16_t half = quant_search_f16(top / 127);
        if (quant_f16_to_f32(half) * 127.5f < top && half < 0x7bff) half++;
        float d = quant_f16_to_f32(half), inverse = half ? 1 / d : 0;
        for (int j = 0; j < BLOCK; j++) {
            float t = x[j] * inverse;
            t = t > 127 ? 127 : t < -127 ? -127 : t;
            b[2 + j] = (uint8_t)(int8_t)(int)((t + 12582912.0f) - 12582912.0f);
        }
        store_u16(b, half);
    }
    return true;
}
