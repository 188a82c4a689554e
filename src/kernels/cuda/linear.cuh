/* linear.cuh: rows of a matrix times floats, and tiles: what linear and the mixture of experts share.
 *
 * Few tokens with activations as floats (precise mode, experts of floats): a group of up to 32 lanes
 * takes a row, each lane every group-th unit of 32; the activations lie in shared memory. rows8.cuh is
 * what decoding usually takes.
 * Many tokens (prefill): tiles of decoded weights in halves times tiles of activations in halves on the
 * tensor cores, accumulated in float. Each row of activations is scaled to its own largest value. */
#ifndef CHIMERE_KERNELS_CUDA_LINEAR_CUH
#define CHIMERE_KERNELS_CUDA_LINEAR_CUH

#include "kernels/cuda/portable.cuh"
#include "kernels/cuda/rows8.cuh"
#include "kernels/cuda/unpack.cuh"

enum {
    VEC_THREADS = 256,
    VEC_ROWS = 2,   /* rows of a group of lanes */
    VEC_TOKS = 4,   /* tokens of one pass over the weights, floats */
    VEC8_TOKS = 8,  /* the same, bytes */
    STEP_TOKS = 16, /* up to here: vectors; beyond: tiles */
};

static __host__ __device__ inline size_t act_room_bytes(int64_t n_in, int n_tok) {
    return (size_t)n_tok * (size_t)((n_in + 31) / 32 * 32) * 4;
}

/* Rows of x to shared memory, zero-padded to whole units. */
static __device__ __forceinline__ const float *act_load(uint8_t *room, const float *x,
                                                        int64_t x_stride, int n_tok, int n_in) {
    float *f = (float *)room;
    int padded = (n_in + 31) / 32 * 32;
    for (int t = 0; t < n_tok; t++)
        for (int i = (int)threadIdx.x; i < padded; i += (int)blockDim.x)
            f[t * padded + i] = i < n_in ? x[t * x_stride + i] : 0.0f;
    __syncthreads();
    return f;
}

static __host__ __device__ inline bool is_number_form(int form) {
    return form == FORM_F32 || form == FORM_F16 || form == FORM_BF16;
}

static __host__ __device__ inline int float_lanes_of(const planes &w) {
    return is_number_form(w.form) ? 32 : lanes_of(w);
}

/* out[r][t] = row (first + r) of w times token t, r < VEC_ROWS, in every lane of the group. Rows beyond
 * n_row are read as the last one. a: [n_tok, n_unit * 32], in shared memory. */
template <int F, int NT>
__device__ __forceinline__ void quant_rows(const planes &w, int64_t mat, int64_t first, int lane,
                                           int group, const grid_tables &g, const float *a,
                                           int n_tok, float out[VEC_ROWS][NT]) {
    for (int r = 0; r < VEC_ROWS; r++) {
        int64_t row = first + r < w.n_row ? first + r : w.n_row - 1;
        float sum[NT];
#pragma unroll
        for (int t = 0; t < NT; t++) sum[t] = 0.0f;
        for (int u = lane; u < w.n_unit; u += group) {
            raw<F> code;
            unpacked v;
            load_unit<F>(code, w, (mat * w.n_row + row) * w.n_unit + u);
            unpack<F>(code, g, v);
#pragma unroll
            for (int t = 0; t < NT; t++) {
                if (t >= n_tok) break;
                const float *x = a + ((int64_t)t * w.n_unit + u) * 32;
#pragma unroll
                for (int i = 0; i < 8; i++)
#pragma unroll
                    for (int b = 0; b < 4; b++)
                        sum[t] +=
                            (v.scale[i / 4] * (float)(int8_t)(v.q[i] >> 8 * b) - v.offset[i / 4]) *
                            x[4 * i + b];
            }
        }
#pragma unroll
        for (int t = 0; t < NT; t++) out[r][t] = lanes_sum(sum[t], group);
    }
}

__device__ __forceinline__ float number_at(const planes &w, int64_t at) {
    if (w.form == FORM_F32) return ((const float *)w.codes)[at];
    uint16_t h = ((const uint16_t *)w.codes)[at];
    if (w.form == FORM_F16) return to_float(h);
    return __int_as_float((int)((uint32_t)h << 16));
}

