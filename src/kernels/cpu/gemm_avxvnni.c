/* gemm_avxvnni.c: packed products with AVX-VNNI, by vpdpbusd of 32 bytes. A test includes this file with
 * GEMM_DPBUSD defined, to run it where the instruction is missing. */
#include "kernels/cpu/simd_avx2.h"

#include "kernels/cpu/gemm_avx2.h"

#ifndef GEMM_DPBUSD
#define GEMM_DPBUSD _mm256_dpbusd_avx_epi32
#define GEMM_TABLE gemm_avxvnni
#endif
#define RAISE_SIGNED true

SIMD __m256i dot_words(__m256i sum, bool has_sum, int n, int k, const __m256i *w,
                       const __m256i *sign, const int8_t *q, int mul) {
    (void)has_sum, (void)k, (void)sign, (void)mul;
#pragma GCC unroll 8
    for (int j = 0; j < n; j++) {
        int32_t x;
        memcpy(&x, q + 4 * j, 4);
        sum = GEMM_DPBUSD(sum, w[j], _mm256_set1_epi32(x));
    }
    return sum;
}

#include "kernels/cpu/gemm_ymm.inc"
