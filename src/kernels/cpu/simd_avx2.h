/* simd_avx2.h: the 16 floats of simd_avx512.h as two registers of 8. */
#ifndef CHIMERE_KERNELS_CPU_SIMD_AVX2_H
#define CHIMERE_KERNELS_CPU_SIMD_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define SIMD_NAME(name) name##_avx2
#define SIMD static inline __attribute__((always_inline, unused))
#define SIMD_ONE_REGISTER 0 /* whether a vf is one register */

typedef struct {
    __m256 a, b;
} vf;

#define VF_EACH(expr_a, expr_b) ((vf){(expr_a), (expr_b)})
SIMD vf vf_load(const float *p) { return VF_EACH(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
SIMD void vf_store(float *p, vf x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
SIMD vf vf_load_n(const float *p, int n) {
    if (n == 16) return vf_load(p);
    float lanes[16] = {0};
    memcpy(lanes, p, sizeof *p * (size_t)n);
    return vf_load(lanes);
}
SIMD void vf_store_n(float *p, vf x, int n) {
    float lanes[16];
    vf_store(n == 16 ? p : lanes, x);
    if (n < 16) memcpy(p, lanes, sizeof *p * (size_t)n);
}
SIMD vf vf_set1(float x) { return VF_EACH(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
SIMD vf vf_zero(void) { return VF_EACH(_mm256_setzero_ps(), _mm256_setzero_ps()); }
SIMD vf vf_add(vf x, vf y) { return VF_EACH(_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)); }
SIMD vf vf_sub(vf x, vf y) { return VF_EACH(_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)); }
SIMD vf vf_mul(vf x, vf y) { return VF_EACH(_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)); }
SIMD vf vf_div(vf x, vf y) { return VF_EACH(_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)); }
SIMD vf vf_fma(vf x, vf y, vf z) {
    return VF_EACH(_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b));
}
SIMD vf vf_max(vf x, vf y) { return VF_EACH(_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)); }
SIMD vf vf_min(vf x, vf y) { return VF_EACH(_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)); }
SIMD vf vf_round(vf x) { return VF_EACH(_mm256_round_ps(x.a, 8), _mm256_round_ps(x.b, 8)); }
SIMD __m256 vf_power8(__m256 n) {
    __m256i bias = _mm256_set1_epi32(127);
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), bias), 23));
}
SIMD vf vf_scale2(vf x, vf n) {
    return VF_EACH(_mm256_mul_ps(x.a, vf_power8(n.a)), _mm256_mul_ps(x.b, vf_power8(n.b)));
}
/* w[8][4] to taps[4]. */
SIMD void vf_transpose_4x8(const float *w, __m256 *taps) {
    __m256 y0 = _mm256_loadu_ps(w), y1 = _mm256_loadu_ps(w + 8); /* channels 0 1, 2 3, 4 5, 6 7 */
    __m256 y2 = _mm256_loadu_ps(w + 16), y3 = _mm256_loadu_ps(w + 24);
    __m256 a = _mm256_permute2f128_ps(y0, y2, 0x20), b = _mm256_permute2f128_ps(y0, y2, 0x31);
    __m256 c = _mm256_permute2f128_ps(y1, y3, 0x20), d = _mm256_permute2f128_ps(y1, y3, 0x31);
    __m256 ab = _mm256_unpacklo_ps(a, b), cd = _mm256_unpacklo_ps(c, d); /* taps 0 and 1 */
    taps[0] = _mm256_shuffle_ps(ab, cd, 0x44);
    taps[1] = _mm256_shuffle_ps(ab, cd, 0xee);
    ab = _mm256_unpackhi_ps(a, b), cd = _mm256_unpackhi_ps(c, d);
    taps[2] = _mm256_shuffle_ps(ab, cd, 0x44);
    taps[3] = _mm256_shuffle_ps(ab, cd, 0xee);
}
/* w[16][4] to taps[4]. */
SIMD void vf_transpose_4(const float *w, vf *taps) {
    __m256 low[4], high[4];
    vf_transpose_4x8(w, low);
    vf_transpose_4x8(w + 32, high);
    for (int i = 0; i < 4; i++) taps[i] = VF_EACH(low[i], high[i]);
}
SIMD float vf_sum(vf x) {
    __m256 s = _mm256_add_ps(x.a, x.b);
    __m128 t = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
    t = _mm_add_ps(t, _mm_movehl_ps(t, t));
    return _mm_cvtss_f32(_mm_add_ss(t, _mm_movehdup_ps(t)));
}
SIMD vf vf_load_f16(const void *p) {
    const __m128i *h = p;
    return VF_EACH(_mm256_cvtph_ps(_mm_loadu_si128(h)), _mm256_cvtph_ps(_mm_loadu_si128(h + 1)));
}
SIMD __m256 vf_bf16_8(const void *p) {
    __m128i v = _mm_loadu_si128((const __m128i *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}
SIMD vf vf_load_bf16(const uint8_t *p) { return VF_EACH(vf_bf16_8(p), vf_bf16_8(p + 16)); }
SIMD void vf_store_f16(uint16_t *p, vf x) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(x.a, 8));
    _mm_storeu_si128((__m128i *)(void *)(p + 8), _mm256_cvtps_ph(x.b, 8));
}
SIMD float vf_half(const void *p) { /* one f16, unaligned */
    uint16_t h;
    memcpy(&h, p, 2);
    return _cvtsh_ss(h);
}
SIMD vf vf_from_i32(__m256i a, __m256i b) {
    return VF_EACH(_mm256_cvtepi32_ps(a), _mm256_cvtepi32_ps(b));
}
SIMD vf vf_load_s8(const int8_t *p) {
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
    return vf_from_i32(_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)));
}

#endif
