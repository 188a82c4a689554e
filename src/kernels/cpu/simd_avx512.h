/* simd_avx512.h: the vector of 16 floats that the *.inc kernels use, as one register. Every operation rounds once;
 * vf_fma is fused. simd_avx2.h and simd_neon.h define the same names. */
#ifndef CHIMERE_KERNELS_CPU_SIMD_AVX512_H
#define CHIMERE_KERNELS_CPU_SIMD_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define SIMD_NAME(name) name##_avx512
#define SIMD static inline __attribute__((always_inline, unused))
#define SIMD_ONE_REGISTER 1 /* whether a vf is one register */

typedef __m512 vf;

SIMD vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
SIMD void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
SIMD __mmask16 vf_first(int n) { return (__mmask16)((1u << n) - 1); }
SIMD vf vf_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(vf_first(n), p); }
SIMD void vf_store_n(float *p, vf a, int n) { _mm512_mask_storeu_ps(p, vf_first(n), a); }
SIMD vf vf_set1(float x) { return _mm512_set1_ps(x); }
SIMD vf vf_zero(void) { return _mm512_setzero_ps(); }
SIMD vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
SIMD vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
SIMD vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
SIMD vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
SIMD vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
SIMD vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); } /* b if either is NaN */
SIMD vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
SIMD vf vf_round(vf a) { return _mm512_roundscale_ps(a, 8); }
/* a 2^n; n an integer, |n| < 127 */
SIMD vf vf_scale2(vf a, vf n) { return _mm512_scalef_ps(a, n); }
/* w[16][4] to taps[4]. */
SIMD void vf_transpose_4(const float *w, vf *taps) {
    const __m512i even =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(2));
    vf w0 = vf_load(w), w1 = vf_load(w + 16), w2 = vf_load(w + 32), w3 = vf_load(w + 48);
    for (int i = 0; i < 2; i++) { /* taps 0 and 1, then 2 and 3, of eight channels each */
        vf x = _mm512_permutex2var_ps(w0, i ? odd : even, w1),
           y = _mm512_permutex2var_ps(w2, i ? odd : even, w3);
        taps[2 * i] = _mm512_shuffle_f32x4(x, y, 0x44);
        taps[2 * i + 1] = _mm512_shuffle_f32x4(x, y, 0xee);
    }
}
SIMD float vf_sum(vf a) { return _mm512_reduce_add_ps(a); }
SIMD float vf_top(vf a) { return _mm512_reduce_max_ps(a); }
SIMD vf vf_load_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
SIMD void vf_store_f16(uint16_t *p, vf a) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(a, 8));
}
SIMD float vf_half(const void *p) { /* one f16, unaligned */
    uint16_t h;
    __builtin_memcpy(&h, p, 2);
    return _cvtsh_ss(h);
}
SIMD vf vf_load_s8(const int8_t *p) {
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v));
}

#endif
