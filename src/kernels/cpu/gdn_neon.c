/* gdn_neon.c: gdn_kernel.inc for this instruction set. */
#include "kernels/cpu/simd_neon.h"

#include "kernels/cpu/gdn_kernel.inc"
