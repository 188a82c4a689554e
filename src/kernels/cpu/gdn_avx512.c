/* gdn_avx512.c: gdn_kernel.inc for this instruction set. */
#define GDN_HEAD gdn_head_avx512
#include "kernels/cpu/gdn_kernel.inc"
