/* quant_ik.h: code books shared by the decoders and encoders of ik_llama.cpp's types. Constant data. */
#ifndef CHIMERE_FORMAT_QUANT_IK_H
#define CHIMERE_FORMAT_QUANT_IK_H

#include <stdint.h>

/* Each table is followed by its shifted version, which a group's extra bit selects. */
extern const int8_t quant_ik_2[8], quant_ik_3[16], quant_ik_4[32], quant_ik_5[64];
extern const int8_t quant_ik_pairs[32][2]; /* iq2_kl */
/* 64 values, then the same plus one. */
float quant_ik_6(int code, int shifted);
int quant_ik_6_integer(int code, int shifted); /* rounded, ties away from 0 */

/* Values 0 to 7 of the generator of the trellis types: integers from -126 to 126. */
void quant_ik_trellis(uint32_t index, int n, int8_t *out);

/* The indexes of a block of a trellis type, without the generator's offset: 64 of iq4_kt, for 4 values each, 32 of the
 * others, for 8 values. */
enum { QUANT_IK_TRELLIS_OFFSET = 4096 };
void quant_ik_trellis_indexes(uint32_t type, const uint8_t *b, uint16_t out[64]);

/* A super-block for products: integer scales, and values of its codes as int8. A weight is d * scale[i / group] *
 * value[i]; d is the row's, or the block's if rows have none. Values of iq6_k are rounded to integers, as its SIMD
 * products are defined in ik_llama.cpp. */
struct quant_ik_block {
    int8_t value[256];
    int8_t scale[16]; /* per 16 weights */
    float d;          /* of the block; 0 if the row has the scale */
};
/* type: one of the ik types; b: the block after the row's metadata. */
void quant_ik_read(uint32_t type, const uint8_t *b, struct quant_ik_block *out);
/* A block of iq4_kss as one of iq4_ks, with the same values, and back. In each u16 of codes, an even number of bits must
 * be set. */
void quant_ik_kss_open(const uint8_t kss[128], uint8_t ks[136]);
void quant_ik_kss_close(const uint8_t ks[136], uint8_t kss[128]);
/* The scale before the blocks of a row. */
float quant_ik_row_scale(uint32_t type, const uint8_t *row);

#endif
