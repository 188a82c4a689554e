/* gemv_float.cuh: rows of a matrix times float activations; shared by linear and the mixture of experts.
 *
 * For few tokens whose activations stay floats (precise mode, unquantized experts). A group of up to 32 lanes computes
 * a row; a lane takes every group-th unit of 32. The activations are in shared memory. Decoding normally uses
 * gemv_int8.cuh, prefill gemm.cuh. */
#ifndef CHIMERE_KERNELS_CUDA_GEMV_FLOAT_CUH
#define CHIMERE_KERNELS_CUDA_GEMV_FLOAT_CUH

#include "kernels/cuda/portable.cuh"
#include "kernels/cuda/gemv_int8.cuh"
#include "kernels/cuda/dequant.cuh"

enum {
    VEC_THREADS = 256,
    VEC_ROWS = 2,   /* rows per group of lanes */
    VEC_TOKS = 4,   /* tokens per pass over the weights, f32 activations */
    VEC8_TOKS = 8,  /* the same, 8-bit activations */
    STEP_TOKS = 16, /* up to this many tokens: GEMV; more: GEMM */
};

static __host__ __device__ inline size_t act_room_bytes(int64_t n_in, int n_tok) {
    return (size_t)n_tok * (size_t)((n_in + 31) / 32 * 32) * 4;
}

/* Copies rows of x to shared memory, zero-padded to whole units. */
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

/* out[r][t] = row (first + r) of w times token t, r < VEC_ROWS, in every lane of the group. Row indices beyond n_row
 * are clamped to the last row. a: [n_tok, n_unit * 32], in shared memory. */
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

/* The same for unquantized rows, whole warps per row. */
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
#ifndef FOR_EACH_FORM /* a laboratory build may define fewer */
#define FOR_EACH_FORM(X) \
    X(FORM_I8) X(FORM_I8X) X(FORM_N4) X(FORM_N4M) X(FORM_N5) X(FORM_N5M) X(FORM_N4K) X(FORM_N5K) \
    X(FORM_N6K) X(FORM_N3K) X(FORM_N2K) X(FORM_T4) X(FORM_T4K) X(FORM_TFP4) X(FORM_O4) \
    X(FORM_G3S) \
    X(FORM_G3XXS) X(FORM_G2XXS) X(FORM_G2XS) X(FORM_G2S) \
    X(FORM_X6K) X(FORM_X5K) X(FORM_X5S) \
    X(FORM_X4K) X(FORM_X4S) X(FORM_X3K) X(FORM_X3S) X(FORM_X2K) X(FORM_X2S) \
    X(FORM_K4) X(FORM_K3) X(FORM_K2)
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

#endif
