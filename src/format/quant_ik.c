/* quant_ik.c: ik_llama.cpp's types: IQ2_K to IQ6_K, KS, KSS, KL and the trellis types, decoded.
 *
 * Super-blocks of 256; fields in order, bytes in brackets:
 *   iq2_k    f16 d[2] extra[2] scales[8] qs[64]           iq2_ks   extra[2] scales[4] qs[64]
 *   iq3_k    d extra scales_h[2] scales_l[8] qs[64] qh[32]  iq3_ks extra scales[4] qs[64] qh[32]
 *   iq4_k    d extra scales_h[4] scales_l[8] qs[128]      iq4_ks   scales[8] qs[128]
 *   iq5_k    the same, then qh[32]                        iq5_ks   the same, then qh[32]
 *   iq6_k    d extra scales[16] qs[128] qh[64]            iq4_kss  u32 qs[32]
 *   iq2_kl   scales_h[2] scales_l[4] qs[64] qh[16]
 *   iq1_kt   sh[8] ql[32] qh[16]                          iq2_kt   scales[4] ql[64]
 *   iq3_kt   scales[4] ql[64] qh[32]                      iq4_kt   u32 shb[8] ql[64] qh[32]
 * The types without d have one scale per row, before its blocks: f16 for iq2_ks, iq3_ks and iq2_kl, else f32. A
 * weight is d * integer scale * value of a code book; the trellis types compute their code books. */
#include "format/quant_ik.h"

#include "format/quant_impl.h"

/* clang-format off */
const int8_t quant_ik_2[8] = {-31, -13, 1, 17, -26, -8, 6, 22};
const int8_t quant_ik_3[16] = {-63, -40, -23, -10, 1, 13, 28, 47, -59, -36, -19, -6, 5, 17, 32, 51};
const int8_t quant_ik_4[32] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
                               -123, -100, -79, -61, -45, -31, -18, -6, 5, 17, 29, 42, 57, 73, 93, 117};
#define FIVE(o) -126 + (o), -114 + (o), -103 + (o), -92 + (o), -83 + (o), -74 + (o), -65 + (o), -57 + (o), \
    -50 + (o), -43 + (o), -36 + (o), -30 + (o), -24 + (o), -18 + (o), -12 + (o), -6 + (o), -1 + (o), 5 + (o), \
    11 + (o), 17 + (o), 23 + (o), 29 + (o), 36 + (o), 43 + (o), 51 + (o), 59 + (o), 68 + (o), 77 + (o), \
    87 + (o), 97 + (o), 109 + (o), 121 + (o)
const int8_t quant_ik_5[64] = {FIVE(0), FIVE(2)};
const int8_t quant_ik_pairs[32][2] = {
    {-63, -23}, {-63, 13}, {-40, -63}, {-40, -10}, {-40, 13}, {-40, 47}, {-23, -40}, {-23, -23},
    {-23, 1}, {-23, 13}, {-23, 28}, {-10, -63}, {-10, 1}, {-10, 13}, {-10, 47}, {1, -23},
    {1, -10}, {1, 1}, {1, 13}, {1, 28}, {13, -40}, {13, -23}, {13, -10}, {13, 1},
    {13, 13}, {28, -63}, {28, -23}, {28, 1}, {28, 28}, {28, 47}, {47, -23}, {47, 13},
};
/* clang-format on */

float quant_ik_6(int code, int shifted) {
    float q = (float)code;
    return -127.0f + q * (6.2568f + q * (-0.11218f + 0.0011972f * q)) + (float)shifted;
}

int quant_ik_6_integer(int code, int shifted) {
    float v = quant_ik_6(code, shifted);
    return (int)(v < 0 ? v - .5f : v + .5f);
}

void quant_ik_trellis(uint32_t index, int n, int8_t *out) {
    uint32_t x = index;
    for (int i = 0; i < n; i++) {
        x *= 0xcbac1fedu;
        uint32_t v = x & 0x3f3f3f3fu;
        v = (v & 0x00ff00ffu) + (v >> 8 & 0x00ff00ffu);
        out[i] = (int8_t)((int)((v + (v >> 16)) & 0x1ff) - 126);
    }
}

