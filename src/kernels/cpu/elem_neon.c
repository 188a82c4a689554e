/* elem_neon.c: elem.inc for NEON. */
#include "kernels/cpu/simd_neon.h"
#include "kernels/cpu/elem.inc"
