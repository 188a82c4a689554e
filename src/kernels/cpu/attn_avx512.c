/* attn_avx512.c: attn.inc for AVX-512. */
#include "kernels/cpu/simd_avx512.h"
#include "kernels/cpu/attn.inc"
