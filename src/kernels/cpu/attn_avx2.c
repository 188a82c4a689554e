/* attn_avx2.c: attn.inc for AVX2. */
#include "kernels/cpu/simd_avx2.h"
#include "kernels/cpu/attn.inc"
