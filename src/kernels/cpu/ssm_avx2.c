/* ssm_avx2.c: ssm_kernel.inc for this instruction set. */
#include "kernels/cpu/simd_avx2.h"

#include "kernels/cpu/ssm_kernel.inc"
