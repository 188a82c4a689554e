/* quant_impl.h: shared by the codecs: loads, stores, and the codec functions that the traits table names. Blocks are
 * read and written bytewise, so they need no alignment; all fields are little-endian. */
#ifndef CHIMERE_FORMAT_QUANT_IMPL_H
#define CHIMERE_FORMAT_QUANT_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "format/quant.h"

enum { QUANT_SUPER = 256 }; /* elements of a super-block (K, IQ and TQ types) */

static inline uint16_t load_u16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline uint32_t load_u32(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline float load_f16(const uint8_t *p) { return quant_f16_to_f32(load_u16(p)); }
static inline void store_u16(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}
static inline void store_u32(uint8_t *p, uint32_t v) {
    store_u16(p, v);
    store_u16(p + 2, v >> 16);
}

/* X(name): quant_decode_NAME, quant_encode_NAME */
/* clang-format off */
#define QUANT_CODECS(X) \
    X(f32) X(f64) X(f16) X(bf16) X(q4_0) X(q4_1) X(q5_0) X(q5_1) X(q8_0) X(q2_k) X(q3_k) \
    X(q4_k) X(q5_k) X(q6_k) X(iq1_s) X(iq1_m) X(iq2_xxs) X(iq2_xs) X(iq2_s) X(iq3_xxs) \
    X(iq3_s) X(iq4_nl) X(iq4_xs) X(mxfp4) X(tq1_0) X(tq2_0) X(iq2_k) X(iq3_k) X(iq4_k) \
    X(iq5_k) X(iq6_k) X(iq4_ks) X(iq2_ks) X(iq4_kss) X(iq5_ks) X(iq3_ks) X(iq2_kl) \
    X(iq1_kt) X(iq2_kt) X(iq3_kt) X(iq4_kt) /* the trellis types are not encoded */
/* clang-format on */

#define X(name)                                                                                    \
    void quant_decode_##name(const void *src, float *dst, size_t n);                               \
    bool quant_encode_##name(const float *src, void *dst, size_t n, const float *weights);
QUANT_CODECS(X)
#undef X

#endif
