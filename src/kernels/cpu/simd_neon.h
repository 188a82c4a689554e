/* simd_neon.h: the 16 floats of simd_avx512.h as four registers of 4. */
#ifndef CHIMERE_KERNELS_CPU_SIMD_NEON_H
#define CHIMERE_KERNELS_CPU_SIMD_NEON_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define SIMD_NAME(name) name##_neon
#define SIMD static inline __attribute__((always_inline, unused))
#define SIMD_ONE_REGISTER 0 /* whether a vf is one register */

typedef struct {
    float32x4_t v[4];
} vf;

#define VF_EACH(expr)                                                                              \
    vf r;                                                                                          \
    for (int i = 0; i < 4; i++) r.v[i] = (expr);                                                   \
    return r
SIMD vf vf_load(const float *p) { VF_EACH(vld1q_f32(p + 4 * i)); }
SIMD void vf_store(float *p, vf x) {
    for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, x.v[i]);
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
SIMD vf vf_set1(float x) { VF_EACH(vdupq_n_f32(x)); }
SIMD vf vf_zero(void) { VF_EACH(vdupq_n_f32(0)); }
SIMD vf vf_add(vf x, vf y) { VF_EACH(vaddq_f32(x.v[i], y.v[i])); }
SIMD vf vf_sub(vf x, vf y) { VF_EACH(vsubq_f32(x.v[i], y.v[i])); }
SIMD vf vf_mul(vf x, vf y) { VF_EACH(vmulq_f32(x.v[i], y.v[i])); }
SIMD vf vf_div(vf x, vf y) { VF_EACH(vdivq_f32(x.v[i], y.v[i])); }
SIMD vf vf_fma(vf x, vf y, vf z) { VF_EACH(vfmaq_f32(z.v[i], x.v[i], y.v[i])); }
/* y if x is NaN, as in the other versions */
SIMD vf vf_max(vf x, vf y) { VF_EACH(vbslq_f32(vcgtq_f32(x.v[i], y.v[i]), x.v[i], y.v[i])); }
SIMD vf vf_min(vf x, vf y) { VF_EACH(vbslq_f32(vcltq_f32(x.v[i], y.v[i]), x.v[i], y.v[i])); }
SIMD vf vf_round(vf x) { VF_EACH(vrndnq_f32(x.v[i])); }
SIMD vf vf_scale2(vf x, vf n) {
    VF_EACH(vmulq_f32(x.v[i], vreinterpretq_f32_s32(vshlq_n_s32(
                                  vaddq_s32(vcvtnq_s32_f32(n.v[i]), vdupq_n_s32(127)), 23))));
}
/* w[16][4] to taps[4]. */
SIMD void vf_transpose_4(const float *w, vf *taps) {
    for (int i = 0; i < 4; i++) {
        float32x4x4_t t = vld4q_f32(w + 16 * i);
        for (int j = 0; j < 4; j++) taps[j].v[i] = t.val[j];
    }
}
SIMD float vf_sum(vf x) {
    return vaddvq_f32(vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3])));
}
SIMD vf vf_load_f16(const void *p) {
    const uint8_t *h = p;
    VF_EACH(vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(h + 8 * i))));
}
SIMD vf vf_load_bf16(const uint8_t *p) {
    VF_EACH(vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p + 8 * i)), 16)));
}
SIMD void vf_store_f16(uint16_t *p, vf x) {
    for (int i = 0; i < 4; i++) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.v[i])));
}
SIMD float vf_half(const void *p) { /* one f16, unaligned */
    __fp16 h;
    memcpy(&h, p, 2);
    return h;
}
SIMD vf vf_from_i32(const int32x4_t *q) { VF_EACH(vcvtq_f32_s32(q[i])); }
SIMD vf vf_load_s8(const int8_t *p) {
    int8x16_t v = vld1q_s8(p);
    int16x8_t low = vmovl_s8(vget_low_s8(v)), high = vmovl_high_s8(v);
    int32x4_t q[4] = {vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low),
                      vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)};
    return vf_from_i32(q);
}

#endif
