/* gemm_avx2.c: packed products with AVX2: |w| times x with w's sign, in pairs that fit 16 bits
 * (128 * 127 * 2 < 2^15), then pairs of pairs. */
#include "kernels/cpu/simd_avx2.h"

struct lookup {
    __m256i table;
};

SIMD struct lookup lookup_of(const int8_t *values) {
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)values);
    return (struct lookup){_mm256_broadcastsi128_si256(v)};
}

SIMD void lookup_64(const struct lookup *l, uint8_t *codes) {
    for (int i = 0; i < 64; i += 32) {
        __m256i *p = (__m256i *)(void *)(codes + i);
        _mm256_storeu_si256(p, _mm256_shuffle_epi8(l->table, _mm256_loadu_si256(p)));
    }
}

SIMD __m256i dot_8(__m256i acc, const int8_t *w, __m256i x) {
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)w);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(v), _mm256_sign_epi8(x, v));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

SIMD vf dot_16(const int8_t *w, int n, const int8_t *q) {
    __m256i a = _mm256_setzero_si256(), b = a;
    for (int j = 0; j < n; j++) {
        int32_t word;
        memcpy(&word, q + 4 * j, 4);
        __m256i x = _mm256_set1_epi32(word);
        a = dot_8(a, w + 64 * j, x);
        b = dot_8(b, w + 64 * j + 32, x);
    }
    return vf_from_i32(a, b);
}

#include "kernels/cpu/gemm.inc"
