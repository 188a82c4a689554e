/* ssm_avx512.c: ssm_kernel.inc for this instruction set. */
#define SSM_KERNELS ssm_avx512
#include "kernels/cpu/ssm_kernel.inc"
