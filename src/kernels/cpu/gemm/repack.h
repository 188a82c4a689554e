/* repack.h: the form in which quantized weights are multiplied on a CPU: 16 rows interleaved.
 *
 * A tile is 16 consecutive rows. Along the rows it is divided into blocks of 32 inputs, and the blocks into groups of 8
 * (types with a scale hierarchy over 256) or 4. A group contains the scales of its blocks, then per block the codes of
 * 16 x 32 weights in bit planes of 64-byte vectors. After the planes are combined, vector j (0..7) of a block has the
 * code of row r, input 4 j + i, at byte 4 r + i: four products per 32-bit lane, one lane per row, so sums never cross
 * lanes.
 *
 * The size is that of the file's format to within a few percent, and every code and scale is exact: a weight is
 * value(code) * scale * factor - min. */
#ifndef CHIMERE_KERNELS_CPU_REPACK_H
#define CHIMERE_KERNELS_CPU_REPACK_H

#include "kernels/tensor.h"

enum { PACK_ROWS = 16, PACK_BLOCK = 32, PACK_LAYOUT = 1 };

/* Codes of a block, vectors of 64 bytes:
 * 2: two vectors; bits 2 (j % 4) of vector j / 4
 * 3: as 2, then one vector whose bit j is bit 2 of code vector j
 * 4: four vectors; code vectors 2 i and 2 i + 1 are the low and high nibbles of vector i
 * 5: as 4, then one vector whose bit j is bit 4 of code vector j
 * 6: as 4, then two vectors with bits 4 and 5, placed as in 2
 * 8: eight vectors of int8 values */
enum repack_planes { PLANES_2 = 2, PLANES_3, PLANES_4, PLANES_5, PLANES_6, PLANES_8 = 8 };

/* Scales of a group, each an array [..][16 rows] of the named element; d and m are f16, one per 256 inputs.
 * Forms with a shift end the header with bits [16 rows], for X2 one such array per half of the inputs: bit b is set if
 * the shift is added to the values of block b.
 * group of 4: F16 d[4]; F16_MIN d[4], m[4]; E8 u8 exponent[4]
 * group of 8: ONE d; S8 d, s8[8]; U4 d, u4[8] meaning 2 s + 1; S8X2 d, s8[16]; U4X2 d, u4[16] alike;
 *   K6 d, m, u8 low[8] (scale | min << 4), u8 high[4] (blocks 2 i, 2 i + 1: 2 bits of scale, 2 of
 *   min each); K4X2 d, m, u8[16] (scale | min << 4). X2: one scale per 16 inputs, else per 32.
 * u4: even index in the low nibble, [index / 2][16 rows]. */
enum repack_scale {
    SCALE_F16,
    SCALE_F16_MIN,
    SCALE_E8,
    SCALE_ONE,
    SCALE_S8,
    SCALE_U4,
    SCALE_K6,
    SCALE_S8X2,
    SCALE_U4X2,
    SCALE_K4X2,
};

struct repack_form {
    enum repack_planes planes;
    enum repack_scale scale;
    bool is_signed; /* values are centred about 0; else minimums are subtracted */
    int8_t values
        [64]; /* code -> value of signed forms with planes 2, 3, 4, and of 5, 6 without offset */
    int16_t
        offset;   /* of signed forms with planes 5, 6: value = code - offset; 0: they have values */
    float factor; /* power of two that multiplies d */
    int group_blocks; /* 8 or 4 */
    int header_bytes; /* scales of a group */
    int8_t shift;     /* of signed forms with values; 0: none */
};

/* NULL: the type has no such form and is multiplied as stored in the file. */
const struct repack_form *repack_form_of(uint32_t type);
static inline int repack_block_bytes(const struct repack_form *f) { return (int)f->planes * 64; }
/* Bytes of one tile of rows of n_in. */
size_t repack_tile_bytes(const struct repack_form *f, int64_t n_in);
static inline int64_t repack_n_tile(int64_t n_out) { return (n_out + PACK_ROWS - 1) / PACK_ROWS; }
size_t repack_bytes(const struct weight *w); /* of all matrices; 0 if there is no form */
/* Repacks tiles [first, last), out of n_mat * repack_n_tile(n_out), into dst; w has layout 0. Returns
 * false if a scale is NaN or infinite. */
bool repack_tiles(const struct weight *w, int64_t first, int64_t last, uint8_t *dst);

#endif
