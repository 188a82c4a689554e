/* quant_iq2.c: 2-bit grid types: groups of 8 magnitudes are a point of a grid; signs are stored separately.
 *
 * | type    | fields: offset name                                             | scale of | value                  |
 * |---------|-----------------------------------------------------------------|----------|------------------------|
 * | iq2_xxs | 0 f16 d, 2 {u8 index[4], u32 signs_scale}[8]                    | 32       | d (s + 1/2) / 4 g      |
 * | iq2_xs  | 0 f16 d, 2 u16 index_sign[32], 66 u8 scales[8]                  | 16       | d (s + 1/2) / 4 g      |
 * | iq2_s   | 0 f16 d, 2 u8 index[32], 34 u8 signs[32], 66 u8 qh[8], 74 u8 scales[8] | 16 | d (s + 1/2) / 4 g     |
 *
 * iq2_xxs: group l of a 32: index[l] (256 points), signs7 in bits 7 l of signs_scale, s its top 4 bits.
 * iq2_xs: low 9 bits index (512 points), high 7 bits signs7; s of elements 16..31 of a 32 is the high
 * nibble. iq2_s: index topped by bits 2 l of qh[b] (1024 points), all 8 signs stored; scales likewise.
 */
#include "format/quant_codebook.h"
#include "format/quant_grid.h"
#include "format/quant_impl.h"

static inline void decode_8(uint64_t point, uint8_t signs, float scale, float *dst) {
    for (int j = 0; j < 8; j++) {
        float v = scale * (float)(uint8_t)(point >> 8 * j);
        dst[j] = signs >> j & 1 ? -v : v;
    }
}

static inline float iq2_scale(float d, int s) { return d * (0.5f + (float)s) * 0.25f; }

void quant_decode_iq2_xxs(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 66) {
        float d = load_f16(b);
        for (int sub = 0; sub < 8; sub++) {
            const uint8_t *q = b + 2 + sub * 8;
            uint32_t rest = load_u32(q + 4);
            float scale = iq2_scale(d, (int)(rest >> 28));
            for (int l = 0; l < 4; l++, dst += 8)
                decode_8(quant_grid_iq2xxs[q[l]], quant_signs7(rest >> 7 * l), scale, dst);
        }
    }
}

void quant_decode_iq2_xs(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 74) {
        float d = load_f16(b);
        for (int group = 0; group < 32; group++, dst += 8) {
            uint32_t q = load_u16(b + 2 + group * 2);
            float scale = iq2_scale(d, b[66 + group / 4] >> group % 4 / 2 * 4 & 15);
            decode_8(quant_grid_iq2xs[q & 511], quant_signs7(q >> 9), scale, dst);
        }
    }
}

void quant_decode_iq2_s(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 82) {
        float d = load_f16(b);
        for (int group = 0; group < 32; group++, dst += 8) {
            uint32_t index = b[2 + group] | (b[66 + group / 4] >> group % 4 * 2 & 3u) << 8;
            float scale = iq2_scale(d, b[74 + group / 4] >> group % 4 / 2 * 4 & 15);
            decode_8(quant_grid_iq2s[index], b[34 + group], scale, dst);
        }
    }
}

/* Signs and scales of four octets, in the layout of iq2_xxs and iq3_xxs. */
static uint32_t signs_scale(const struct grid_code *code, int k) {
    uint32_t v = (uint32_t)k << 28;
    for (int l = 0; l < 4; l++) v |= (code[l].signs & 127u) << 7 * l;
    return v;
}

bool quant_encode_iq2_xxs(const float *src, void *dst, size_t n, const float *weights) {
    struct grid_result r;
    uint8_t *b = dst;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 66) {
        quant_grid_encode(&quant_format_iq2_xxs, src + i, weights ? weights + i : NULL, &r);
        store_u16(b, r.d);
        for (int sub = 0; sub < 8; sub++) {
            uint8_t *q = b + 2 + sub * 8;
            for (int l = 0; l < 4; l++) q[l] = (uint8_t)r.code[sub * 4 + l].index[0];
            store_u32(q + 4, signs_scale(r.code + sub * 4, r.k[sub]));
        }
    }
    return true;
}

bool quant_encode_iq2_xs(const float *src, void *dst, size_t n, const float *weights) {
    struct grid_result r;
    uint8_t *b = dst;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 74) {
        quant_grid_encode(&quant_format_iq2_xs, src + i, weights ? weights + i : NULL, &r);
        store_u16(b, r.d);
        for (int o = 0; o < 32; o++)
            store_u16(b + 2 + o * 2, r.code[o].index[0] | (r.code[o].signs & 127u) << 9);
        for (int sub = 0; sub < 8; sub++)
            b[66 + sub] = (uint8_t)(r.k[2 * sub] | r.k[2 * sub + 1] << 4);
    }
    return true;
}

bool quant_encode_iq2_s(const float *src, void *dst, size_t n, const float *weights) {
    struct grid_result r;
    uint8_t *b = dst;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 82) {
        quant_grid_encode(&quant_format_iq2_s, src + i, weights ? weights + i : NULL, &r);
        store_u16(b, r.d);
        memset(b + 66, 0, 8);
        for (int o = 0; o < 32; o++) {
            b[2 + o] = (uint8_t)r.code[o].index[0];
            b[34 + o] = r.code[o].signs;
            b[66 + o / 4] |= (uint8_t)(r.code[o].index[0] >> 8 << o % 4 * 2);
        }
        for (int sub = 0; sub < 8; sub++)
            b[74 + sub] = (uint8_t)(r.k[2 * sub] | r.k[2 * sub + 1] << 4);
    }
    return true;
}
