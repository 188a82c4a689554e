/* ssm_neon.c: ssm_kernel.inc for this instruction set. */
#include "kernels/cpu/simd_neon.h"

#include "kernels/cpu/ssm_kernel.inc"
