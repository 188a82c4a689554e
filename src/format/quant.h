/* quant.h: the block formats of GGUF tensors: traits table, decode, encode.
 *
 * How each type packs its blocks is private (one file per family, with a layout table at its top). Decoding gives the
 * same bits on every machine (this folder is compiled without floating-point contraction). Encoding may use importance
 * weights. No allocation except small per-call scratch in encoders; any thread. */
#ifndef CHIMERE_FORMAT_QUANT_H
#define CHIMERE_FORMAT_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The ids in files: ggml's, and from 137 on ik_llama.cpp's. X(NAME, id, "file name", elements, bytes) */
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
    X(MXFP4, 39, "mxfp4", 32, 17)                                                                  \
    X(IQ2_K, 137, "iq2_k", 256, 76)                                                                \
    X(IQ3_K, 138, "iq3_k", 256, 110)                                                               \
    X(IQ4_K, 139, "iq4_k", 256, 144)                                                               \
    X(IQ5_K, 140, "iq5_k", 256, 176)                                                               \
    X(IQ6_K, 141, "iq6_k", 256, 212)                                                               \
    X(IQ4_KS, 144, "iq4_ks", 256, 136)                                                             \
    X(IQ2_KS, 145, "iq2_ks", 256, 70)                                                              \
    X(IQ4_KSS, 146, "iq4_kss", 256, 128)                                                           \
    X(IQ5_KS, 152, "iq5_ks", 256, 168)                                                             \
    X(IQ2_KT, 153, "iq2_kt", 256, 68)                                                              \
    X(IQ3_KT, 154, "iq3_kt", 256, 100)                                                             \
    X(IQ4_KT, 155, "iq4_kt", 256, 128)                                                             \
    X(IQ3_KS, 156, "iq3_ks", 256, 102)                                                             \
    X(IQ2_KL, 157, "iq2_kl", 256, 86)                                                              \
    X(IQ1_KT, 158, "iq1_kt", 256, 56)

enum quant_type {
#define X(name, id, text, elements, bytes) QUANT_##name = id,
    QUANT_TYPES(X)
#undef X
        QUANT_N_ID = 160
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
    /* Bytes of a scale before the blocks of each row. If not 0, decode and encode take exactly one row from its
     * start, and blocks cannot be decoded alone. */
    uint32_t head_bytes;
};

/* Returns NULL for an id that is not in the table. */
const struct quant_traits *quant_traits(uint32_t id);
/* Case-insensitive name -> id, -1 if unknown. */
int quant_type_from_name(const char *name);
/* Bytes of a row of n elements; returns false if n is not a multiple of the block or the size overflows. */
bool quant_row_bytes(uint32_t id, uint64_t n, uint64_t *bytes);

/* Whether n elements (whole blocks; one row if rows have a scale) contain no NaN or infinity. Checks the scales if
 * the type has some: with finite scales every code is finite. */
bool quant_is_finite(uint32_t id, const void *src, uint64_t n);
bool quant_rows_are_finite(uint32_t id, const void *src, uint64_t n_row, uint64_t n_in);

/* The base type of an id for rows interleaved by ik_llama.cpp (base + 200); -1: not such an id. */
int quant_interleaved_base(uint32_t id);

/* Largest magnitude that can be encoded; encoders clamp larger values. For types with a scale per block it is the
 * largest scale times the smallest range of codes. */
float quant_max(uint32_t id);

/* IEEE half precision and bfloat16. Encoding rounds to nearest even; NaN stays NaN. */
float quant_f16_to_f32(uint16_t h);
uint16_t quant_f32_to_f16(float f);
float quant_bf16_to_f32(uint16_t h);
uint16_t quant_f32_to_bf16(float f);

#endif
