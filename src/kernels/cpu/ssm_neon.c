/* ssm_neon.c: ssm_kernel.inc for this instruction set. */
#define SSM_KERNELS ssm_neon
#include "kernels/cpu/ssm_kernel.inc"