float quant_ik_row_scale(uint32_t type, const uint8_t *row) {
    if (quant_traits(type)->head_bytes == 2) return load_f16(row);
    uint32_t bits = load_u32(row);
    float d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

static int nibble(const uint8_t *p, int i) { return p[i / 2] >> i % 2 * 4 & 15; }
/* Scales of groups 0 to 3 are in low nibbles, of groups 4 to 7 in high nibbles. */
static int split_nibble(const uint8_t *p, int g) { return p[g % 4] >> g / 4 * 4 & 15; }
static int two_bits(const uint8_t *qs, int i) {
    return qs[32 * (i / 128) + i % 32] >> 2 * (i / 32 % 4) & 3;
}
/* Low nibbles of 16 bytes, then their high nibbles. */
static int nibble_32(const uint8_t *qs, int i) {
    return qs[16 * (i / 32) + i % 16] >> i % 32 / 16 * 4 & 15;
}
/* Low nibbles of 32 bytes, then their high nibbles. */
static int nibble_64(const uint8_t *qs, int i) {
    return qs[32 * (i / 64) + i % 32] >> i % 64 / 32 * 4 & 15;
}

static void scales_16(const uint8_t *high, const uint8_t *low, struct quant_ik_block *o) {
    for (int g = 0; g < 16; g++)
        o->scale[g] = (int8_t)((nibble(low, g) | (high[g / 4] >> 2 * (g % 4) & 3) << 4) - 32);
}

static void set_32(struct quant_ik_block *o, int g, int scale) {
    o->scale[2 * g] = o->scale[2 * g + 1] = (int8_t)scale;
}

static void read_iq2_k(const uint8_t *b, struct quant_ik_block *o) {
    uint32_t extra = load_u16(b + 2);
    for (int g = 0; g < 16; g++) o->scale[g] = (int8_t)(nibble(b + 4, g) - 8);
    for (int i = 0; i < 256; i++)
        o->value[i] = quant_ik_2[4 * (extra >> i / 16 & 1) + (uint32_t)two_bits(b + 12, i)];
}

static void read_iq3_k(const uint8_t *b, struct quant_ik_block *o) {
    uint32_t extra = load_u16(b + 2), minus = load_u16(b + 4);
    for (int g = 0; g < 16; g++) {
        int s = 2 * nibble(b + 6, g) + 1;
        o->scale[g] = (int8_t)(minus >> g & 1 ? -s : s);
    }
    for (int i = 0; i < 256; i++) {
        int code = two_bits(b + 14, i) | (b[78 + i % 32] >> i / 32 & 1) << 2;
        o->value[i] = quant_ik_3[8 * (extra >> i / 16 & 1) + (uint32_t)code];
    }
}

static void read_iq4_k(const uint8_t *b, struct quant_ik_block *o) {
    uint32_t extra = load_u16(b + 2);
    scales_16(b + 4, b + 8, o);
    for (int i = 0; i < 256; i++)
        o->value[i] = quant_ik_4[16 * (extra >> i / 16 & 1) + (uint32_t)nibble_32(b + 16, i)];
}

static void read_iq5_k(const uint8_t *b, struct quant_ik_block *o) {
    uint32_t extra = load_u16(b + 2);
    scales_16(b + 4, b + 8, o);
    for (int i = 0; i < 256; i++) {
        int code = nibble_64(b + 16, i) | (b[144 + i % 32] >> i / 32 & 1) << 4;
        o->value[i] = quant_ik_5[32 * (extra >> i / 16 & 1) + (uint32_t)code];
    }
}

static int code_iq6_k(const uint8_t *b, int i) {
    int high = b[148 + 32 * (i / 128) + i % 32] >> 4 * (i / 64 % 2) >> 2 * (i / 32 % 2) & 3;
    return nibble_64(b + 20, i) | high << 4;
}

static void read_iq6_k(const uint8_t *b, struct quant_ik_block *o) {
    uint32_t extra = load_u16(b + 2);
    memcpy(o->scale, b + 4, 16);
    for (int i = 0; i < 256; i++)
        o->value[i] = (int8_t)quant_ik_6_integer(code_iq6_k(b, i), (int)(extra >> i / 16 & 1));
}

static void read_iq2_ks(const uint8_t *b, struct quant_ik_block *o) {
    uint32_t extra = load_u16(b);
    for (int g = 0; g < 8; g++)
        set_32(o, g, (int)(nibble(b + 2, g) | (int)(extra >> (8 + g) & 1) << 4) - 16);
    for (int i = 0; i < 256; i++)
        o->value[i] = quant_ik_2[4 * (extra >> i / 32 & 1) + (uint32_t)two_bits(b + 6, i)];
}

static void read_iq3_ks(const uint8_t *b, struct quant_ik_block *o) {
    uint32_t extra = load_u16(b);
    for (int g = 0; g < 8; g++)
        set_32(o, g, (split_nibble(b + 2, g) | (int)(extra >> g & 1) << 4) - 16);
    for (int i = 0; i < 256; i++) {
        int code = two_bits(b + 6, i) | (b[70 + i % 32] >> i / 32 & 1) << 2;
        o->value[i] = quant_ik_3[8 * (extra >> (8 + i / 32) & 1) + (uint32_t)code];
    }
}

static void read_iq2_kl(const uint8_t *b, struct quant_ik_block *o) {
    uint32_t high = load_u16(b);
    for (int g = 0; g < 8; g++)
        set_32(o, g, (split_nibble(b + 2, g) | (int)(high >> 2 * g & 3) << 4) - 32);
    for (int k = 0; k < 128; k++) {
        int g = k / 16, j = k % 16;
        int pair = (b[6 + 16 * (g / 2) + j] >> g % 2 * 4 & 15) | (b[70 + j] >> g & 1) << 4;
        memcpy(o->value + 2 * k, quant_ik_pairs[pair], 2);
    }
}

static void read_iq4_ks(const uint8_t *b, struct quant_ik_block *o) {
    for (int g = 0; g < 8; g++) set_32(o, g, (b[g] & 254) - 127);
    for (int i = 0; i < 256; i++)
        o->value[i] = quant_ik_4[16 * (b[i / 32] & 1) + nibble_32(b + 8, i)];
}

static void read_iq5_ks(const uint8_t *b, struct quant_ik_block *o) {
    for (int g = 0; g < 8; g++) set_32(o, g, (b[g] & 254) - 127);
    for (int i = 0; i < 256; i++) {
        int code = nibble_64(b + 8, i) | (b[136 + i % 32] >> i / 32 & 1) << 4;
        o->value[i] = quant_ik_5[32 * (b[i / 32] & 1) + code];
    }
}

void quant_ik_kss_open(const uint8_t kss[128], uint8_t ks[136]) {
    memset(ks, 0, 8);
    for (int k = 0; k < 64; k++) {
        uint32_t w = load_u16(kss + 2 * k), v = w & 0xfffe;
        ks[k / 8] |= (uint8_t)((w & 1) << k % 8);
        store_u16(ks + 8 + 2 * k, v ^ v >> 1);
    }
}

void quant_ik_kss_close(const uint8_t ks[136], uint8_t kss[128]) {
    for (int k = 0; k < 64; k++) {
        uint32_t v = load_u16(ks + 8 + 2 * k);
        for (int shift = 1; shift < 16; shift *= 2) v ^= v >> shift;
        store_u16(kss + 2 * k, (v & 0xfffe) | (uint32_t)(ks[k / 8] >> k % 8 & 1));
    }
}

static void read_iq4_kss(const uint8_t *b, struct quant_ik_block *o) {
    uint8_t ks[136];
    quant_ik_kss_open(b, ks);
    read_iq4_ks(ks, o);
}

static uint32_t index_iq1_kt(const uint8_t *b, int k) {
    int g = k / 4, i = k % 4;
    uint32_t middle = (uint32_t)b[40 + 4 * (g % 4) + i] << (8 - 4 * (g / 4)) & 0xf00;
    return b[8 + k] | middle | ((uint32_t)b[g] << (8 - i) & 0x1000);
}

/* The 16th bit selects the code book. */
static uint32_t index_iq4_kt(const uint8_t *b, int k) {
    uint32_t head = load_u32(b + 4 * (k / 8));
    uint32_t middle = (uint32_t)b[96 + k % 32] << (8 - 4 * (k / 32)) & 0xf00;
    return b[32 + k] | middle | (head >> (8 + 3 * (k % 8)) & 7) << 12 | (head & 1) << 15;
}

void quant_ik_trellis_indexes(uint32_t type, const uint8_t *b, uint16_t out[64]) {
    int n = type == QUANT_IQ4_KT ? 64 : 32;
    for (int k = 0; k < n; k++)
        out[k] = (uint16_t)(type == QUANT_IQ4_KT   ? index_iq4_kt(b, k)
                            : type == QUANT_IQ1_KT ? index_iq1_kt(b, k)
                                                   : load_u16(b + 4 + 2 * k));
}

static void read_trellis(uint32_t type, const uint8_t *b, struct quant_ik_block *o) {
    uint16_t index[64];
    int n = type == QUANT_IQ4_KT ? 64 : 32;
    quant_ik_trellis_indexes(type, b, index);
    for (int k = 0; k < n; k++)
        quant_ik_trellis(index[k] + (uint32_t)QUANT_IK_TRELLIS_OFFSET, 256 / n,
                         o->value + 256 / n * k);
    for (int g = 0; g < 8; g++)
        set_32(o, g,
               type == QUANT_IQ1_KT   ? quant_ik_4[b[g] & 15]
               : type == QUANT_IQ2_KT ? quant_ik_4[split_nibble(b, g)]
               : type == QUANT_IQ3_KT ? split_nibble(b, g)
                                      : (b[4 * g] >> 1) - 64);
    for (int i = 0; i < 256 && type == QUANT_IQ3_KT; i++) {
        int v = o->value[i] < 0 ? -o->value[i] : o->value[i];
        o->value[i] = (int8_t)(b[68 + i % 32] >> i / 32 & 1 ? -v : v);
    }
}

void quant_ik_read(uint32_t type, const uint8_t *b, struct quant_ik_block *o) {
    o->d = quant_traits(type)->head_bytes ? 0 : load_f16(b);
    switch (type) {
    case QUANT_IQ2_K: read_iq2_k(b, o); return;
    case QUANT_IQ3_K: read_iq3_k(b, o); return;
    case QUANT_IQ4_K: read_iq4_k(b, o); return;
    case QUANT_IQ5_K: read_iq5_k(b, o); return;
    case QUANT_IQ6_K: read_iq6_k(b, o); return;
    case QUANT_IQ2_KS: read_iq2_ks(b, o); return;
    case QUANT_IQ3_KS: read_iq3_ks(b, o); return;
    case QUANT_IQ2_KL: read_iq2_kl(b, o); return;
    case QUANT_IQ4_KS: read_iq4_ks(b, o); return;
    case QUANT_IQ5_KS: read_iq5_ks(b, o); return;
    case QUANT_IQ4_KSS: read_iq4_kss(b, o); return;
    default: read_trellis(type, b, o); return;
    }
}

/* Decodes one row, or any number of blocks of the types without a row scale. */
static void decode(uint32_t type, const void *src, float *dst, size_t n) {
    const struct quant_traits *t = quant_traits(type);
    const uint8_t *b = src;
    float row = t->head_bytes ? quant_ik_row_scale(type, b) : 0;
    struct quant_ik_block k;
    b += t->head_bytes;
    for (size_t i = 0; i < n; i += 256, b += t->block_bytes, dst += 256) {
        quant_ik_read(type, b, &k);
        float d = t->head_bytes ? row : k.d;
        for (int j = 0; j < 256; j++) {
            int group = j / 16;
            dst[j] = d * (float)k.scale[group] * (float)k.value[j];
        }
        if (type != QUANT_IQ6_K) continue;
        uint32_t extra = load_u16(b + 2);
        for (int j = 0; j < 256; j++) {
            int group = j / 16;
            dst[j] =
                d * (float)k.scale[group] * quant_ik_6(code_iq6_k(b, j), (int)(extra >> group & 1));
        }
    }
}

#define DECODER(name, TYPE)                                                                        \
    void quant_decode_##name(const void *src, float *dst, size_t n) {                              \
        decode(QUANT_##TYPE, src, dst, n);                                                         \
    }
DECODER(iq2_k, IQ2_K)
DECODER(iq3_k, IQ3_K)
DECODER(iq4_k, IQ4_K)
DECODER(iq5_k, IQ5_K)
DECODER(iq6_k, IQ6_K)
DECODER(iq2_ks, IQ2_KS)
DECODER(iq3_ks, IQ3_KS)
DECODER(iq2_kl, IQ2_KL)
DECODER(iq4_ks, IQ4_KS)
DECODER(iq5_ks, IQ5_KS)
DECODER(iq4_kss, IQ4_KSS)
DECODER(iq1_kt, IQ1_KT)
DECODER(iq2_kt, IQ2_KT)
DECODER(iq3_kt, IQ3_KT)
DECODER(iq4_kt, IQ4_KT)
