/* quant_iq1.c: 1-bit grid types: groups of 8 are a point of {-1, 0, 1}^8 (2048 points), shifted by 1/8
 * up or down.
 *
 * | type  | fields: offset name                                | scale of | shift of | value               |
 * |-------|----------------------------------------------------|----------|----------|---------------------|
 * | iq1_s | 0 f16 d, 2 u8 index[32], 34 u16 qh[8]              | 32       | 32       | d (2 s + 1) (g + t) |
 * | iq1_m | 0 u8 index[32], 32 u8 qh[16], 48 u16 scales[4]     | 16       | 8        | d (2 s + 1) (g + t) |
 *
 * iq1_s: qh[b] = 3 index bits of group l at 3 l, s at 12 (3 bits), shift -1/8 if bit 15 is set.
 * iq1_m: nibble group % 2 of qh[group / 2]: 3 index bits, then the shift's sign. scales[w]: four 3-bit s
 * from bit 0, of elements 64 w + 16 k; their four top nibbles, lowest word first, are the f16 d.
 */
#include "format/quant_codebook.h"
#include "format/quant_grid.h"
#include "format/quant_impl.h"

static inline void decode_8(uint64_t point, float shift, float scale, float *dst) {
    for (int j = 0; j < 8; j++) dst[j] = scale * ((float)(int8_t)(point >> 8 * j) + shift);
}

void quant_decode_iq1_s(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 50) {
        float d = load_f16(b);
        for (int sub = 0; sub < 8; sub++) {
            uint32_t qh = load_u16(b + 34 + sub * 2);
            float scale = d * (float)(2 * (qh >> 12 & 7) + 1), shift = qh >> 15 ? -0.125f : 0.125f;
            for (int l = 0; l < 4; l++, dst += 8)
                decode_8(quant_grid_iq1[b[2 + sub * 4 + l] | (qh >> 3 * l & 7) << 8], shift, scale,
                         dst);
        }
    }
}

void quant_decode_iq1_m(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 56) {
        uint32_t bits = 0;
        for (int w = 0; w < 4; w++) bits |= (uint32_t)(load_u16(b + 48 + w * 2) >> 12) << 4 * w;
        float d = quant_f16_to_f32((uint16_t)bits);
        for (int group = 0; group < 32; group++, dst += 8) {
            uint32_t s = load_u16(b + 48 + group / 8 * 2) >> group % 8 / 2 * 3 & 7;
            uint32_t high = b[32 + group / 2] >> group % 2 * 4;
            decode_8(quant_grid_iq1[b[group] | (high & 7) << 8], high & 8 ? -0.125f : 0.125f,
                     d * (float)(2 * s + 1), dst);
        }
    }
}

bool quant_encode_iq1_s(const float *src, void *dst, size_t n, const float *weights) {
    struct grid_result r;
    uint8_t *b = dst;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 50) {
        quant_grid_encode(&quant_format_iq1_s, src + i, weights ? weights + i : NULL, &r);
        store_u16(b, r.d);
        for (int sub = 0; sub < 8; sub++) {
            const struct grid_code *c = r.code + sub * 4;
            uint32_t qh = (uint32_t)r.k[sub] << 12 | (uint32_t)c[0].down << 15;
            for (int l = 0; l < 4; l++) {
                b[2 + sub * 4 + l] = (uint8_t)c[l].index[0];
                qh |= (uint32_t)(c[l].index[0] >> 8) << 3 * l;
            }
            store_u16(b + 34 + sub * 2, qh);
        }
    }
    return true;
}

bool quant_encode_iq1_m(const float *src, void *dst, size_t n, const float *weights) {
    struct grid_result r;
    uint8_t *b = dst;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 56) {
        quant_grid_encode(&quant_format_iq1_m, src + i, weights ? weights + i : NULL, &r);
        memset(b + 32, 0, 16);
        for (int o = 0; o < 32; o++) {
            b[o] = (uint8_t)r.code[o].index[0];
            b[32 + o / 2] |=
                (uint8_t)((r.code[o].index[0] >> 8 | r.code[o].down << 3) << o % 2 * 4);
        }
        for (int word = 0; word < 4; word++) {
            uint32_t v = (uint32_t)(r.d >> 4 * word & 15) << 12;
            for (int k = 0; k < 4; k++) v |= (uint32_t)r.k[word * 4 + k] << 3 * k;
            store_u16(b + 48 + word * 2, v);
        }
    }
    return true;
}
