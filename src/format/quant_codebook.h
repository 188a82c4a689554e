/* quant_codebook.h: the constant tables that define the IQ formats and MXFP4, shared by the codecs here
 * and by the kernels that read blocks directly. Immutable; any thread. */
#ifndef CHIMERE_FORMAT_QUANT_CODEBOOK_H
#define CHIMERE_FORMAT_QUANT_CODEBOOK_H

#include <stdint.h>

/* Grid points as bytes, first coordinate lowest: 8 magnitudes of {8, 25, 43} */
extern const uint64_t quant_grid_iq2xxs[256];
extern const uint64_t quant_grid_iq2xs[512];
extern const uint64_t quant_grid_iq2s[1024];
/* 4 magnitudes: iq3_xxs {4, 12, 20, 28, 36, 44, 52, 62}, iq3_s {1, 3, ... 15} */
extern const uint32_t quant_grid_iq3xxs[256];
extern const uint32_t quant_grid_iq3s[512];
/* 8 signed values of {-1, 0, 1}; iq1_s and iq1_m */
extern const uint64_t quant_grid_iq1[2048];

extern const int8_t quant_values_iq4[16];   /* iq4_nl, iq4_xs; ascending */
extern const int8_t quant_values_mxfp4[16]; /* twice the E2M1 values, by code */

/* Formats with 7 sign bits for 8 elements: bit 7 is set if the other seven have odd parity, so the number of negative
 * elements is always even. Bit j set: element j is negative. */
static inline uint8_t quant_signs7(uint32_t bits) {
    uint32_t b = bits & 127, p = b ^ b >> 4;
    p ^= p >> 2;
    p ^= p >> 1;
    return (uint8_t)(b | (p & 1) << 7);
}

#endif
