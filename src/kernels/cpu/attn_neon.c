/* attn_neon.c: attn.inc for NEON. */
#include "kernels/cpu/simd_neon.h"
#include "kernels/cpu/attn.inc"
