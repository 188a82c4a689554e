/* gdn_neon.c: gdn_kernel.inc for this instruction set. */
#define GDN_HEAD gdn_head_neon
#include "kernels/cpu/gdn_kernel.inc"
