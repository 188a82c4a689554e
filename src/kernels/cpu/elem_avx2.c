/* elem_avx2.c: elem.inc for AVX2. */
#include "kernels/cpu/simd_avx2.h"
#include "kernels/cpu/elem.inc"
