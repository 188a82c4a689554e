/* quant_float.c: the unquantized types.
 *
 * | type | bytes | bits, high to low                                   |
 * |------|-------|-----------------------------------------------------|
 * | f32  | 4     | IEEE binary32                                       |
 * | f64  | 8     | IEEE binary64                                       |
 * | f16  | 2     | IEEE binary16: 1 sign, 5 exponent, 10 fraction      |
 * | bf16 | 2     | upper half of a binary32: 1 sign, 8 exponent, 7 ... |
 */
#include <float.h>

#include "format/quant_impl.h"

static inline float float_of(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t bits_of(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Branch-free, so that loops over it vectorize. Exponent and fraction of a half, shifted left by 13 bits, are those
 * of a float whose exponent is too small by 112. Subnormal halves would become subnormal floats, which some machines
 * flush to zero; they are computed by subtracting the implied one instead. */
static inline float half_to_float(uint16_t h) {
    int32_t rest = (h & 0x7fff) << 13, sign = (int32_t)((uint32_t)(h & 0x8000) << 16);
    float tiny = float_of((uint32_t)(rest + (113 << 23))) - float_of(113u << 23);
    int32_t is_tiny = -(rest < 1 << 23), is_special = -(rest >= 31 << 23);
    int32_t is_nan = -(rest > 31 << 23);
    int32_t wide = rest + (112 << 23) + (is_special & 112 << 23);
    wide |= is_nan & 0x00400000; /* make it a quiet NaN */
    return float_of((uint32_t)(sign | (wide & ~is_tiny) | ((int32_t)bits_of(tiny) & is_tiny)));
}

/* Subnormal results: adds a power of two whose last place has the value of the last place of the result. So the
 * addition rounds to nearest even, and the low bits of the sum are the fraction of the result. */
static inline uint16_t float_to_half(float f) {
    uint32_t bits = bits_of(f), sign = bits >> 16 & 0x8000u, mag = bits & 0x7fffffffu;
    if (mag > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (mag >> 13 & 0x1ffu));
    if (mag >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and above */
    if (mag < 0x38800000u) {                                   /* below 2^-14: subnormal */
        uint32_t sum = bits_of(float_of(mag) + 0.5f);          /* last place of 0.5: 2^-24 */
        return (uint16_t)(sign | (sum - 0x3f000000u));
    }
    uint32_t odd = mag >> 13 & 1;
    return (uint16_t)(sign | (mag - (112u << 23) + 0xfffu + odd) >> 13);
}

static inline uint16_t float_to_bf16(float f) {
    uint32_t bits = bits_of(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

float quant_f16_to_f32(uint16_t h) { return half_to_float(h); }
uint16_t quant_f32_to_f16(float f) { return float_to_half(f); }
float quant_bf16_to_f32(uint16_t h) { return float_of((uint32_t)h << 16); }
uint16_t quant_f32_to_bf16(float f) { return float_to_bf16(f); }

void quant_decode_f32(const void *src, float *dst, size_t n) { memcpy(dst, src, n * sizeof *dst); }

void quant_decode_f64(const void *src, float *dst, size_t n) {
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++) {
        double d;
        memcpy(&d, p + i * sizeof d, sizeof d);
        dst[i] = (float)d;
    }
}

void quant_decode_f16(const void *src, float *dst, size_t n) {
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, p + i * 2, 2);
        dst[i] = half_to_float(h);
    }
}

void quant_decode_bf16(const void *src, float *dst, size_t n) {
    const uint8_t *p = src;
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, p + i * 2, 2);
        dst[i] = float_of((uint32_t)h << 16);
    }
}

bool quant_encode_f32(const float *src, void *dst, size_t n, const float *weights) {
    (void)weights;
    memcpy(dst, src, n * sizeof *src);
    return true;
}

bool quant_encode_f64(const float *src, void *dst, size_t n, const float *weights) {
    (void)weights;
    uint8_t *p = dst;
    for (size_t i = 0; i < n; i++) {
        double d = src[i];
        memcpy(p + i * sizeof d, &d, sizeof d);
    }
    return true;
}

/* Finite values beyond a half's range become the largest half, not infinity: one outlier must not make
 * every product with its row infinite. */
bool quant_encode_f16(const float *src, void *dst, size_t n, const float *weights) {
    (void)weights;
    uint8_t *p = dst;
    for (size_t i = 0; i < n; i++) {
        float f = src[i];
        if (f >= 65520.0f && f <= FLT_MAX) f = 65504.0f;
        if (f <= -65520.0f && f >= -FLT_MAX) f = -65504.0f;
        uint16_t h = float_to_half(f);
        memcpy(p + i * 2, &h, 2);
    }
    return true;
}

bool quant_encode_bf16(const float *src, void *dst, size_t n, const float *weights) {
    (void)weights;
    uint8_t *p = dst;
    for (size_t i = 0; i < n; i++) {
        uint16_t h = float_to_bf16(src[i]);
        memcpy(p + i * 2, &h, 2);
    }
    return true;
}
