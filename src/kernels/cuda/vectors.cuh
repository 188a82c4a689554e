/* vectors.cuh: shared by the kernels for one token and for few: the matrices of a launch, and unquantized rows. */
#ifndef CHIMERE_KERNELS_CUDA_VECTORS_CUH
#define CHIMERE_KERNELS_CUDA_VECTORS_CUH

#include <utility>

#include "kernels/cuda/cuda_impl.cuh"
#include "kernels/cuda/gemv_float.cuh"

/* FEW_WIDE: warps per row of an unquantized matrix, several tokens. */
enum { MAX_OUTS = 8, MAX_SUMS = 16, FEW_WIDE = 4 };

struct out_job {
    planes w;
    const float *bias;
    float *dst;
    int64_t dst_stride;
    float scale;
    int32_t add, first_block, n_block, group;
    int32_t n_part, n_step; /* warps that share a row; steps per warp */
    int32_t n_each, n_more; /* tasks per block; the first n_more blocks have one more */
};
struct linear_job {
    out_job o[MAX_OUTS];
    int32_t n_o, n_tok, step, unused; /* step: tokens per block */
    const float *x;
    int64_t x_stride;
    act8 x8;
    const float *factor; /* [n_tok] or NULL: its logistic function multiplies a row's result */
    norm_row_job norm;   /* x NULL: none; else how to compute the only row of x (n_tok 1) */
};

/* The matrix of this block. */
__device__ __forceinline__ const out_job &own_out(const linear_job &j) {
    int k = 0;
    while (k + 1 < j.n_o && (int)blockIdx.x >= j.o[k + 1].first_block) k++;
    return j.o[k];
}

__device__ __forceinline__ void put(const linear_job &j, const out_job &o, int64_t row, int32_t t,
                                    float sum, float norm = 1.0f) {
    float y = o.scale * norm * sum + (o.bias ? o.bias[row] : 0.0f);
    if (j.factor) y *= logistic(j.factor[t]);
    float *dst = o.dst + t * o.dst_stride + row;
    *dst = o.add ? *dst + y : y;
}

/* Adds, in order, the results of the warps that share a row; sums: from the first of these warps on. */
__device__ __forceinline__ float sum_of_parts(const float (*sums)[MAX_SUMS], int at, int n_part) {
    float y = sums[0][at];
    for (int i = 1; i < n_part; i++) y += sums[i][at];
    return y;
}

/* Four 16-bit floats of form FORM_F16 or FORM_BF16. */
__device__ __forceinline__ float4 four_halves(int form, uint32_t lo, uint32_t hi) {
    if (form == FORM_F16)
        return make_float4(to_float((uint16_t)lo), to_float((uint16_t)(lo >> 16)),
                           to_float((uint16_t)hi), to_float((uint16_t)(hi >> 16)));
    return make_float4(__int_as_float((int)(lo << 16)), __int_as_float((int)(lo & 0xffff0000u)),
                       __int_as_float((int)(hi << 16)), __int_as_float((int)(hi & 0xffff0000u)));
}

/* The activations of a block. */
struct input {
    act8 a;         /* from token 0 of the block on */
    const float *x; /* the same as floats, for unquantized rows */
    int64_t x_stride;
};

/* Unquantized rows times floats: FEW_WIDE warps per row. A lane loads UNITS groups of four weights before pdl_wait. */
template <int UNITS> struct number_rows {
    static constexpr int NT = VEC8_TOKS, LANES = 32 * FEW_WIDE, ROWS = VEC_THREADS / LANES;
    const linear_job &j;
    const out_job &o;
    int lane, n_quad;
    int64_t own, row;

    /* block: the block's index in the launch, over all matrices */
    __device__ __forceinline__ number_rows(const linear_job &j_, const out_job &o_, int block)
        : j(j_), o(o_) {
        lane = (int)threadIdx.x % LANES;
        own = ((int64_t)block - o.first_block) * ROWS + (int64_t)threadIdx.x / LANES;
        row = own < o.w.n_row ? own : o.w.n_row - 1;
        bool is_four = ((uintptr_t)j.x | (uintptr_t)(4 * j.x_stride)) % 16 == 0;
        n_quad = o.w.n_in % 4 || !is_four ? 0 : o.w.n_in / 4;
    }
    __device__ __forceinline__ float4 quad(int q) const {
        int64_t at = row * o.w.n_in + 4 * (int64_t)q;
        if (o.w.form == FORM_F32) return __ldcs((const float4 *)((const float *)o.w.codes + at));
        uint2 h = __ldcs((const uint2 *)((const uint16_t *)o.w.codes + at));
        return four_halves(o.w.form, h.x, h.y);
    }
    __device__ __forceinline__ void begin(float4 *w) const {
#pragma unroll
        for (int i = 0; i < UNITS; i++)
            if (lane + i * LANES < n_quad) w[i] = quad(lane + i * LANES);
    }
    __device__ __forceinline__ void run(float4 *w, const input &in, int32_t t0, int32_t n_tok,
                                        float (*room)[MAX_SUMS]) const {
        float sum[NT];
#pragma unroll
        for (int t = 0; t < NT; t++) sum[t] = 0.0f;
#pragma unroll 1
        for (int q0 = lane; q0 < n_quad; q0 += UNITS * LANES) {
#pragma unroll
            for (int i = 0; i < UNITS; i++) {
                int q = q0 + i * LANES;
                if (q >= n_quad) break;
                float4 v = w[i];
                if (q + UNITS * LANES < n_quad) w[i] = quad(q + UNITS * LANES);
#pragma unroll
                for (int t = 0; t < NT; t++) {
                    if (t >= n_tok) break;
                    float4 x = *(const float4 *)(in.x + t * in.x_stride + 4 * (int64_t)q);
                    sum[t] += v.x * x.x + v.y * x.y + (v.z * x.z + v.w * x.w);
                }
            }
        }
        if (!n_quad)
#pragma unroll 1
            for (int i = lane; i < o.w.n_in; i += LANES) {
                float v = number_at(o.w, row * o.w.n_in + i);
#pragma unroll
                for (int t = 0; t < NT; t++)
                    if (t < n_tok) sum[t] += v * in.x[t * in.x_stride + i];
            }
#pragma unroll
        for (int t = 0; t < NT; t++) sum[t] = lanes_sum(sum[t], 32);
        if (threadIdx.x % 32 == 0)
#pragma unroll
            for (int t = 0; t < NT; t++) room[threadIdx.x / 32][t] = sum[t];
        __syncthreads();
#pragma unroll
        for (int t = 0; t < NT; t++)
            sum[t] = sum_of_parts(room + threadIdx.x / LANES * FEW_WIDE, t, FEW_WIDE);
        if (lane || own >= o.w.n_row) return;
#pragma unroll
        for (int t = 0; t < NT; t++)
            if (t < n_tok) put(j, o, row, t0 + t, sum[t]);
    }
};

/* Several tokens, in groups of eight, on tensor cores (gemv_batch.cu). Returns false, and launches nothing, if form
 * or sizes are not supported. */
bool cuda_few(struct cuda *c, const linear_job &all, int form);

#endif
