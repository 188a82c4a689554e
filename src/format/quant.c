/* quant.c: the traits table and the sizes that follow from it. Codecs live in quant_*.c, one file per
 * family; a type whose decode is NULL can be carried and copied but not read as floats. */
#include "format/quant.h"

#include "base/str.h"
#include "format/quant_impl.h"

/* Codecs of each type: decode, encode, whether encoding needs weights. */
#define CODEC_F32 quant_decode_f32, quant_encode_f32, false
#define CODEC_F16 quant_decode_f16, quant_encode_f16, false
#define CODEC_Q4_0 quant_decode_q4_0, quant_encode_q4_0, false
#define CODEC_Q4_1 quant_decode_q4_1, quant_encode_q4_1, false
#define CODEC_Q5_0 quant_decode_q5_0, quant_encode_q5_0, false
#define CODEC_Q5_1 quant_decode_q5_1, quant_encode_q5_1, false
#define CODEC_Q8_0 quant_decode_q8_0, quant_encode_q8_0, false
#define CODEC_Q2_K quant_decode_q2_k, quant_encode_q2_k, false
#define CODEC_Q3_K quant_decode_q3_k, quant_encode_q3_k, false
#define CODEC_Q4_K quant_decode_q4_k, quant_encode_q4_k, false
#define CODEC_Q5_K quant_decode_q5_k, quant_encode_q5_k, false
#define CODEC_Q6_K quant_decode_q6_k, quant_encode_q6_k, false
#define CODEC_IQ2_XXS quant_decode_iq2_xxs, quant_encode_iq2_xxs, true
#define CODEC_IQ2_XS quant_decode_iq2_xs, quant_encode_iq2_xs, true
#define CODEC_IQ3_XXS quant_decode_iq3_xxs, quant_encode_iq3_xxs, false
#define CODEC_IQ1_S quant_decode_iq1_s, quant_encode_iq1_s, true
#define CODEC_IQ4_NL quant_decode_iq4_nl, quant_encode_iq4_nl, false
#define CODEC_IQ3_S quant_decode_iq3_s, quant_encode_iq3_s, false
#define CODEC_IQ2_S quant_decode_iq2_s, quant_encode_iq2_s, false
#define CODEC_IQ4_XS quant_decode_iq4_xs, quant_encode_iq4_xs, false
#define CODEC_I8 NULL, NULL, false
#define CODEC_I16 NULL, NULL, false
#define CODEC_I32 NULL, NULL, false
#define CODEC_I64 NULL, NULL, false
#define CODEC_F64 quant_decode_f64, quant_encode_f64, false
#define CODEC_IQ1_M quant_decode_iq1_m, quant_encode_iq1_m, false
#define CODEC_BF16 quant_decode_bf16, quant_encode_bf16, false
#define CODEC_TQ1_0 quant_decode_tq1_0, quant_encode_tq1_0, false
#define CODEC_TQ2_0 quant_decode_tq2_0, quant_encode_tq2_0, false
#define CODEC_MXFP4 quant_decode_mxfp4, quant_encode_mxfp4, false

static const struct quant_traits table[QUANT_N_ID] = {
#define X(type, id, text, elements, bytes) [id] = {text, elements, bytes, CODEC_##type},
    QUANT_TYPES(X)
#undef X
};

const struct quant_traits *quant_traits(uint32_t id) {
    return id < QUANT_N_ID && table[id].name ? &table[id] : NULL;
}

int quant_type_from_name(const char *name) {
    for (int id = 0; id < QUANT_N_ID; id++)
        if (table[id].name && str_eq_nocase(table[id].name, name)) return id;
    return -1;
}

bool quant_row_bytes(uint32_t id, uint64_t n, uint64_t *bytes) {
    const struct quant_traits *t = quant_traits(id);
    if (!t || n % t->block_elements) return false;
    return !__builtin_mul_overflow(n / t->block_elements, (uint64_t)t->block_bytes, bytes);
}
