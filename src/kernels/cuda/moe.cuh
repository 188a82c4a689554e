/* moe.cuh: declarations that the files of the mixture of experts share: the choice of experts, and the hidden rows. */
#ifndef CHIMERE_KERNELS_CUDA_MOE_CUH
#define CHIMERE_KERNELS_CUDA_MOE_CUH

#include <math.h>

#include "kernels/cuda/cuda_impl.cuh"
#include "kernels/cuda/gemv_float.cuh"

enum { CHOOSE_THREADS = 128, MAX_USED = 32, CHOOSE_FEW = 256, MAX_EXPERTS = 512 };
enum { MAX_PAIRS = 1024 }; /* pairs (token, expert) of a decode step at most */

struct expert_set {
    planes gate, up, down;
    int32_t has_gate, act;
    const float *gate_b, *up_b, *down_b;
    float gate_scale, down_scale;
};

/* ---- choice of experts ---- */

struct choice_job {
    const float *logits; /* [n_tok, n_expert] */
    const float *bias;   /* [n_expert] or NULL: added for the choice, not for the weights */
    int32_t n_expert, n_used, gating, normalise;
    float scale;
    int32_t n_group;             /* below 2: no groups */
    const int32_t *given;        /* [n_tok, n_used] or NULL: experts to use instead of choosing */
    const struct moe_keep *keep; /* [n_tok] or NULL */
    const float *expert_scale;   /* [n_expert] or NULL */
    int32_t n_group_used, unused;
};

/* Sorts K numbers in descending order with an odd-even merge network, unrolled; K is a power of two. */
template <int K> __device__ __forceinline__ void sort_falling(uint64_t *v) {
#pragma unroll
    for (int p = 1; p < K; p *= 2)
#pragma unroll
        for (int q = p; q > 0; q /= 2)
#pragma unroll
            for (int i = 0; i < K - q; i++) {
                if (i < q % p || (i - q % p) % (2 * q) >= q || i / (2 * p) != (i + q) / (2 * p))
                    continue;
                uint64_t a = v[i], b = v[i + q];
                v[i] = a > b ? a : b;
                v[i + q] = a > b ? b : a;
            }
}

/* Bits of the groups of experts that token t may choose from; lane g computes the value of group g. */
__device__ __forceinline__ uint32_t warp_groups(const choice_job &c, int64_t t) {
    int lane = (int)threadIdx.x % 32, n = c.n_expert / c.n_group, n_better = 0;
    const float *logits = c.logits + t * c.n_expert;
    float first = -INFINITY, second = -INFINITY;
#pragma unroll 1
    for (int i = 0; lane < c.n_group && i < n; i++) {
        int e = lane * n + i;
        float key = logistic(logits[e]) + (c.bias ? c.bias[e] : 0.0f);
        second = fmaxf(second, fminf(first, key));
        first = fmaxf(first, key);
    }
    float value = first + second;
#pragma unroll 1
    for (int g = 0; g < c.n_group; g++) {
        float other = __shfl_sync(0xffffffffu, value, g);
        n_better += other > value || (other == value && g < lane);
    }
    return __ballot_sync(0xffffffffu, lane < c.n_group && n_better < c.n_group_used);
}

/* The n_used best experts of token t, computed by one warp: lane k gets the k-th, or -1 in all lanes if a score is not
 * finite. Among equal scores the first expert wins. A lane has K adjacent experts and sorts them once; then the best of
 * the lanes' first candidates is removed n_used times. All warps of a step wait for this one, so it does little:
 * without a bias it compares logits, which have the order of the scores. */
