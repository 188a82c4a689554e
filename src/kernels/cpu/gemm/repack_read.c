/* repack_read.c: reads codes and scales of every quantized type. format/quant_*.c describe the layouts; here codes
 * are returned as small integers in input order, one byte each. */
#include "kernels/cpu/gemm/repack_read.h"

#include <stddef.h>
#include <string.h>

#include "format/quant.h"
#include "format/quant_codebook.h"

static uint16_t u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static uint32_t u32(const uint8_t *p) { return u16(p) | (uint32_t)u16(p + 2) << 16; }

static void nibbles_32(const uint8_t *qs, uint8_t *q) {
    for (int j = 0; j < 16; j++) {
        q[j] = qs[j] & 15;
        q[j + 16] = qs[j] >> 4;
    }
}

static void fifth_bits(uint32_t high, uint8_t *q) {
    for (int j = 0; j < 32; j++) q[j] = (uint8_t)(q[j] | (high >> j & 1) << 4);
}

static void read_q4_0(const uint8_t *b, int at, struct repack_codes *c) {
    c->d[at] = u16(b);
    nibbles_32(b + 2, c->q + 32 * at);
}

static void read_q4_1(const uint8_t *b, int at, struct repack_codes *c) {
    c->d[at] = u16(b);
    c->dmin[at] = u16(b + 2) ^ 0x8000; /* stored as an addend, used as a subtrahend */
    nibbles_32(b + 4, c->q + 32 * at);
}

static void read_q5_0(const uint8_t *b, int at, struct repack_codes *c) {
    c->d[at] = u16(b);
    nibbles_32(b + 6, c->q + 32 * at);
    fifth_bits(u32(b + 2), c->q + 32 * at);
}

static void read_q5_1(const uint8_t *b, int at, struct repack_codes *c) {
    c->d[at] = u16(b);
    c->dmin[at] = u16(b + 2) ^ 0x8000;
    nibbles_32(b + 8, c->q + 32 * at);
    fifth_bits(u32(b + 4), c->q + 32 * at);
}

static void read_q8_0(const uint8_t *b, int at, struct repack_codes *c) {
    c->d[at] = u16(b);
    memcpy(c->q + 32 * at, b + 2, 32);
}

static void read_mxfp4(const uint8_t *b, int at, struct repack_codes *c) {
    c->s[at] = b[0];
    nibbles_32(b + 1, c->q + 32 * at);
}

/* Two bits of each element: bits 2 (e / 32) of qs[32 (e / 128) + e % 32]. */
static void two_bits(const uint8_t *qs, uint8_t *q) {
    for (int half = 0; half < 2; half++)
        for (int t = 0; t < 4; t++)
            for (int j = 0; j < 32; j++) *q++ = qs[half * 32 + j] >> 2 * t & 3;
}

static void read_q2_k(const uint8_t *b, int at, struct repack_codes *c) {
    (void)at;
    c->d[0] = u16(b + 80);
    c->dmin[0] = u16(b + 82);
    for (int i = 0; i < 16; i++) {
        c->s[i] = b[i] & 15;
        c->m[i] = b[i] >> 4;
    }
    two_bits(b + 16, c->q);
}

static void read_q3_k(const uint8_t *b, int at, struct repack_codes *c) {
    (void)at;
    const uint8_t *s = b + 96;
    c->d[0] = u16(b + 108);
    for (int i = 0; i < 16; i++) {
        int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4;
        c->s[i] = (uint8_t)((low | (s[8 + i % 4] >> i / 4 * 2 & 3) << 4) - 32);
    }
    two_bits(b + 32, c->q);
    for (int t = 0; t < 8; t++)
        for (int j = 0; j < 32; j++) c->q[t * 32 + j] |= (uint8_t)((b[j] >> t & 1) << 2);
}

static void scales_k6(const uint8_t *s, struct repack_codes *c) {
    for (int i = 0; i < 4; i++) {
        c->s[i] = s[i] & 63;
        c->m[i] = s[i + 4] & 63;
        c->s[i + 4] = (uint8_t)((s[i + 8] & 15) | s[i] >> 6 << 4);
        c->m[i + 4] = (uint8_t)(s[i + 8] >> 4 | s[i + 4] >> 6 << 4);
    }
}

static void nibbles_k(const uint8_t *qs, uint8_t *q) {
    for (int i = 0; i < 4; i++, qs += 32, q += 64)
        for (int j = 0; j < 32; j++) {
            q[j] = qs[j] & 15;
            q[j + 32] = qs[j] >> 4;
        }
}

static void read_q4_k(const uint8_t *b, int at, struct repack_codes *c) {
    (void)at;
    c->d[0] = u16(b);
    c->dmin[0] = u16(b + 2);
    scales_k6(b + 4, c);
    nibbles_k(b + 16, c->q);
}

static void read_q5_k(const uint8_t *b, int at, struct repack_codes *c) {
    (void)at;
    c->d[0] = u16(b);
    c->dmin[0] = u16(b + 2);
    scales_k6(b + 4, c);
    nibbles_k(b + 48, c->q);
    for (int t = 0; t < 8; t++)
        for (int j = 0; j < 32; j++) c->q[t * 32 + j] |= (uint8_t)((b[16 + j] >> t & 1) << 4);
}

