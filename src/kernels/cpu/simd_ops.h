/* simd_ops.h: tables of the kernels that are written once in *.inc over a vector of 16 floats and
 * compiled per instruction set. */
#ifndef CHIMERE_KERNELS_CPU_SIMD_OPS_H
#define CHIMERE_KERNELS_CPU_SIMD_OPS_H

#include "kernels/ops.h"

/* Computes hidden values from rows of 16 gates followed by 16 ups. */
struct glu {
    enum act act;
    int n;      /* values per row, <= 16 */
    bool gated; /* act(gate * scale + bias) * (up + up_bias); else act(up + up_bias) */
    float scale;
    const float *bias, *up_bias; /* [n] or NULL */
};

/* Rows of floats; any n, any alignment. */
struct simd_elem {
    void (*act_mul)(float *out, const float *a, const float *b, int64_t n, enum act act);
    void (*rms_row)(float *out, const float *x, const float *w, int64_t n, float eps);
    void (*layer_row)(float *out, const float *x, const float *w, const float *b, int64_t n,
                      float eps);
    void (*axpby)(float *y, float alpha, const float *x, float beta, int64_t n);
    void (*add_scaled)(float *out, float w, const float *y, float scale, const float *bias,
                       int64_t n);
    void (*glu)(const struct glu *g, const float *y, int64_t y_stride, int n_row, float *out,
                int64_t out_stride);
};
extern const struct simd_elem simd_elem_avx512, simd_elem_avx2, simd_elem_neon;

/* Attention of query rows [first, first + n_row) of one span (token-major, the query heads of kv head `kv_head`), and
 * storing one token's queries, keys and values. */
enum { SIMD_ATTN_ROWS = 32 };
struct simd_attn {
    void (*store)(const struct qkv_store_args *a, const struct span *s, int32_t i, float *room);
    void (*rows)(const struct attn_args *a, const struct span *s, int32_t kv_head, int32_t first,
                 int32_t n_row, float *room);
    void (*full)(const struct attn_full_args *a, const struct span *s, int32_t head, int32_t first,
                 int32_t n_row, float *room);
};
extern const struct simd_attn simd_attn_avx512, simd_attn_avx2, simd_attn_neon;
static inline size_t simd_attn_room(int64_t d_head) { /* keys, values, queries, sums, scores */
    size_t d = ((size_t)d_head + 15) & ~(size_t)15;
    return 2 * KV_PAGE * d + 2 * SIMD_ATTN_ROWS * d + SIMD_ATTN_ROWS * KV_PAGE;
}

#endif