template <int K, bool GROUPED = false>
__device__ __forceinline__ int32_t warp_choose(const choice_job &c, int64_t t) {
    int lane = (int)threadIdx.x % 32, e0 = lane * K;
    if (c.given) {
        int32_t id = lane < c.n_used ? c.given[t * c.n_used + lane] : -1;
        return id < -1 ? -2 - id : id;
    }
    const float *logits = c.logits + t * c.n_expert;
    float v[K];
    uint64_t best[K]; /* high half: score as an ordered integer, 0: none; low half: ~expert */
    if (c.n_expert == 32 * K && (uintptr_t)logits % 16 == 0) {
#pragma unroll
        for (int k = 0; k < K; k += 4) {
            float4 four = *(const float4 *)(logits + e0 + k);
            v[k] = four.x, v[k + 1] = four.y, v[k + 2] = four.z, v[k + 3] = four.w;
        }
    } else {
#pragma unroll
        for (int k = 0; k < K; k++) v[k] = e0 + k < c.n_expert ? logits[e0 + k] : -INFINITY;
    }
    if (c.bias && c.gating == MOE_SOFTMAX) {
        float most = -INFINITY, sum = 0;
#pragma unroll
        for (int k = 0; k < K; k++) most = fmaxf(most, v[k]);
        most = lanes_max(most, 32);
#pragma unroll
        for (int k = 0; k < K; k++) sum += v[k] = e0 + k < c.n_expert ? expf(v[k] - most) : 0;
        sum = lanes_sum(sum, 32);
#pragma unroll
        for (int k = 0; k < K; k++) v[k] /= sum;
    } else if (c.gating == MOE_SIGMOID) {
#pragma unroll
        for (int k = 0; k < K; k++) v[k] = logistic(v[k]);
    }
    bool bad = false;
#pragma unroll
    for (int k = 0; k < K; k++) {
        bool has = e0 + k < c.n_expert;
        float s = v[k] + (c.bias && has ? c.bias[e0 + k] : 0.0f);
        bad |= has && !(fabsf(s) <= 3.402823466e38f);
        uint32_t u = (uint32_t)__float_as_int(s + 0.0f); /* -0 and 0 compare equal */
        uint32_t key = !has ? 0u : u ^ ((uint32_t)((int32_t)u >> 31) | 0x80000000u);
        best[k] = (uint64_t)key << 32 | ~(uint32_t)(e0 + k);
    }
    if (__ballot_sync(0xffffffffu, bad)) return -1;
    if constexpr (GROUPED) {
        uint32_t groups = warp_groups(c, t);
        int n = c.n_expert / c.n_group;
#pragma unroll
        for (int k = 0; k < K; k++)
            if (!(groups >> ((e0 + k) / n < 32 ? (e0 + k) / n : 0) & 1)) best[k] = 0;
    }
    sort_falling<K>(best);
    uint32_t before = (1u << lane) - 1u;
    int32_t mine = -1;
#pragma unroll 1
    for (int n = 0; n < c.n_used; n++) {
        uint32_t first = (uint32_t)(best[0] >> 32);
        uint32_t all = __ballot_sync(0xffffffffu, first == lanes_most(first));
        bool is_best = (all & before) == 0 && (all >> lane & 1) != 0;
        uint32_t id = ~__shfl_sync(0xffffffffu, (uint32_t)best[0], __ffs((int)all) - 1);
        if (lane == n) mine = (int32_t)id;
#pragma unroll
        for (int k = 0; k < K; k++) best[k] = !is_best ? best[k] : k + 1 < K ? best[k + 1] : 0;
    }
    return mine;
}

/* Unnormalized weight of the lane's expert for token t, also of a dropped one; 0 if the lane has none. */
__device__ __forceinline__ float warp_score(const choice_job &c, int64_t t, int32_t id) {
    int lane = (int)threadIdx.x % 32;
    const float *logits = c.logits + t * c.n_expert;
    if (id < -1) id = -2 - id;
    float score = logits[id < 0 ? 0 : id];
    if (c.gating == MOE_SOFTMAX) {
        float most = -INFINITY, sum = 0;
#pragma unroll 1
        for (int e = lane; e < c.n_expert; e += 32) most = fmaxf(most, logits[e]);
        most = lanes_max(most, 32);
#pragma unroll 1
        for (int e = lane; e < c.n_expert; e += 32) sum += expf(logits[e] - most);
        score = expf(score - most) / lanes_sum(sum, 32);
    } else if (c.gating == MOE_SIGMOID) score = logistic(score);
    else {
        float most = lanes_max(id < 0 ? -INFINITY : score, 32);
        score = expf(score - most);
    }
    return id < 0 ? 0.0f : score;
}

