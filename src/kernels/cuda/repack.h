/* repack.h: how the device stores a matrix: as planes of fields instead of rows of blocks.
 *
 * A unit is 32 elements of a row, the work of one lane. Each field of all units, of all rows, of all matrices of a
 * stack, forms one plane, so that neighbouring lanes read neighbouring bytes, aligned. Repacking is lossless. If
 * sub-scales are unpacked from 6 or 4 bits, the size grows by 2 to 4 %. Element 4 i + b of a unit is byte b of word i
 * of its 8 words of quants ("codes").
 *
 * | form   | codes                    | more                      | sub           | top        | value            |
 * |--------|--------------------------|---------------------------|---------------|------------|------------------|
 * | F32, F16, BF16: unquantized rows, as in the file                                                               |
 * | I8     | 32 B codes               |                           |               | f16        | d q       (Q8_0) |
 * | I8X    | 32 B codes               |                           |               | 2 f32      | d_half q  (IQ1_S, IQ1_M, TQ1_0, TQ2_0) |
 * | N4     | 16 B nibbles             |                           |               | f16        | d (q - 8) (Q4_0) |
 * | N4M    | 16 B                     |                           |               | 2 f16      | d q + m   (Q4_1) |
 * | N5     | 16 B fives               | 4 B lower 2 bits          |               | f16        | d (q - 16) (Q5_0) |
 * | N5M    | 16 B                     | 4 B                       |               | 2 f16      | d q + m   (Q5_1) |
 * | N4K    | 16 B                     |                           | u8 s, u8 m    | 2 f16 / 8  | d s q - dmin m (Q4_K) |
 * | N5K    | 16 B                     | 4 B                       | u8 s, u8 m    | 2 f16 / 8  | the same  (Q5_K) |
 * | N6K    | 16 B sixes               | 8 B lower 4 bits          | 2 i8          | f16 / 8    | d s (q - 32) (Q6_K) |
 * | N3K    | 8 B pairs                | 4 B third bits            | 2 i8          | f16 / 8    | d s (q - 4) (Q3_K) |
 * | N2K    | 8 B pairs                |                           | 2 B s, m << 4 | 2 f16 / 8  | d s q - dmin m (Q2_K) |
 * | T4     | 16 B                     |                           |               | f16        | d iq4[q]  (IQ4_NL) |
 * | T4K    | 16 B                     |                           | i8            | f16 / 8    | d s iq4[q] (IQ4_XS) |
 * | TFP4   | 16 B                     |                           | u8 e          |            | 2^(e - 128) fp4[q] (MXFP4) |
 * | O4     | 16 B nibbles             |                           | u8 s          | f16 / 8    | d (2 s + 1) (2 q - 15) (IQ3_S, wide) |
 * | G3S    | 8 B grid index           | 4 B signs                 | u8 qh, u8 s   | f16 / 8    | d (2 s + 1) g (IQ3_S) |
 * | G3XXS  | 8 B                      | 4 B signs and scale       |               | f16 / 8    | d (s + 1/2)/2 g (IQ3_XXS) |
 * | G2XXS  | 4 B                      | 4 B signs and scale       |               | f16 / 8    | d (s + 1/2)/4 g (IQ2_XXS) |
 * | G2XS   | 8 B index and signs      |                           | u8 2 nibbles  | f16 / 8    | the same  (IQ2_XS) |
 * | G2S    | 4 B                      | 4 B signs                 | u8 qh, u8 s s | f16 / 8    | the same  (IQ2_S) |
 * | X6K    | 16 B sixes               | 8 B                       | 2 i8          | f16, shifts / 8 | d s cubic(q) (IQ6_K) |
 * | X5K    | 16 B fives               | 4 B                       | 2 u8 s, shift | f32 / 8    | the same  (IQ5_K) |
 * | X5S    | 16 B                     | 4 B                       | u8 s, shift   | f32 / 8    | the same  (IQ5_KS) |
 * | X4K    | 16 B table indexes       |                           | 2 u8 s, shift | f32 / 8    | d s table[q] (IQ4_K) |
 * | X4S    | 16 B                     |                           | u8 s, shift   | f32 / 8    | the same  (IQ4_KS, IQ4_KSS) |
 * | X3K    | 8 B lower 2 bits         | 4 B third bits            | 2 u8 s, shift | f32 / 8    | the same  (IQ3_K) |
 * | X3S    | 8 B                      | 4 B                       | u8 s, shift   | f32 / 8    | the same  (IQ3_KS, IQ2_KL) |
 * | X2K    | 8 B                      |                           | 2 u8 s, shift | f32 / 8    | the same  (IQ2_K) |
 * | X2S    | 8 B                      |                           | u8 s, shift   | f32 / 8    | the same  (IQ2_KS) |
 * | K4     | 8 u16 indexes            |                           | i8            | f32 / 8    | d s trellis (IQ4_KT) |
 * | K3     | 4 u16                    | 4 B signs                 | i8            | f32 / 8    | the same, of magnitudes (IQ3_KT) |
 * | K2     | 4 u16                    |                           | i8            | f32 / 8    | the same  (IQ2_KT, IQ1_KT) |
 *
 * Nibbles: byte j holds code j in its low half and code j + 16 in its high half. Fives, sixes: byte j holds code j in
 * its low 5 or 6 bits and the upper 3 or 2 bits of code j + 16 above it. The lower bits of code 16 + 4 i + b are bits 2
 * i and 2 i + 1 of byte b (fives), or nibble i % 2 of byte 4 (i / 2) + b (sixes). Third bits: bit i of byte b belongs
 * to element 4 i + b. Pairs: words 0 to 3 are in the first 4 bytes: bits 2 i and 2 i + 1 of byte b belong to element 4
 * i + b; words 4 to 7 are in the next 4 bytes in the same way.
 *
 * Table indexes: nibble n of word j belongs to element 8 j + n, so that a word selects 8 bytes of a table as it is.
 * Indexes of 3 and 2 bits: bits 2 (j % 2) and 1 above of nibble n of word j / 2; the third bit is bit j of nibble n of
 * `more`. In sub, bit 0 selects the shifted table and the rest is the scale (table_scale). The shifts of X6K: bits 2 k
 * and 2 k + 1 of the upper half of top belong to unit k of its 8. Signs of K3: bit e belongs to element e. */