static void read_q6_k(const uint8_t *b, int at, struct repack_codes *c) {
    (void)at;
    c->d[0] = u16(b + 208);
    memcpy(c->s, b + 192, 16);
    for (int half = 0; half < 2; half++) {
        const uint8_t *l = b + half * 64, *h = b + 128 + half * 32;
        uint8_t *q = c->q + half * 128;
        for (int j = 0; j < 32; j++) {
            q[j] = (uint8_t)((l[j] & 15) | (h[j] & 3) << 4);
            q[j + 32] = (uint8_t)((l[j + 32] & 15) | (h[j] >> 2 & 3) << 4);
            q[j + 64] = (uint8_t)(l[j] >> 4 | (h[j] >> 4 & 3) << 4);
            q[j + 96] = (uint8_t)(l[j + 32] >> 4 | h[j] >> 6 << 4);
        }
    }
}

static void read_iq4_xs(const uint8_t *b, int at, struct repack_codes *c) {
    (void)at;
    c->d[0] = u16(b);
    for (int i = 0; i < 8; i++) {
        int low = b[4 + i / 2] >> i % 2 * 4 & 15;
        c->s[i] = (uint8_t)((low | (u16(b + 2) >> 2 * i & 3) << 4) - 32);
        nibbles_32(b + 8 + 16 * i, c->q + 32 * i);
    }
}

static void read_tq1_0(const uint8_t *b, int at, struct repack_codes *c) {
    (void)at;
    static const uint8_t pow3[5] = {1, 3, 9, 27, 81};
    static const struct { int at, bytes, digits; } runs[3] = {{0, 32, 5}, {32, 16, 5}, {48, 4, 4}};
    uint8_t *q = c->q;
    c->d[0] = u16(b + 52);
    for (int r = 0; r < 3; r++)
        for (int t = 0; t < runs[r].digits; t++)
            for (int j = 0; j < runs[r].bytes; j++)
                *q++ = (uint8_t)((uint8_t)(b[runs[r].at + j] * pow3[t]) * 3 >> 8);
}

static void read_tq2_0(const uint8_t *b, int at, struct repack_codes *c) {
    (void)at;
    c->d[0] = u16(b + 64);
    two_bits(b, c->q);
}

/* Grids. Codes ascend with the value: magnitudes m[0] < m[1] < ... have the values -m[last] .. -m[0], m[0] ..
 * m[last]. Eight codes are computed at a time by arithmetic on the bytes of a word (which never overflow): magnitude
 * index i becomes half - 1 - i if the sign is set, else half + i. */

#define EACH(byte) ((byte)*UINT64_C(0x0101010101010101))

/* 255 in byte j if bit j is set. */
static inline uint64_t byte_mask(uint32_t bits) {
    uint64_t v = EACH((uint64_t)(bits & 255)) & UINT64_C(0x8040201008040201);
    return ((v + EACH(0x7f)) >> 7 & EACH(1)) * 255;
}

static inline void put_signed(uint8_t *q, uint64_t index, uint32_t signs, uint64_t half) {
    uint64_t negative = byte_mask(signs);
    uint64_t up = index + EACH(half), down = EACH(half - 1) - index;
    up = (up & ~negative) | (down & negative);
    memcpy(q, &up, 8);
}

static void read_iq3_s(const uint8_t *b, int at, struct repack_codes *c) {
    (void)at;
    c->d[0] = u16(b);
    for (int sub = 0; sub < 8; sub++) {
        c->s[sub] = b[106 + sub / 2] >> sub % 2 * 4 & 15;
        const uint8_t *index = b + 2 + sub * 8, *signs = b + 74 + sub * 4;
        uint32_t high = b[66 + sub];
        for (int k = 0; k < 8; k += 2) {
            uint64_t grid = quant_grid_iq3s[index[k] | (high >> k & 1) << 8] |
                            (uint64_t)quant_grid_iq3s[index[k + 1] | (high >> (k + 1) & 1) << 8]
                                << 32;
            put_signed(c->q + sub * 32 + k * 4, grid >> 1 & EACH(7), signs[k / 2], 8);
        }
    }
}

/* Magnitudes 4, 12, 20, 28, 36, 44, 52, 62 are 8 i + 4 except for the last; 62 / 8 still rounds down to 7. */
static void read_iq3_xxs(const uint8_t *b, int at, struct repack_codes *c) {
    (void)at;
    c->d[0] = u16(b);
    for (int sub = 0; sub < 8; sub++) {
        uint32_t rest = u32(b + 66 + sub * 4);
        c->s[sub] = (uint8_t)(rest >> 28);
        const uint8_t *index = b + 2 + sub * 8;
        for (int k = 0; k < 8; k += 2) {
            uint64_t grid = quant_grid_iq3xxs[index[k]] | (uint64_t)quant_grid_iq3xxs[index[k + 1]]
                                                              << 32;
            put_signed(c->q + sub * 32 + k * 4, grid >> 3 & EACH(7),
                       quant_signs7(rest >> k / 2 * 7), 8);
        }
    }
}

