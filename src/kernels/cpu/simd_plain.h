/* simd_plain.h: the 16 floats of simd_avx512.h with the compiler's vector extension, for processors that have none of
 * the other instruction sets. vf_fma rounds twice here. */
#ifndef CHIMERE_KERNELS_CPU_SIMD_PLAIN_H
#define CHIMERE_KERNELS_CPU_SIMD_PLAIN_H

#include <stdint.h>

#define SIMD_NAME(name) name##_plain
#define SIMD static inline __attribute__((always_inline, unused))
#define SIMD_ONE_REGISTER 0

typedef float vf __attribute__((vector_size(64), aligned(4)));
typedef int32_t vf_int __attribute__((vector_size(64), aligned(4)));

SIMD vf vf_load(const float *p) { return *(const vf *)(const void *)p; }
SIMD void vf_store(float *p, vf x) { *(vf *)(void *)p = x; }
SIMD vf vf_set1(float x) { return (vf){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }
SIMD vf vf_zero(void) { return (vf){0}; }
SIMD vf vf_add(vf x, vf y) { return x + y; }
SIMD vf vf_sub(vf x, vf y) { return x - y; }
SIMD vf vf_mul(vf x, vf y) { return x * y; }
SIMD vf vf_div(vf x, vf y) { return x / y; }
SIMD vf vf_fma(vf x, vf y, vf z) { return x * y + z; }
SIMD vf vf_pick(vf_int mask, vf x, vf y) { return (vf)((mask & (vf_int)x) | (~mask & (vf_int)y)); }
SIMD vf vf_max(vf x, vf y) { return vf_pick(x > y, x, y); } /* y if either is NaN */
SIMD vf vf_min(vf x, vf y) { return vf_pick(x < y, x, y); }
SIMD vf vf_round(vf x) { return x + vf_set1(12582912.0f) - vf_set1(12582912.0f); } /* |x| < 2^22 */
SIMD vf vf_scale2(vf x, vf n) { /* x 2^n; n an integer, |n| < 127 */
    vf_int power = (__builtin_convertvector(n, vf_int) + 127) << 23;
    return x * (vf)power;
}
SIMD float vf_sum(vf x) {
    x += __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    x += __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
    x += __builtin_shufflevector(x, x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    return x[0] + x[1];
}
/* w[16][4] to taps[4]. */
SIMD void vf_transpose_4(const float *w, vf *taps) {
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 16; i++) taps[j][i] = w[4 * i + j];
}

#endif
