/* quant.c: the traits table and the sizes that follow from it. Codecs are in quant_*.c, one file per family. A type
 * whose decode is NULL can be copied but not converted to floats. */
#include "format/quant.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/str.h"

#include "format/quant_ik.h"
#include "format/quant_impl.h"

/* Codecs of each type: decode, encode, whether encoding needs weights, bytes before the blocks of a row. */
#define CODEC_F32 quant_decode_f32, quant_encode_f32, false, 0
#define CODEC_F16 quant_decode_f16, quant_encode_f16, false, 0
#define CODEC_Q4_0 quant_decode_q4_0, quant_encode_q4_0, false, 0
#define CODEC_Q4_1 quant_decode_q4_1, quant_encode_q4_1, false, 0
#define CODEC_Q5_0 quant_decode_q5_0, quant_encode_q5_0, false, 0
#define CODEC_Q5_1 quant_decode_q5_1, quant_encode_q5_1, false, 0
#define CODEC_Q8_0 quant_decode_q8_0, quant_encode_q8_0, false, 0
#define CODEC_Q2_K quant_decode_q2_k, quant_encode_q2_k, false, 0
#define CODEC_Q3_K quant_decode_q3_k, quant_encode_q3_k, false, 0
#define CODEC_Q4_K quant_decode_q4_k, quant_encode_q4_k, false, 0
#define CODEC_Q5_K quant_decode_q5_k, quant_encode_q5_k, false, 0
#define CODEC_Q6_K quant_decode_q6_k, quant_encode_q6_k, false, 0
#define CODEC_IQ2_XXS quant_decode_iq2_xxs, quant_encode_iq2_xxs, true, 0
#define CODEC_IQ2_XS quant_decode_iq2_xs, quant_encode_iq2_xs, true, 0
#define CODEC_IQ3_XXS quant_decode_iq3_xxs, quant_encode_iq3_xxs, false, 0
#define CODEC_IQ1_S quant_decode_iq1_s, quant_encode_iq1_s, true, 0
#define CODEC_IQ4_NL quant_decode_iq4_nl, quant_encode_iq4_nl, false, 0
#define CODEC_IQ3_S quant_decode_iq3_s, quant_encode_iq3_s, false, 0
#define CODEC_IQ2_S quant_decode_iq2_s, quant_encode_iq2_s, false, 0
#define CODEC_IQ4_XS quant_decode_iq4_xs, quant_encode_iq4_xs, false, 0
#define CODEC_I8 NULL, NULL, false, 0
#define CODEC_I16 NULL, NULL, false, 0
#define CODEC_I32 NULL, NULL, false, 0
#define CODEC_I64 NULL, NULL, false, 0
#define CODEC_F64 quant_decode_f64, quant_encode_f64, false, 0
#define CODEC_IQ1_M quant_decode_iq1_m, quant_encode_iq1_m, false, 0
#define CODEC_BF16 quant_decode_bf16, quant_encode_bf16, false, 0
#define CODEC_TQ1_0 quant_decode_tq1_0, quant_encode_tq1_0, false, 0
#define CODEC_TQ2_0 quant_decode_tq2_0, quant_encode_tq2_0, false, 0
#define CODEC_MXFP4 quant_decode_mxfp4, quant_encode_mxfp4, false, 0
#define CODEC_IQ2_K quant_decode_iq2_k, quant_encode_iq2_k, false, 0
#define CODEC_IQ3_K quant_decode_iq3_k, quant_encode_iq3_k, false, 0
#define CODEC_IQ4_K quant_decode_iq4_k, quant_encode_iq4_k, false, 0
#define CODEC_IQ5_K quant_decode_iq5_k, quant_encode_iq5_k, false, 0
#define CODEC_IQ6_K quant_decode_iq6_k, quant_encode_iq6_k, false, 0
#define CODEC_IQ4_KS quant_decode_iq4_ks, quant_encode_iq4_ks, false, 4
#define CODEC_IQ2_KS quant_decode_iq2_ks, quant_encode_iq2_ks, false, 2
#define CODEC_IQ4_KSS quant_decode_iq4_kss, quant_encode_iq4_kss, false, 4
#define CODEC_IQ5_KS quant_decode_iq5_ks, quant_encode_iq5_ks, false, 4
#define CODEC_IQ2_KT quant_decode_iq2_kt, NULL, false, 4
#define CODEC_IQ3_KT quant_decode_iq3_kt, NULL, false, 4
#define CODEC_IQ4_KT quant_decode_iq4_kt, NULL, false, 4
#define CODEC_IQ3_KS quant_decode_iq3_ks, quant_encode_iq3_ks, false, 2
#define CODEC_IQ2_KL quant_decode_iq2_kl, quant_encode_iq2_kl, false, 2
#define CODEC_IQ1_KT quant_decode_iq1_kt, NULL, false, 4

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
    return !__builtin_mul_overflow(n / t->block_elements, (uint64_t)t->block_bytes, bytes) &&
           !__builtin_add_overflow(*bytes, (uint64_t)t->head_bytes, bytes);
}