/* Magnitudes 8, 25, 43 -> 0, 1, 2, from bits 4 and 5 (8 = 001000, 25 = 011001, 43 = 101011). */
static void put_8(uint8_t *q, uint64_t grid, uint32_t signs) {
    put_signed(q, grid >> 4 & EACH(3), signs, 3);
}

static void read_iq2_xxs(const uint8_t *b, int at, struct repack_codes *c) {
    (void)at;
    c->d[0] = u16(b);
    for (int sub = 0; sub < 8; sub++) {
        const uint8_t *q = b + 2 + sub * 8;
        uint32_t rest = u32(q + 4);
        c->s[sub] = (uint8_t)(rest >> 28);
        for (int l = 0; l < 4; l++)
            put_8(c->q + sub * 32 + l * 8, quant_grid_iq2xxs[q[l]], quant_signs7(rest >> 7 * l));
    }
}

static void read_iq2_xs(const uint8_t *b, int at, struct repack_codes *c) {
    (void)at;
    c->d[0] = u16(b);
    for (int g = 0; g < 32; g++) {
        uint32_t q = u16(b + 2 + g * 2);
        put_8(c->q + g * 8, quant_grid_iq2xs[q & 511], quant_signs7(q >> 9));
        c->s[g / 2] = b[66 + g / 4] >> g % 4 / 2 * 4 & 15;
    }
}

static void read_iq2_s(const uint8_t *b, int at, struct repack_codes *c) {
    (void)at;
    c->d[0] = u16(b);
    for (int g = 0; g < 32; g++) {
        uint32_t index = b[2 + g] | (b[66 + g / 4] >> g % 4 * 2 & 3u) << 8;
        put_8(c->q + g * 8, quant_grid_iq2s[index], b[34 + g]);
        c->s[g / 2] = b[74 + g / 4] >> g % 4 / 2 * 4 & 15;
    }
}

/* 8 g + 1 or 8 g - 1 for g = -1, 0, 1: six values, ascending; delta_up: the +1. */
static void put_ternary_8(uint8_t *q, uint64_t grid, bool delta_up) {
    for (int j = 0; j < 8; j++) {
        int g = (int8_t)(grid >> 8 * j);
        q[j] = (uint8_t)(2 * (g + 1) + delta_up);
    }
}

static void read_iq1_s(const uint8_t *b, int at, struct repack_codes *c) {
    (void)at;
    c->d[0] = u16(b);
    for (int sub = 0; sub < 8; sub++) {
        uint32_t h = u16(b + 34 + sub * 2);
        c->s[sub] = h >> 12 & 7;
        for (int l = 0; l < 4; l++)
            put_ternary_8(c->q + sub * 32 + l * 8,
                          quant_grid_iq1[b[2 + sub * 4 + l] | (h >> 3 * l & 7) << 8],
                          !(h & 0x8000));
    }
}

static void read_iq1_m(const uint8_t *b, int at, struct repack_codes *c) {
    (void)at;
    const uint8_t *s = b + 48;
    c->d[0] = (uint16_t)(s[1] >> 4 | (s[3] & 0xf0) | (s[5] & 0xf0) << 4 | (s[7] & 0xf0) << 8);
    for (int g = 0; g < 32; g++) {
        uint32_t h = b[32 + g / 2] >> g % 2 * 4 & 15;
        put_ternary_8(c->q + g * 8, quant_grid_iq1[b[g] | (h & 7) << 8], !(h & 8));
        if (g % 2 == 0) c->s[g / 2] = u16(s + g / 8 * 2) >> g % 8 / 2 * 3 & 7;
    }
}

repack_read *repack_reader(uint32_t type) {
    static repack_read *const readers[QUANT_N_ID] = {
        [QUANT_Q4_0] = read_q4_0,     [QUANT_Q4_1] = read_q4_1,       [QUANT_Q5_0] = read_q5_0,
        [QUANT_Q5_1] = read_q5_1,     [QUANT_Q8_0] = read_q8_0,       [QUANT_Q2_K] = read_q2_k,
        [QUANT_Q3_K] = read_q3_k,     [QUANT_Q4_K] = read_q4_k,       [QUANT_Q5_K] = read_q5_k,
        [QUANT_Q6_K] = read_q6_k,     [QUANT_IQ2_XXS] = read_iq2_xxs, [QUANT_IQ2_XS] = read_iq2_xs,
        [QUANT_IQ2_S] = read_iq2_s,   [QUANT_IQ3_XXS] = read_iq3_xxs, [QUANT_IQ3_S] = read_iq3_s,
        [QUANT_IQ1_S] = read_iq1_s,   [QUANT_IQ1_M] = read_iq1_m,     [QUANT_IQ4_NL] = read_q4_0,
        [QUANT_IQ4_XS] = read_iq4_xs, [QUANT_TQ1_0] = read_tq1_0,     [QUANT_TQ2_0] = read_tq2_0,
        [QUANT_MXFP4] = read_mxfp4,
    };
    return type < QUANT_N_ID ? readers[type] : NULL;
}
