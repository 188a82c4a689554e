/* ssm_avx512.c: ssm_kernel.inc for this instruction set. */
#include "kernels/cpu/simd_avx512.h"

#include "kernels/cpu/ssm_kernel.inc"
