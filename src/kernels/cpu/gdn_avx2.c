/* gdn_avx2.c: gdn_kernel.inc for this instruction set. */
#define GDN_HEAD gdn_head_avx2
#include "kernels/cpu/gdn_kernel.inc"
