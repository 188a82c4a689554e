/* quant_code.c: see quant_code.h. The layouts are those in the tables of quant_*.c. */
#include "format/quant_code.h"

#include "format/quant.h"

/* Fields by their first byte; two, one and four bits of weights 32 apart share a byte. */
/* clang-format off */
#define TWO(byte) {8 * (byte), 2, 32, 128, 32}
#define ONE(byte) {8 * (byte), 1, 32, 256, 32}
#define FOUR(byte) {8 * (byte), 4, 32, 64, 32}
#define FOUR_16(byte) {8 * (byte), 4, 16, 32, 16}
#define WHOLE(byte) {8 * (byte), 8, 1, 1, 1}
#define BITS(byte) {8 * (byte), 1, 1, 8, 1}

static const struct quant_code table[] = {
    {QUANT_Q4_0, {{1, {FOUR_16(2)}}}},
    {QUANT_Q4_1, {{1, {FOUR_16(4)}}}},
    {QUANT_Q5_0, {{1, {FOUR_16(6), BITS(2)}}}},
    {QUANT_Q5_1, {{1, {FOUR_16(8), BITS(4)}}}},
    {QUANT_Q2_K, {{1, {TWO(16)}}}},
    {QUANT_Q3_K, {{1, {TWO(32), ONE(0)}}}},
    {QUANT_Q4_K, {{1, {FOUR(16)}}}},
    {QUANT_Q5_K, {{1, {FOUR(48), ONE(16)}}}},
    {QUANT_Q6_K, {{1, {{0, 4, 64, 128, 64}, TWO(128)}}}},
    {QUANT_IQ4_NL, {{1, {FOUR_16(2)}}}},
    {QUANT_IQ4_XS, {{1, {FOUR_16(8)}}}},
    {QUANT_IQ3_XXS, {{4, {WHOLE(2)}}, {8, {{8 * 66, 7, 1, 4, 4}}}}},
    {QUANT_IQ3_S, {{4, {WHOLE(2), BITS(66)}}, {1, {BITS(74)}}}},
    {QUANT_IQ2_XXS, {{8, {{8 * 2, 8, 4, 4, 8}}}, {8, {{8 * 6, 7, 1, 4, 8}}}}},
    {QUANT_IQ2_XS, {{8, {{8 * 2, 9, 1, 1, 2}}}, {8, {{8 * 2 + 9, 7, 1, 1, 2}}}}},
    {QUANT_IQ2_S, {{8, {WHOLE(2), {8 * 66, 2, 1, 4, 1}}}, {1, {BITS(34)}}}},
    {QUANT_IQ2_K, {{1, {TWO(12)}}}},
    {QUANT_IQ3_K, {{1, {TWO(14), ONE(78)}}}},
    {QUANT_IQ4_K, {{1, {FOUR_16(16)}}}},
    {QUANT_IQ5_K, {{1, {FOUR(16), ONE(144)}}}},
    {QUANT_IQ6_K, {{1, {FOUR(20), TWO(148)}}}},
    {QUANT_IQ2_KS, {{1, {TWO(6)}}}},
    {QUANT_IQ3_KS, {{1, {TWO(6), ONE(70)}}}},
    {QUANT_IQ4_KS, {{1, {FOUR_16(8)}}}},
    {QUANT_IQ5_KS, {{1, {FOUR(8), ONE(136)}}}},
    {QUANT_IQ2_KL, {{2, {FOUR_16(6), {8 * 70, 1, 16, 128, 16}}}}},
};
/* clang-format on */

const struct quant_code *quant_code(uint32_t type) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].type == type) return &table[i];
    return NULL;
}

int quant_code_count(const struct quant_part *p) {
    return 1 << (p->field[0].bits + p->field[1].bits);
}

static uint32_t bit_of(const struct quant_field *f, int u) {
    uint32_t k = (uint32_t)u;
    return f->at + 8 * (k / f->span * f->step + k % f->width) + k % f->span / f->width * f->bits;
}

uint32_t quant_code_read(const struct quant_part *p, const uint8_t *block, int u) {
    uint32_t code = 0;
    for (int i = 0, shift = 0; i < QUANT_CODE_FIELDS && p->field[i].bits; i++) {
        const struct quant_field *f = &p->field[i];
        uint32_t bit = bit_of(f, u), v = block[bit / 8];
        if (bit % 8 + f->bits > 8) v |= (uint32_t)block[bit / 8 + 1] << 8;
        code |= (v >> bit % 8 & ((1u << f->bits) - 1)) << shift;
        shift += f->bits;
    }
    return code;
}

void quant_code_write(const struct quant_part *p, uint8_t *block, int u, uint32_t code) {
    for (int i = 0; i < QUANT_CODE_FIELDS && p->field[i].bits; i++) {
        const struct quant_field *f = &p->field[i];
        uint32_t bit = bit_of(f, u), mask = ((1u << f->bits) - 1) << bit % 8;
        uint32_t v = code << bit % 8 & mask;
        block[bit / 8] = (uint8_t)((block[bit / 8] & ~mask) | v);
        if (mask >> 8) block[bit / 8 + 1] = (uint8_t)((block[bit / 8 + 1] & ~(mask >> 8)) | v >> 8);
        code >>= f->bits;
    }
}
