/* recurrent.cuh: code shared by the delta net (delta_net.cu) and the Mamba recurrences (mamba.cu). */
#ifndef CHIMERE_KERNELS_CUDA_RECURRENT_CUH
#define CHIMERE_KERNELS_CUDA_RECURRENT_CUH

#include "kernels/cuda/cuda_impl.cuh"

struct rows { /* inputs of a recurrence: logged tokens are in replay, new ones in x */
    const float *x, *replay;
    int64_t stride, replay_stride; /* floats per row; replay has log_cap rows per span */
};

__device__ __forceinline__ const float *row_at(const rows &r, const dspan &s, int32_t span,
                                               int32_t log_cap, int32_t i) {
    if (i < s.n_replay) return r.replay + ((int64_t)span * log_cap + i) * r.replay_stride;
    return r.x + (int64_t)(s.row + i - s.n_replay) * r.stride;
}

__device__ __forceinline__ float softplus(float x) {
    float e = quick_exp(x);
    return x > 20.0f ? x : e < 1e-3f ? e * (1.0f - 0.5f * e) : quick_log(1.0f + e);
}
__device__ __forceinline__ float silu(float x) { return x * logistic(x); }

/* Convolution of 4 for one token and channel; w: weights; old0 to old2: the previous inputs, shifted by one. */
__device__ __forceinline__ float conv_four(float bias, float4 w, float &old0, float &old1,
                                           float &old2, float in) {
    float sum = fmaf(w.x, old0, bias);
    sum = fmaf(w.y, old1, sum), sum = fmaf(w.z, old2, sum), sum = fmaf(w.w, in, sum);
    old0 = old1, old1 = old2, old2 = in;
    return silu(sum);
}

enum { MAX_PARTS = 4 };
struct turn_job {
    const float *src[MAX_PARTS];
    int64_t stride[MAX_PARTS], n[MAX_PARTS];
    int32_t n_part;
    size_t log_at;
    int64_t n_row; /* floats of all parts together */
};

static inline bool is_aligned(const void *p) {
    return (uintptr_t)p % 16 == 0;
} /* for float4 access */

/* Copies the logged rows to scratch and returns them; NULL if no span has logged rows or defers tokens. */
float *cuda_turn(struct cuda *c, const struct span *spans, const dspans &b,
                 const struct rec_view *rec, turn_job j);
/* Whether the kernels for many tokens apply: nothing logged, nothing deferred. */
bool cuda_is_many(const struct span *spans, int32_t n_span);

#endif