#ifndef CHIMERE_KERNELS_CUDA_REPACK_H
#define CHIMERE_KERNELS_CUDA_REPACK_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "kernels/tensor.h"

enum plane_form {
    FORM_NONE,
    FORM_F32,
    FORM_F16,
    FORM_BF16,
    FORM_I8,
    FORM_I8X,
    FORM_N4,
    FORM_N4M,
    FORM_N5,
    FORM_N5M,
    FORM_N4K,
    FORM_N5K,
    FORM_N6K,
    FORM_N3K,
    FORM_N2K,
    FORM_T4,
    FORM_T4K,
    FORM_TFP4,
    FORM_O4,
    FORM_G3S,
    FORM_G3XXS,
    FORM_G2XXS,
    FORM_G2XS,
    FORM_G2S,
    FORM_X6K,
    FORM_X5K,
    FORM_X5S,
    FORM_X4K,
    FORM_X4S,
    FORM_X3K,
    FORM_X3S,
    FORM_X2K,
    FORM_X2S,
    FORM_K4,
    FORM_K3,
    FORM_K2,
    N_FORM
};

struct plane_sizes { /* bytes per unit of each plane; top_units: units per top field */
    uint8_t codes, more, sub, top, top_units;
};

/* Per form: bytes per unit of codes, more, sub and top; units that share a top field; a type stored in it. */
/* clang-format off */
#define PLANE_FORMS(X) \
    X(FORM_F32, 128, 0, 0, 0, 1, QUANT_F32) \
    X(FORM_F16, 64, 0, 0, 0, 1, QUANT_F16) \
    X(FORM_BF16, 64, 0, 0, 0, 1, QUANT_BF16) \
    X(FORM_I8, 32, 0, 0, 2, 1, QUANT_Q8_0) \
    X(FORM_I8X, 32, 0, 0, 8, 1, QUANT_IQ1_S) \
    X(FORM_N4, 16, 0, 0, 2, 1, QUANT_Q4_0) \
    X(FORM_N4M, 16, 0, 0, 4, 1, QUANT_Q4_1) \
    X(FORM_N5, 16, 4, 0, 2, 1, QUANT_Q5_0) \
    X(FORM_N5M, 16, 4, 0, 4, 1, QUANT_Q5_1) \
    X(FORM_N4K, 16, 0, 2, 4, 8, QUANT_Q4_K) \
    X(FORM_N5K, 16, 4, 2, 4, 8, QUANT_Q5_K) \
    X(FORM_N6K, 16, 8, 2, 2, 8, QUANT_Q6_K) \
    X(FORM_N3K, 8, 4, 2, 2, 8, QUANT_Q3_K) \
    X(FORM_N2K, 8, 0, 2, 4, 8, QUANT_Q2_K) \
    X(FORM_T4, 16, 0, 0, 2, 1, QUANT_IQ4_NL) \
    X(FORM_T4K, 16, 0, 1, 2, 8, QUANT_IQ4_XS) \
    X(FORM_TFP4, 16, 0, 1, 0, 1, QUANT_MXFP4) \
    X(FORM_O4, 16, 0, 1, 2, 8, QUANT_IQ3_S) \
    X(FORM_G3S, 8, 4, 2, 2, 8, QUANT_IQ3_S) \
    X(FORM_G3XXS, 8, 4, 0, 2, 8, QUANT_IQ3_XXS) \
    X(FORM_G2XXS, 4, 4, 0, 2, 8, QUANT_IQ2_XXS) \
    X(FORM_G2XS, 8, 0, 1, 2, 8, QUANT_IQ2_XS) \
    X(FORM_G2S, 4, 4, 2, 2, 8, QUANT_IQ2_S) \
    X(FORM_X6K, 16, 8, 2, 4, 8, QUANT_IQ6_K) \
    X(FORM_X5K, 16, 4, 2, 4, 8, QUANT_IQ5_K) \
    X(FORM_X5S, 16, 4, 1, 4, 8, QUANT_IQ5_KS) \
    X(FORM_X4K, 16, 0, 2, 4, 8, QUANT_IQ4_K) \
    X(FORM_X4S, 16, 0, 1, 4, 8, QUANT_IQ4_KS) \
    X(FORM_X3K, 8, 4, 2, 4, 8, QUANT_IQ3_K) \
    X(FORM_X3S, 8, 4, 1, 4, 8, QUANT_IQ3_KS) \
    X(FORM_X2K, 8, 0, 2, 4, 8, QUANT_IQ2_K) \
    X(FORM_X2S, 8, 0, 1, 4, 8, QUANT_IQ2_KS) \
    X(FORM_K4, 16, 0, 1, 4, 8, QUANT_IQ4_KT) \
    X(FORM_K3, 8, 4, 1, 4, 8, QUANT_IQ3_KT) \
    X(FORM_K2, 8, 0, 1, 4, 8, QUANT_IQ2_KT)