/* The same for rows of numbers, whole warps a row. */
template <int NT>
__device__ __forceinline__ void float_rows(const planes &w, int64_t mat, int64_t first, int lane,
                                           int group, const float *a, int n_tok,
                                           float out[VEC_ROWS][NT]) {
    int padded = (w.n_in + 31) / 32 * 32;
    for (int r = 0; r < VEC_ROWS; r++) {
        int64_t row = first + r < w.n_row ? first + r : w.n_row - 1;
        int64_t base = (mat * w.n_row + row) * w.n_in;
        float sum[NT];
#pragma unroll
        for (int t = 0; t < NT; t++) sum[t] = 0.0f;
        for (int i = lane; i < w.n_in; i += group) {
            float v = number_at(w, base + i);
#pragma unroll
            for (int t = 0; t < NT; t++)
                if (t < n_tok) sum[t] += v * a[t * padded + i];
        }
#pragma unroll
        for (int t = 0; t < NT; t++) out[r][t] = lanes_sum(sum[t], group);
    }
}

/* clang-format off */
#ifndef FOR_EACH_FORM /* a lab's build may define fewer */
#define FOR_EACH_FORM(X) \
    X(FORM_I8) X(FORM_I8X) X(FORM_N4) X(FORM_N4M) X(FORM_N5) X(FORM_N5M) X(FORM_N4K) X(FORM_N5K) \
    X(FORM_N6K) X(FORM_N3K) X(FORM_N2K) X(FORM_T4) X(FORM_T4K) X(FORM_TFP4) X(FORM_G3S) \
    X(FORM_G3XXS) X(FORM_G2XXS) X(FORM_G2XS) X(FORM_G2S)
#endif
/* clang-format on */

template <int NT>
__device__ __forceinline__ void any_rows(const planes &w, int64_t mat, int64_t first, int lane,
                                         int group, const grid_tables &g, const float *a, int n_tok,
                                         float out[VEC_ROWS][NT]) {
    switch (w.form) {
#define X(F)                                                                                       \
    case F: quant_rows<F, NT>(w, mat, first, lane, group, g, a, n_tok, out); break;
        FOR_EACH_FORM(X)
#undef X
    default: float_rows<NT>(w, mat, first, lane, group, a, n_tok, out);
    }
}

/* ---- tiles ---- */

enum {
    TILE_M = 128, /* rows of weights */
    TILE_K = 64,
    TILE_THREADS = 256,
    TILE_STRIDE = TILE_K + 8, /* halves: fragments of 8 rows then lie in 32 different banks */
};

static __host__ __device__ inline size_t tile_shared(int n) {
    return (size_t)(TILE_M + n) * TILE_STRIDE * 2;
}

