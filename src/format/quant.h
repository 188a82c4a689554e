/* quant.h: the block formats of GGUF tensors: traits table, decode, encode.
 *
 * Hides how each type packs its blocks (one file per family, layout table at its top). Decoding gives
 * the same bits on every machine (this folder is compiled without contraction). Encoding may use
 * importance weights. No allocation except small per-call scratch in encoders; any thread. */
#ifndef CHIMERE_FORMAT_QUANT_H
#define CHIMERE_FORMAT_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ids are ggml's, as tensors carry them in files. X(NAME, id, "file name", elements, bytes) */
#define QUANT_TYPES(X)                                                                             \
    X(F32, 0, "f32", 1, 4)                                                                         \
    X(F16, 1, "f16", 1, 2)                                                                         \
    X(Q4_0, 2, "q4_0", 32, 18)                                                                     \
    X(Q4_1, 3, "q4_1", 32, 20)                                                                     \
    X(Q5_0, 6, "q5_0", 32, 22)                                                                     \
    X(Q5_1, 7, "q5_1", 32, 24)                                                                     \
    X(Q8_0, 8, "q8_0", 32, 34)                                                                     \
    X(Q2_K, 10, "q2_K", 256, 84)                                                                   \
    X(Q3_K, 11, "q3_K", 256, 110)                                                                  \
    X(Q4_K, 12, "q4_K", 256, 144)                                                                  \
    X(Q5_K, 13, "q5_K", 256, 176)                                                                  \
    X(Q6_K, 14, "q6_K", 256, 210)                                                                  \
    X(IQ2_XXS, 16, "iq2_xxs", 256, 66)                                                             \
    X(IQ2_XS, 17, "iq2_xs", 256, 74)                                                               \
    X(IQ3_XXS, 18, "iq3_xxs", 256, 98)                                                             \
    X(IQ1_S, 19, "iq1_s", 256, 50)                                                                 \
    X(IQ4_NL, 20, "iq4_nl", 32, 18)                                                                \
    X(IQ3_S, 21, "iq3_s", 256, 110)                                                                \
    X(IQ2_S, 22, "iq2_s", 256, 82)                                                                 \
    X(IQ4_XS, 23, "iq4_xs", 256, 136)                                                              \
    X(I8, 24, "i8", 1, 1)                                                                          \
    X(I16, 25, "i16", 1, 2)                                                                        \
    X(I32, 26, "i32", 1, 4)                                                                        \
    X(I64, 27, "i64", 1, 8)                                                                        \
    X(F64, 28, "f64", 1, 8)                                                                        \
    X(IQ1_M, 29, "iq1_m", 256, 56)                                                                 \
    X(BF16, 30, "bf16", 1, 2)                                                                      \
    X(TQ1_0, 34, "tq1_0", 256, 54)                                                                 \
    X(TQ2_0, 35, "tq2_0", 256, 66)                                                                 \
    X(MXFP4, 39, "mxfp4", 32, 17)

enum quant_type {
#define X(name, id, text, elements, bytes) QUANT_##name = id,
    QUANT_TYPES(X)
#undef X
        QUANT_N_ID = 40
};

struct quant_traits {
    const char *name; /* lower case as above; NULL: no such type */
    uint32_t block_elements, block_bytes;
    /* n elements, n a multiple of block_elements; NULL for integer types. Source and destination do
     * not overlap; the source needs no alignment. */
    void (*decode)(const void *src, float *dst, size_t n);
    /* One row of n elements; weights: n importance weights >= 0, or NULL. NULL: cannot be encoded.
     * Returns false when scratch memory is short. */
    bool (*encode)(const float *src, void *dst, size_t n, const float *weights);
    bool needs_weights; /* encoding without weights is refused (iq2_xxs, iq2_xs, iq1_s) */
};

/* NULL for an id that is not in the table. */
const struct quant_traits *quant_traits(uint32_t id);
/* Case-insensitive name -> id, -1 if unknown. */
int quant_type_from_name(const char *name);
/* Bytes of a row of n elements; false if n is no multiple of the block or the size overflows. */
bool quant_row_bytes(uint32_t id, uint64_t n, uint64_t *bytes);

/* No NaN and no infinity among n elements (n a multiple of the block), from the scales where the type has
 * some: with finite scales no code gives anything else. */
bool quant_is_finite(uint32_t id, const void *src, uint64_t n);

/* Magnitude up to which values can be encoded; encoders cut off what is larger. For types with a scale per
 * block it is that of the largest scale times the smallest range of codes. */
float quant_max(uint32_t id);

/* IEEE half and bfloat16. Encoding rounds to nearest even; NaN stays NaN. */
float quant_f16_to_f32(uint16_t h);
uint16_t quant_f32_to_f16(float f);
float quant_bf16_to_f32(uint16_t h);
uint16_t quant_f32_to_bf16(float f);

#endif
