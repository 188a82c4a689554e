/* gdn_avx2.c: gdn_kernel.inc for this instruction set. */
#include "kernels/cpu/simd_avx2.h"

#include "kernels/cpu/gdn_kernel.inc"
