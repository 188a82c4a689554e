/* gemm_avxvnni.c: products of repacked weights with AVX-VNNI. */
#include "kernels/cpu/simd_avx2.h"

#include "kernels/cpu/gemm/gemm_avx2.h"

#define GEMM_DPBUSD _mm256_dpbusd_avx_epi32
#define GEMM_TABLE gemm_avxvnni
#include "kernels/cpu/gemm/gemm_vnni.inc"