/* 32 elements of a row as halves; beyond the matrix: zeros. */
__device__ __forceinline__ void decode_halves(const planes &w, int64_t row, int u,
                                              const grid_tables &g, uint32_t out[16]) {
    unpacked v;
    switch (w.form) {
#define X(F)                                                                                       \
    case F: {                                                                                      \
        raw<F> r;                                                                                  \
        load_unit<F>(r, w, row * w.n_unit + u);                                                    \
        unpack<F>(r, g, v);                                                                        \
        break;                                                                                     \
    }
        FOR_EACH_FORM(X)
#undef X
    default:
#pragma unroll
        for (int i = 0; i < 16; i++) {
            int k = u * 32 + 2 * i;
            float a = k < w.n_in ? number_at(w, row * w.n_in + k) : 0.0f;
            float b = k + 1 < w.n_in ? number_at(w, row * w.n_in + k + 1) : 0.0f;
            out[i] = two_halves(a, b);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float s = v.scale[i / 4], o = v.offset[i / 4];
        out[2 * i] =
            two_halves(s * (float)(int8_t)v.q[i] - o, s * (float)(int8_t)(v.q[i] >> 8) - o);
        out[2 * i + 1] = two_halves(s * (float)(int8_t)(v.q[i] >> 16) - o,
                                    s * (float)(int8_t)(v.q[i] >> 24) - o);
    }
}

/* acc of the warp's part of a TILE_M x N tile: warp w has rows 32 (w % 4) .. and columns
 * N/2 (w / 4) ..; acc[m][n][4] as mma_16816 has it. Rows are first .. of matrix mat; column j is row
 * cols[j] of x (negative: none), halves of stride k_halves (a multiple of TILE_K, zero-padded). */
template <int N>
__device__ __forceinline__ void
tile_product(const planes &w, int64_t mat, int64_t first, const uint16_t *x, int64_t k_halves,
             const int32_t *cols, const grid_tables &g, uint16_t *shared, float acc[2][N / 16][4]) {
    uint16_t *sa = shared, *sb = shared + TILE_M * TILE_STRIDE;
    int tid = (int)threadIdx.x, lane = tid % 32, warp = tid / 32;
    int gr = lane / 4, tc = lane % 4;
    int64_t row = first + tid / 2;
    bool has_row = row < w.n_row;
    row += mat * w.n_row;
    int n_unit = (w.n_in + 31) / 32;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < N / 16; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) acc[m][n][i] = 0.0f;
    for (int k = 0; k < n_unit * 32; k += TILE_K) {
        uint32_t part[16];
        int u = k / 32 + tid % 2;
        if (has_row && u < n_unit) decode_halves(w, row, u, g, part);
        else
#pragma unroll
            for (int i = 0; i < 16; i++) part[i] = 0;
        uint4 *dst = (uint4 *)(sa + tid / 2 * TILE_STRIDE + tid % 2 * 32);
#pragma unroll
        for (int i = 0; i < 4; i++)
            dst[i] = make_uint4(part[4 * i], part[4 * i + 1], part[4 * i + 2], part[4 * i + 3]);
        for (int i = tid; i < N * (TILE_K / 8); i += TILE_THREADS) {
            int col = i / (TILE_K / 8), at = i % (TILE_K / 8) * 8;
            int32_t from = cols[col];
            uint4 v = make_uint4(0, 0, 0, 0);
            if (from >= 0) v = *(const uint4 *)(x + from * k_halves + k + at);
            *(uint4 *)(sb + col * TILE_STRIDE + at) = v;
        }
        __syncthreads();
#pragma unroll
        for (int kk = 0; kk < TILE_K; kk += 16) {
            uint32_t a[2][4];
#pragma unroll
            for (int m = 0; m < 2; m++) {
                const uint16_t *p = sa + (warp % 4 * 32 + m * 16 + gr) * TILE_STRIDE + kk + 2 * tc;
                a[m][0] = *(const uint32_t *)p;
                a[m][1] = *(const uint32_t *)(p + 8 * TILE_STRIDE);
                a[m][2] = *(const uint32_t *)(p + 8);
                a[m][3] = *(const uint32_t *)(p + 8 * TILE_STRIDE + 8);
            }
#pragma unroll
            for (int n = 0; n < N / 16; n++) {
                const uint16_t *p =
                    sb + (warp / 4 * (N / 2) + n * 8 + gr) * TILE_STRIDE + kk + 2 * tc;
                uint32_t b[2] = {*(const uint32_t *)p, *(const uint32_t *)(p + 8)};
                mma_16816(acc[0][n], a[0], b);
                mma_16816(acc[1][n], a[1], b);
            }
        }
        __syncthreads();
    }
}

/* Row and column (within the tile) of acc[m][n][i]. */
__device__ __forceinline__ int tile_row(int m, int i) {
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    return warp % 4 * 32 + m * 16 + lane / 4 + i / 2 * 8;
}
template <int N> __device__ __forceinline__ int tile_col(int n, int i) {
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    return warp / 4 * (N / 2) + n * 8 + 2 * (lane % 4) + i % 2;
}

static __host__ __device__ inline int64_t halves_of(int64_t n) {
    return (n + TILE_K - 1) / TILE_K * TILE_K;
}

struct cuda;
/* Rows as halves, each divided by a power of two that brings its largest value near 1,024; scale: what
 * was divided by. out: [n_row][halves_of(n)], zero-padded. */
void cuda_to_halves(struct cuda *c, const float *x, int64_t stride, int32_t n_row, int64_t n,
                    uint16_t *out, float *scale);

#endif
