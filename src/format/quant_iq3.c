/* quant_iq3.c: 3-bit grid types: groups of 4 magnitudes are a point of a grid; signs are stored separately.
 *
 * | type    | fields: offset name                                                    | scale of | value           |
 * |---------|------------------------------------------------------------------------|----------|-----------------|
 * | iq3_xxs | 0 f16 d, 2 u8 index[64], 66 u32 signs_scale[8]                         | 32       | d (s + 1/2)/2 g |
 * | iq3_s   | 0 f16 d, 2 u8 index[64], 66 u8 qh[8], 74 u8 signs[32], 106 u8 scales[4] | 32      | d (2 s + 1) g   |
 *
 * iq3_xxs: 256 points; signs7 of the l-th 8 in bits 7 l of signs_scale, s its top 4 bits.
 * iq3_s: 512 points, bit k of qh[b] tops index k of the 32; all signs stored; s of b in nibble b % 2 of
 * scales[b / 2].
 */
#include "format/quant_codebook.h"
#include "format/quant_grid.h"
#include "format/quant_impl.h"

static inline void decode_4(uint32_t point, uint32_t signs, float scale, float *dst) {
    for (int j = 0; j < 4; j++) {
        float v = scale * (float)(uint8_t)(point >> 8 * j);
        dst[j] = signs >> j & 1 ? -v : v;
    }
}

void quant_decode_iq3_xxs(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 98) {
        float d = load_f16(b);
        for (int sub = 0; sub < 8; sub++) {
            const uint8_t *q = b + 2 + sub * 8;
            uint32_t rest = load_u32(b + 66 + sub * 4);
            float scale = d * (0.5f + (float)(rest >> 28)) * 0.5f;
            for (int l = 0; l < 4; l++, dst += 8) {
                uint32_t signs = quant_signs7(rest >> 7 * l);
                decode_4(quant_grid_iq3xxs[q[2 * l]], signs, scale, dst);
                decode_4(quant_grid_iq3xxs[q[2 * l + 1]], signs >> 4, scale, dst + 4);
            }
        }
    }
}

void quant_decode_iq3_s(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 110) {
        float d = load_f16(b);
        for (int sub = 0; sub < 8; sub++) {
            float scale = d * (float)(1 + 2 * (b[106 + sub / 2] >> sub % 2 * 4 & 15));
            for (int k = 0; k < 8; k++, dst += 4) {
                uint32_t index = b[2 + sub * 8 + k] | (b[66 + sub] >> k & 1u) << 8;
                uint32_t signs = b[74 + sub * 4 + k / 2] >> k % 2 * 4;
                decode_4(quant_grid_iq3s[index], signs, scale, dst);
            }
        }
    }
}

bool quant_encode_iq3_xxs(const float *src, void *dst, size_t n, const float *weights) {
    struct grid_result r;
    uint8_t *b = dst;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 98) {
        quant_grid_encode(&quant_format_iq3_xxs, src + i, weights ? weights + i : NULL, &r);
        store_u16(b, r.d);
        for (int sub = 0; sub < 8; sub++) {
            uint32_t rest = (uint32_t)r.k[sub] << 28;
            for (int l = 0; l < 4; l++) {
                const struct grid_code *c = &r.code[sub * 4 + l];
                b[2 + sub * 8 + l * 2] = (uint8_t)c->index[0];
                b[2 + sub * 8 + l * 2 + 1] = (uint8_t)c->index[1];
                rest |= (c->signs & 127u) << 7 * l;
            }
            store_u32(b + 66 + sub * 4, rest);
        }
    }
    return true;
}

bool quant_encode_iq3_s(const float *src, void *dst, size_t n, const float *weights) {
    struct grid_result r;
    uint8_t *b = dst;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 110) {
        quant_grid_encode(&quant_format_iq3_s, src + i, weights ? weights + i : NULL, &r);
        store_u16(b, r.d);
        memset(b + 66, 0, 8);
        for (int o = 0; o < 32; o++) {
            const struct grid_code *c = &r.code[o];
            b[2 + o * 2] = (uint8_t)c->index[0];
            b[2 + o * 2 + 1] = (uint8_t)c->index[1];
            b[66 + o / 4] |= (uint8_t)((c->index[0] >> 8 | c->index[1] >> 8 << 1) << o % 4 * 2);
            b[74 + o] = c->signs;
        }
        for (int pair = 0; pair < 4; pair++)
            b[106 + pair] = (uint8_t)(r.k[2 * pair] | r.k[2 * pair + 1] << 4);
    }
    return true;
}
