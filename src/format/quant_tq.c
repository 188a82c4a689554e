/* quant_tq.c: ternary types: 256 codes q of 0, 1, 2 and one scale; value d (q - 1).
 *
 * | type  | fields: offset name                                 | codes                                 |
 * |-------|-----------------------------------------------------|---------------------------------------|
 * | tq1_0 | 0 u8 qs[48], 48 u8 qh[4], 52 f16 d                  | 5 (qh: 4) to a byte, base 3           |
 * | tq2_0 | 0 u8 qs[64], 64 f16 d                               | 4 to a byte, 2 bits each              |
 *
 * tq1_0: byte j of qs[0..32) holds elements j + 32 t, t = 0..4; byte 32 + j elements 160 + j + 16 t;
 * byte j of qh elements 240 + j + 4 t, t = 0..3. The number formed by the digits (first element highest; a fifth
 * digit of 0 if there are four) is scaled to ceil(number * 256 / 243). So multiplying the byte by 3^t modulo 256 and
 * then by 3 leaves digit t above bit 8, without a division.
 * tq2_0: element 128 h + 32 t + j is bits 2 t of qs[32 h + j].
 */
#include <math.h>

#include "format/quant_impl.h"
#include "format/quant_search.h"

static const uint8_t pow3[5] = {1, 3, 9, 27, 81};

static inline int tq1_digit(uint8_t byte, int t) { return (uint8_t)(byte * pow3[t]) * 3 >> 8; }

/* The byte ranges of tq1_0: `bytes` bytes from `at` hold `digits` elements each, `bytes` apart. */
static const struct { int at, bytes, digits; } tq1_runs[3] = {{0, 32, 5}, {32, 16, 5}, {48, 4, 4}};

void quant_decode_tq1_0(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 54) {
        float d = load_f16(b + 52);
        for (int r = 0; r < 3; r++)
            for (int t = 0; t < tq1_runs[r].digits; t++)
                for (int j = 0; j < tq1_runs[r].bytes; j++)
                    *dst++ = (float)(tq1_digit(b[tq1_runs[r].at + j], t) - 1) * d;
    }
}

void quant_decode_tq2_0(const void *src, float *dst, size_t n) {
    const uint8_t *b = src;
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 66) {
        float d = load_f16(b + 64);
        for (int half = 0; half < 2; half++)
            for (int t = 0; t < 4; t++)
                for (int j = 0; j < 32; j++)
                    *dst++ = (float)((b[half * 32 + j] >> 2 * t & 3) - 1) * d;
    }
}

/* One scale for all 256: nearest of -d, 0, d with the least-squares d. A block that already has the form d {-1, 0, 1}
 * is reproduced exactly, up to the precision of f16. */
static uint16_t fit_ternary(const float *src, const float *weights, uint8_t *codes) {
    static const struct levels levels = {-1, 1, NULL, NULL};
    static const struct scan scan = {0.6f, 0.15f, 40};
    float x[QUANT_SUPER], w[QUANT_SUPER], d = 0;
    if (quant_search_load(src, weights, QUANT_SUPER, x, w) > 0)
        d = fabsf(quant_search_symmetric(x, w, QUANT_SUPER, &levels, scan).scale);
    uint16_t half = quant_search_f16(d);
    quant_search_codes(x, QUANT_SUPER, &levels, quant_f16_to_f32(half), 0, codes);
    return half;
}

bool quant_encode_tq1_0(const float *src, void *dst, size_t n, const float *weights) {
    uint8_t *b = dst, codes[QUANT_SUPER];
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 54) {
        store_u16(b + 52, fit_ternary(src + i, weights ? weights + i : NULL, codes));
        const uint8_t *c = codes;
        for (int r = 0; r < 3; r++) {
            int bytes = tq1_runs[r].bytes, digits = tq1_runs[r].digits;
            for (int j = 0; j < bytes; j++) {
                int number = 0;
                for (int t = 0; t < 5; t++)
                    number = number * 3 + (t < digits ? c[t * bytes + j] : 0);
                b[tq1_runs[r].at + j] = (uint8_t)((number * 256 + 242) / 243);
            }
            c += bytes * digits;
        }
    }
    return true;
}

bool quant_encode_tq2_0(const float *src, void *dst, size_t n, const float *weights) {
    uint8_t *b = dst, codes[QUANT_SUPER];
    for (size_t i = 0; i < n; i += QUANT_SUPER, b += 66) {
        store_u16(b + 64, fit_ternary(src + i, weights ? weights + i : NULL, codes));
        for (int half = 0; half < 2; half++)
            for (int j = 0; j < 32; j++) {
                const uint8_t *c = codes + half * 128 + j;
                b[half * 32 + j] = (uint8_t)(c[0] | c[32] << 2 | c[64] << 4 | c[96] << 6);
            }
    }
    return true;
}
