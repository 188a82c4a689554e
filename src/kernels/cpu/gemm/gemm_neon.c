/* gemm_neon.c: products of repacked weights with the dot product instructions of ARMv8.2. */
#include "kernels/cpu/simd_neon.h"

struct lookup {
    int8x16x4_t table;
};

SIMD struct lookup lookup_of(const int8_t *values) {
    struct lookup l;
    for (int i = 0; i < 4; i++) l.table.val[i] = vld1q_s8(values + 16 * i);
    return l;
}

SIMD void lookup_64(const struct lookup *l, int bits, uint8_t *codes) {
    for (int i = 0; i < 64; i += 16) {
        uint8x16_t c = vld1q_u8(codes + i);
        int8x16_t v = bits <= 4 ? vqtbl1q_s8(l->table.val[0], c) : vqtbl4q_s8(l->table, c);
        vst1q_u8(codes + i, vreinterpretq_u8_s8(v));
    }
}

SIMD vf dot_16(const int8_t *w, int n, const int8_t *q) {
    int32x4_t acc[4] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
    for (int j = 0; j < n; j++) {
        int32_t word;
        memcpy(&word, q + 4 * j, 4);
        int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(word));
        for (int i = 0; i < 4; i++) acc[i] = vdotq_s32(acc[i], vld1q_s8(w + 64 * j + 16 * i), x);
    }
    return vf_from_i32(acc);
}

#include "kernels/cpu/gemm/gemm.inc"
