/* gemm_avx2.c: products of repacked weights with AVX2, using vpmaddubsw. */
#include "kernels/cpu/simd_avx2.h"

#include <float.h>
#include <math.h>

#include "kernels/cpu/gemm/gemm_avx2.h"

#define GEMM_TABLE gemm_avx2
#define RAISE_SIGNED false

/* Without this the compiler adds as a tree: it computes all products first and spills them. */
#define IN_ORDER(v) __asm__("" : "+x"(v))

SIMD __m256i product(__m256i w, const __m256i *sign, const int8_t *q) {
    int32_t v;
    memcpy(&v, q, 4);
    __m256i x = _mm256_set1_epi32(v);
    if (sign) x = _mm256_sign_epi8(x, *sign);
    return _mm256_maddubs_epi16(w, x);
}

SIMD __m256i dot_words(__m256i sum, bool has_sum, int n, int k, const __m256i *w,
                       const __m256i *sign, const int8_t *q, int mul) {
    k = k < n ? k : n;
#pragma GCC unroll 8
    for (int j = 0; j < n; j += k) {
        __m256i pairs = product(w[j], sign ? sign + j : NULL, q + 4 * j);
#pragma GCC unroll 8
        for (int i = j + 1; i < j + k; i++) {
            pairs = _mm256_add_epi16(pairs, product(w[i], sign ? sign + i : NULL, q + 4 * i));
            IN_ORDER(pairs);
        }
        pairs = _mm256_madd_epi16(pairs, _mm256_set1_epi16((short)mul));
        sum = has_sum || j ? _mm256_add_epi32(sum, pairs) : pairs;
        IN_ORDER(sum);
    }
    return sum;
}

void gemm_avx2_quantise(const float *x, int64_t n_in, uint8_t *row) {
    struct gemm_act *a = (struct gemm_act *)(void *)(row + n_in);
    const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);
    for (int64_t i = 0; i < n_in; i += 32, a++) {
        __m256 v[4];
        __m256i top = _mm256_setzero_si256(), q[4];
        for (int j = 0; j < 4; j++) {
            v[j] = _mm256_loadu_ps(x + i + 8 * j);
            top = _mm256_max_epu32(top, _mm256_and_si256(_mm256_castps_si256(v[j]), no_sign));
        }
        __m128i t = _mm_max_epu32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
        t = _mm_max_epu32(t, _mm_shuffle_epi32(t, 0x4e));
        t = _mm_max_epu32(t, _mm_shuffle_epi32(t, 0xb1));
        uint32_t bits = (uint32_t)_mm_cvtsi128_si32(t);
        float amax;
        memcpy(&amax, &bits, 4);
        float d = amax / 127.0f, inv = d >= FLT_MIN ? 1.0f / d : 0.0f;
        d = d >= FLT_MIN ? d : 0.0f;
        for (int j = 0; j < 4; j++)
            q[j] = _mm256_cvtps_epi32(_mm256_mul_ps(v[j], _mm256_set1_ps(inv)));
        if (bits >= 0x7f800000) {
            for (int j = 0; j < 4; j++) q[j] = _mm256_set1_epi32(1);
            d = NAN;
        }
        /* packs saturates. |q| <= 127 except for rounding of inv, so only -128 must be raised */
        __m256i p =
            _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        p = _mm256_permutevar8x32_epi32(p, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        p = _mm256_max_epi8(p, _mm256_set1_epi8(-127));
        _mm256_storeu_si256((__m256i *)(void *)(row + i), p);
        __m256i s = _mm256_maddubs_epi16(_mm256_set1_epi8(1), p);
        s = _mm256_madd_epi16(s, _mm256_set1_epi16(1));
        s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0x4e));
        s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0xb1));
        int32_t s0 = _mm256_extract_epi32(s, 0), s1 = _mm256_extract_epi32(s, 4);
        *a = (struct gemm_act){d, d * (float)(s0 + s1), s0 + s1, {s0, s1}};
    }
}

#include "kernels/cpu/gemm/gemm_floats.inc"

void gemm_avx2_floats(uint32_t type, const void *w, size_t row_bytes, int n_w, int64_t n_in,
                      const float *x, int64_t x_stride, int n_x, float *y, int64_t y_stride) {
    floats(type, w, row_bytes, n_w, n_in, x, x_stride, n_x, y, y_stride);
}

#include "kernels/cpu/gemm/gemm_ymm.inc"
