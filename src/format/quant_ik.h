/* quant_ik.h: code books shared by the decoders and encoders of ik_llama.cpp's types. Constant data. */
#ifndef CHIMERE_FORMAT_QUANT_IK_H
#define CHIMERE_FORMAT_QUANT_IK_H

#include <stdint.h>

/* Each table is followed by its shifted twin, which a group's extra bit selects. */
extern const int8_t quant_ik_2[8], quant_ik_3[16], quant_ik_4[32], quant_ik_5[64];
extern const int8_t quant_ik_pairs[32][2]; /* iq2_kl */
/* 64 values, then the same plus one. */
float quant_ik_6(int code, int shifted);

/* Values 0..7 of the generator of the trellis types: whole numbers from -126 to 126. */
void quant_ik_trellis(uint32_t index, int n, int8_t *out);

/* Scales of a super-block as integers and the group's code values as int8, for products: a weight is
 * d * scale[i / group] * value[i]. d is the row's, or the block's where rows have none. iq6_k's values are
 * rounded to integers, which is how its SIMD products are defined. */
struct quant_ik_block {
    int8_t value[256];
    int8_t scale[16]; /* per 16 weights */
    float d;          /* of the block; 0 where the row's counts */
};
/* type: one of the ik types; b: the block after the row's metadata. */
void quant_ik_read(uint32_t type, const uint8_t *b, struct quant_ik_block *out);
/* The scale in front of a row. */
float quant_ik_row_scale(uint32_t type, const uint8_t *row);

#endif
