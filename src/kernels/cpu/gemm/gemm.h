/* gemm.h: products of repacked tiles (repack.h) with activations quantized to 8 bits; one table per instruction set.
 *
 * For a tile of 16 rows and a row of activations x, blocks b in ascending order add, with exact integers
 * in the brackets,
 *     one scale:   acc = fma(float[sum codes x] * d_x, d_w, acc), then fma(-min, d_x [sum x], acc)
 *     one per 16:  v = float[first half] * d_w0, v = fma(-min_0, [sum x_0], v),
 *                  v = fma(float[second half], d_w1, v), v = fma(-min_1, [sum x_1], v);
 *                  acc = fma(v, d_x, acc)
 * where the terms with min apply to types that have one. The steps are the same for any number of rows, so the result
 * of a row depends on that row alone, bit for bit. */
#ifndef CHIMERE_KERNELS_CPU_GEMM_H
#define CHIMERE_KERNELS_CPU_GEMM_H

#include "kernels/cpu/gemm/repack.h"

/* A row of activations: int8 q[n_in], then one gemm_act per 32. */
struct gemm_act {
    float d;         /* value = d * q */
    float sum;       /* d * sum of q */
    int32_t total;   /* sum of q; on AVX-512 times -128, to undo codes raised by 128 */
    int32_t half[2]; /* the same for each half */
};
static inline size_t gemm_act_bytes(int64_t n_in) {
    return ((size_t)n_in + (size_t)(n_in / PACK_BLOCK) * sizeof(struct gemm_act) + 63) &
           ~(size_t)63;
}

enum {
    GEMM_ROWS = 256,        /* maximum per call */
    GEMM_Y = 2 * PACK_ROWS, /* floats between rows of y */
    GEMM_CHUNK = 16,        /* blocks unpacked at a time: two tiles stay in the L1 cache */
    GEMM_ROOM = 2 * GEMM_CHUNK * (8 + 4) * 64, /* bytes of scratch per thread for them */
};

struct gemm_call {
    const struct repack_form *form;
    const uint8_t *tile[2];
    int n_tile; /* 1 or 2, of the same form and width */
    int64_t n_in;
    const uint8_t *acts; /* the tile's first column of row 0; see gemm_set_acts */
    size_t act_bytes;    /* between rows */
    int64_t gap;         /* from there to its gemm_act */
    const int32_t *rows; /* [n_row]: indices of rows in acts; NULL: 0, 1, ... */
    int n_row;
    float *y;      /* [n_row][GEMM_Y]: 16 results of tile 0, then of tile 1; 64-byte aligned */
    uint8_t *room; /* GEMM_ROOM bytes, 64-byte aligned */
};

/* The tile multiplies columns x0, x0 + 1, ... of rows with n_x columns. */
static inline void gemm_set_acts(struct gemm_call *c, const uint8_t *rows, int64_t n_x,
                                 int64_t x0) {
    c->acts = rows + x0;
    c->act_bytes = gemm_act_bytes(n_x);
    c->gap = n_x - x0 + x0 / PACK_BLOCK * (int64_t)sizeof(struct gemm_act);
}

struct gemm {
    void (*quantise)(const float *x, int64_t n_in, uint8_t *row);
    void (*tiles)(const struct gemm_call *c);
    /* y[i][j] = sum of w[j] x[i], float weights (F32, F16, BF16) of n_w rows row_bytes apart */
    void (*floats)(uint32_t type, const void *w, size_t row_bytes, int n_w, int64_t n_in,
                   const float *x, int64_t x_stride, int n_x, float *y, int64_t y_stride);
};

extern const struct gemm gemm_avx2, gemm_avxvnni, gemm_avx512, gemm_neon;

#endif
