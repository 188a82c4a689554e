/* elem_avx512.c: elem.inc for AVX-512. */
#include "kernels/cpu/simd_avx512.h"
#include "kernels/cpu/elem.inc"
