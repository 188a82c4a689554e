/* gdn_avx512.c: gdn_kernel.inc for this instruction set. */
#include "kernels/cpu/simd_avx512.h"

#include "kernels/cpu/gdn_kernel.inc"