/* Offsets of the f16 scales in a block; -1: none. */
static const struct {
    uint32_t type;
    int at[2];
} half_scales[] = {
    {QUANT_Q4_0, {0, -1}},   {QUANT_Q4_1, {0, 2}},     {QUANT_Q5_0, {0, -1}},
    {QUANT_Q5_1, {0, 2}},    {QUANT_Q8_0, {0, -1}},    {QUANT_Q2_K, {80, 82}},
    {QUANT_Q3_K, {108, -1}}, {QUANT_Q4_K, {0, 2}},     {QUANT_Q5_K, {0, 2}},
    {QUANT_Q6_K, {208, -1}}, {QUANT_IQ2_XXS, {0, -1}}, {QUANT_IQ2_XS, {0, -1}},
    {QUANT_IQ2_S, {0, -1}},  {QUANT_IQ3_XXS, {0, -1}}, {QUANT_IQ3_S, {0, -1}},
    {QUANT_IQ1_S, {0, -1}},  {QUANT_IQ4_NL, {0, -1}},  {QUANT_IQ4_XS, {0, -1}},
    {QUANT_TQ1_0, {52, -1}}, {QUANT_TQ2_0, {64, -1}},  {QUANT_IQ2_K, {0, -1}},
    {QUANT_IQ3_K, {0, -1}},  {QUANT_IQ4_K, {0, -1}},   {QUANT_IQ5_K, {0, -1}},
    {QUANT_IQ6_K, {0, -1}},
};

static bool halves_are_finite(const uint8_t *p, size_t stride, uint64_t n) {
    uint32_t bad = 0;
    for (uint64_t i = 0; i < n; i++, p += stride) bad |= (load_u16(p) & 0x7c00u) == 0x7c00u;
    return !bad;
}

static bool words_are_finite(const uint8_t *p, uint64_t n, uint32_t exponent) {
    uint32_t bad = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t v;
        memcpy(&v, p + 4 * i, 4);
        bad |= (v & exponent) == exponent;
    }
    return !bad;
}

static bool shorts_are_finite(const uint8_t *p, uint64_t n, uint16_t exponent) {
    uint16_t bad = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint16_t v;
        memcpy(&v, p + 2 * i, 2);
        bad |= (v & exponent) == exponent;
    }
    return !bad;
}

/* iq1_m stores its scale in the top nibbles of four words. */
static bool iq1_m_is_finite(const uint8_t *b, uint64_t n_block) {
    uint32_t bad = 0;
    for (uint64_t i = 0; i < n_block; i++, b += 56)
        bad |= (b[55] & 0x70) == 0x70 && (b[53] & 0xc0) == 0xc0;
    return !bad;
}

/* From 2^(253 - 128) on, the largest code overflows; 255 is the format's NaN. */
static bool mxfp4_is_finite(const uint8_t *b, uint64_t n_block) {
    uint8_t most = 0;
    for (uint64_t i = 0; i < n_block; i++, b += 17) most = *b > most ? *b : most;
    return most < 253;
}

bool quant_is_finite(uint32_t id, const void *src, uint64_t n) {
    const struct quant_traits *t = quant_traits(id);
    if (!t) return false;
    uint64_t n_block = n / t->block_elements;
    if (t->head_bytes) /* times an integer scale and a value, both up to 127 */
        return n == 0 || fabsf(quant_ik_row_scale(id, src)) < FLT_MAX / (128 * 128);
    switch (id) {
    case QUANT_F32: return words_are_finite(src, n, 0x7f800000u);
    case QUANT_F16: return shorts_are_finite(src, n, 0x7c00);
    case QUANT_BF16: return shorts_are_finite(src, n, 0x7f80);
    case QUANT_MXFP4: return mxfp4_is_finite(src, n_block);
    case QUANT_IQ1_M: return iq1_m_is_finite(src, n_block);
    case QUANT_F64:
        for (uint64_t i = 0; i < n; i++) {
            double v;
            memcpy(&v, (const char *)src + 8 * i, 8);
            if (!isfinite((float)v)) return false; /* checked as decoded */
        }
        return true;
    default: break;
    }
    for (size_t i = 0; i < sizeof half_scales / sizeof *half_scales; i++) {
        if (half_scales[i].type != id) continue;
        for (int k = 0; k < 2 && half_scales[i].at[k] >= 0; k++)
            if (!halves_are_finite((const uint8_t *)src + half_scales[i].at[k], t->block_bytes,
                                   n_block))
                return false;
    }
    return true;
}

float quant_max(uint32_t id) {
    switch (id) {
    case QUANT_F32:
    case QUANT_F64:
    case QUANT_MXFP4: return FLT_MAX;
    case QUANT_BF16: return 0x1.fep127f;
    case QUANT_F16: return 65519.0f; /* rounds to 65504 */
    case QUANT_TQ1_0:
    case QUANT_TQ2_0: return 65504.0f;
    default: return 65504.0f * 8;
    }
}

bool quant_rows_are_finite(uint32_t id, const void *src, uint64_t n_row, uint64_t n_in) {
    const struct quant_traits *t = quant_traits(id);
    uint64_t bytes = 0;
    if (!t || !quant_row_bytes(id, n_in, &bytes)) return false;
    if (!t->head_bytes) return quant_is_finite(id, src, n_row * n_in);
    bool finite = true;
    for (uint64_t i = 0; i < n_row; i++)
        finite &= quant_is_finite(id, (const char *)src + i * bytes, n_in);
    return finite;
}

int quant_interleaved_base(uint32_t id) {
    return id >= 200 && quant_traits(id - 200) ? (int)id - 200 : -1;
}