/* clang-format on */

/* A stack of matrices as kernels see it. */
struct planes {
    const uint8_t *codes, *more, *sub, *top; /* device */
    int64_t n_row;                           /* per matrix */
    int32_t n_in, n_unit;                    /* elements and units per row */
    int32_t form, unused;                    /* unused: no undefined byte, launches are hashed */
};

/* Layouts of a weight. PLANES_WIDE: a form that unpacks in fewer instructions, if bandwidth is plentiful. */
enum { PLANES = 1, PLANES_WIDE };                                 /* weight.layout */
enum plane_form cuda_repack_form(uint32_t type, uint32_t layout); /* FORM_NONE: not supported */
struct plane_sizes cuda_repack_sizes(enum plane_form f);
/* Bytes of w as planes; each plane starts at a multiple of 256. */
size_t cuda_repack_bytes(const struct weight *w);
/* One plane: its offset and its bytes per row, 0 if the form has no such plane. Order: codes, more, sub, top. */
struct plane_part {
    size_t at, row_bytes;
};
size_t cuda_repack_parts(const struct weight *w,
                         struct plane_part out[4]); /* returns cuda_repack_bytes */
/* Repacks n rows of w (layout 0, host) from row `first` of the whole stack on; to[i]: destination of the first row in
 * plane i. Returns false if the rows contain NaN or infinity. Any thread. */
bool cuda_repack_pack(const struct weight *w, int64_t first, int64_t n, uint8_t *const to[4]);
/* The planes of a repacked w whose data is a device address. */
struct planes cuda_repack_of(const struct weight *w);

#ifdef __cplusplus
}
#endif

#endif