/* Weight of the lane's expert; 0 if the lane has none or a dropped one. */
__device__ __forceinline__ float warp_weight(const choice_job &c, int64_t t, int32_t id) {
    float score = warp_score(c, t, id), weight = id < 0 ? 0.0f : score;
    float total = lanes_sum(c.gating == MOE_SIGMOID ? score : weight, 32);
    bool divide = c.normalise || c.gating == MOE_SOFTMAX_CHOSEN;
    float scale = c.scale;
    if (c.expert_scale && id >= 0) scale *= c.expert_scale[id];
    return weight / (divide ? total + 1e-20f : 1.0f) * scale;
}

/* Applies the rule of moe_keep to the lane's expert of token t: returns id to keep it, or -2 - id to drop it. */
__device__ __forceinline__ int32_t warp_keep(const choice_job &c, int64_t t, int32_t id) {
    if (!c.keep) return id;
    float mass = c.keep[t].mass;
    if (!(mass > 0 && mass < 1)) return id;
    int lane = (int)threadIdx.x % 32, n = 0, n_min = c.keep[t].n_min;
    float score = warp_score(c, t, id), before = 0, sum = 0;
#pragma unroll 1
    for (int k = 0; k < c.n_used; k++) {
        float other = __shfl_sync(0xffffffffu, score, k);
        bool greater = other > score || (other == score && k < lane);
        sum += other;
        before += greater ? other : 0.0f;
        n += greater;
    }
    bool stays = n == 0 || n < n_min || before < mass * sum;
    return id < 0 || stays ? id : -2 - id;
}
/* Returns id, or for a dropped expert a kept one of the same token, or -1: reads for a
 * dropped expert then hit the cache. */
__device__ __forceinline__ int32_t warp_stand_in(int32_t id) {
    uint32_t kept = __ballot_sync(0xffffffffu, id >= 0);
    int32_t other = __shfl_sync(0xffffffffu, id, kept ? __ffs((int)kept) - 1 : 0);
    return id < -1 ? other : id;
}

/* Whether code for the target (sm_100 or newer) takes more registers. */
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 1000
#define TAKES_MORE true
#else
#define TAKES_MORE false
#endif
/* Forms whose unpacking takes more registers. */
static __host__ __device__ constexpr bool is_wide_form(int form) {
    return raw_words(form) > 6 || form == FORM_T4 || form == FORM_T4K || form == FORM_TFP4 ||
           form >= FORM_X6K;
}

/* Experts that n_tok tokens choose if all are equally likely. */
static inline double experts_touched(const struct moe_args *a) {
    double n = (double)a->router->n_out;
    return n * (1 - pow(1 - (double)a->n_used / n, (double)a->n_tok));
}

/* With a->pool. The first n_tok tokens of a step: chooses the experts if choice has logits, and copies those that no
 * slot holds; slots: [n_tok, n_used] ids with each expert replaced by its slot. */
void cuda_pool_step(struct cuda *c, const struct moe_args *a, int32_t n_tok,
                    const choice_job &choice, int32_t *ids, float *weights, int32_t *slots);
/* A longer batch, whose choice is in ids: copies its experts to the stage; then those of its last tokens get slots. */
void cuda_pool_stage(struct cuda *c, const struct moe_args *a, int32_t *ids);

/* Decode with 8-bit activations: hidden rows of the chosen experts, [n_tok * n_used] of e.up.n_row.
 * Chooses the experts if choice has logits, and adds the shared expert to a->out. Returns true if it
 * cannot do the latter (linear does it then). order: pairs sorted by expert, or NULL. */
bool cuda_hidden8(struct cuda *c, const struct moe_args *a, const expert_set &e,
                  const choice_job &choice, int32_t *ids, float *weights, const int16_t *order,
                  const glu_job &shared, const float *sh_weight, const act8 &hidden);

/* More tokens than STEP_TOKS, with 8-bit activations (moe_batch.cu): y[pair] = feed-forward of its expert. */
bool cuda_can_group(const struct cuda *c, const struct moe_args *a, const expert_set &e);
size_t cuda_group_scratch(const struct dev_need *n);
void cuda_group(struct cuda *c, const struct moe_args *a, const expert_set &e, const int32_t *ids,
                float *y);
/* out = 8-bit rows act(gate) * up (gemv.cu). */
void cuda_glu8(struct cuda *c, const glu_job &g, int32_t n_row, int64_t n, const act8 &out);

#endif
