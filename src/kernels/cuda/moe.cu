/* moe.cu: feed-forward blocks: one, and a routed mixture. Decode reads the chosen experts' weights once
 * per token that chose them; prefill sorts pairs (token, expert) by expert on the device and multiplies
 * tiles. Sums are in the order of a token's choice, whatever the batch. */
#include <utility>

#include "kernels/cuda/cuda_impl.cuh"
#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/tile.cuh"

extern "C" {
#include "format/quant.h"
}

enum { CHOOSE_THREADS = 128, MAX_USED = 32, CHOOSE_FEW = 256, MAX_EXPERTS = 512 };

struct expert_set {
    planes gate, up, down;
    int32_t has_gate, act;
    const float *gate_b, *up_b, *down_b;
    float gate_scale, down_scale;
};

/* ---- the choice ---- */

struct choice_job {
    const float *logits; /* [n_tok, n_expert] */
    const float *bias;   /* [n_expert]: of the choice, not of weights; or NULL */
    int32_t n_expert, n_used, gating, normalise;
    float scale;
    int32_t unused;
};

/* The n_used best experts of token t, by one warp: lane k gets the k-th; -1 everywhere if a score is not finite. Of
 * equal ones the first wins. taken: room of the warp for MAX_USED, shared. A lane has K neighbouring experts. All warps
 * of a step wait for this one, so that it is short: without a bias, scores are in the order of logits. */
template <int K>
__device__ __forceinline__ int32_t warp_choose(const choice_job &c, int64_t t, int32_t *taken) {
    int lane = (int)threadIdx.x % 32, e0 = lane * K;
    const float *logits = c.logits + t * c.n_expert;
    float v[K];
    uint32_t key[K]; /* in the order of floats; 0: none */
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
        uint32_t u = (uint32_t)__float_as_int(s + 0.0f); /* -0 and 0 are equal */
        key[k] = !has ? 0u : u ^ ((uint32_t)((int32_t)u >> 31) | 0x80000000u);
    }
    if (__ballot_sync(0xffffffffu, bad)) return -1;
#pragma unroll 1
    for (int n = 0; n < c.n_used; n++) {
        uint32_t most[K]; /* a tree: of equal ones the first */
        int at[K];
#pragma unroll
        for (int k = 0; k < K; k++) most[k] = key[k], at[k] = k;
#pragma unroll
        for (int o = 1; o < K; o *= 2)
#pragma unroll
            for (int k = 0; k < K; k += 2 * o) {
                bool later = most[k + o] > most[k];
                most[k] = later ? most[k + o] : most[k];
                at[k] = later ? at[k + o] : at[k];
            }
        bool is_best = most[0] == lanes_most(most[0]);
        uint32_t all = __ballot_sync(0xffffffffu, is_best);
        if (all << (31 - lane) << 1) is_best = false; /* a lane before this one has it */
        if (is_best) taken[n] = e0 + at[0];
#pragma unroll
        for (int k = 0; k < K; k++) key[k] = is_best && at[0] == k ? 0 : key[k];
    }
    __syncwarp();
    return lane < c.n_used ? taken[lane] : -1;
}

/* What the lane's expert counts for token t; 0 where it has none. */
__device__ __forceinline__ float warp_weight(const choice_job &c, int64_t t, int32_t id) {
    int lane = (int)threadIdx.x % 32;
    const float *logits = c.logits + t * c.n_expert;
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
    float weight = id < 0 ? 0.0f : score, total = lanes_sum(weight, 32);
    bool divide = c.normalise || c.gating == MOE_SOFTMAX_CHOSEN;
    return weight / (divide ? total + 1e-20f : 1.0f) * c.scale;
}

__global__ void __launch_bounds__(CHOOSE_THREADS)
    choose_kernel(choice_job c, int32_t n_tok, int32_t *ids, float *weights) {
    launch_next();
    wait_previous();
    int64_t t = ((int64_t)blockIdx.x * CHOOSE_THREADS + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (t >= n_tok) return;
    __shared__ int32_t room[CHOOSE_THREADS / 32][MAX_USED];
    int32_t id, *taken = room[threadIdx.x / 32];
    if (c.n_expert <= CHOOSE_FEW) id = warp_choose<CHOOSE_FEW / 32>(c, t, taken);
    else id = warp_choose<MAX_EXPERTS / 32>(c, t, taken);
    float weight = warp_weight(c, t, id);
    if (lane < c.n_used) ids[t * c.n_used + lane] = id, weights[t * c.n_used + lane] = weight;
}

/* ---- decode, floats: precise mode, experts of numbers ---- */

/* hidden[pair] = act(gate x) * (up x). Pair p of token t: expert ids[p], matrix mat. */
template <bool HAS_GATE>
__global__ void __launch_bounds__(VEC_THREADS)
    hidden_kernel(expert_set e, const float *x, const int32_t *ids, int32_t n_used, float *hidden,
                  grid_tables tables) {
    DYNAMIC_SHARED(uint8_t, room);
    int32_t pair = (int32_t)blockIdx.y;
    int group = float_lanes_of(e.up), lane = (int)threadIdx.x % group;
    int64_t first = (int64_t)blockIdx.x * (VEC_THREADS / group) * VEC_ROWS +
                    (int64_t)(threadIdx.x / (unsigned)group) * VEC_ROWS;
    launch_next();
    wait_previous();
    int32_t mat = ids ? ids[pair] : 0;
    if (mat < 0) return; /* scores were not finite: combine writes NaN */
    int32_t n_in = e.up.n_in;
    const float *a = act_load(room, x + (int64_t)(pair / n_used) * n_in, 0, 1, n_in);
    float up[VEC_ROWS][1], gate[VEC_ROWS][1];
    any_rows<1>(e.up, mat, first, lane, group, tables, a, 1, up);
    if (HAS_GATE) any_rows<1>(e.gate, mat, first, lane, group, tables, a, 1, gate);
    if (lane) return;
    for (int r = 0; r < VEC_ROWS && first + r < e.up.n_row; r++) {
        float u = up[r][0] + (e.up_b ? e.up_b[first + r] : 0.0f);
        float h = HAS_GATE ? act_of(e.act, e.gate_scale * gate[r][0] +
                                               (e.gate_b ? e.gate_b[first + r] : 0.0f)) *
                                 u
                           : act_of(e.act, u);
        hidden[pair * e.up.n_row + first + r] = h;
    }
}

/* out[t] += sum over the token's pairs of weight * down(hidden), and the shared expert's; block y is the
 * token. Without ids, one matrix whose factor is the logistic function of weights[t]; so is the shared one's. group: lanes a row, the most that either matrix uses. */
__global__ void __launch_bounds__(VEC_THREADS)
    down_kernel(planes down, const float *hidden, const int32_t *ids, const float *weights,
                int32_t n_used, planes sh_down, const float *sh_hidden, const float *sh_weight,
                float *out, const float *bias, float scale, int32_t group, grid_tables tables) {
    DYNAMIC_SHARED(uint8_t, room);
    int32_t t = (int32_t)blockIdx.y;
    int lane = (int)threadIdx.x % group;
    int64_t first = (int64_t)blockIdx.x * (VEC_THREADS / group) * VEC_ROWS +
                    (int64_t)(threadIdx.x / (unsigned)group) * VEC_ROWS;
    launch_next();
    wait_previous();
    float sum[VEC_ROWS] = {0}, y[VEC_ROWS][1];
    bool bad = false;
    for (int32_t k = 0; k < n_used; k++) {
        int32_t mat = ids ? ids[t * n_used + k] : 0;
        if (mat < 0) {
            bad = true;
            break;
        }
        __syncthreads(); /* the room is read no more */
        const float *a =
            act_load(room, hidden + ((int64_t)t * n_used + k) * down.n_in, 0, 1, down.n_in);
        any_rows<1>(down, mat, first, lane, group, tables, a, 1, y);
        float f = !weights ? scale : ids ? weights[t * n_used + k] : logistic(weights[t]);
        for (int r = 0; r < VEC_ROWS; r++) sum[r] += f * y[r][0];
    }
    if (!bad && sh_hidden) {
        __syncthreads();
        const float *a = act_load(room, sh_hidden + (int64_t)t * sh_down.n_in, 0, 1, sh_down.n_in);
        any_rows<1>(sh_down, 0, first, lane, group, tables, a, 1, y);
        float sh_factor = sh_weight ? logistic(sh_weight[t]) : 1.0f;
        for (int r = 0; r < VEC_ROWS; r++) sum[r] += sh_factor * y[r][0];
    }
    if (lane) return;
    for (int r = 0; r < VEC_ROWS && first + r < down.n_row; r++) {
        float *dst = out + (int64_t)t * down.n_row + first + r;
        float v = sum[r] + (bias ? bias[first + r] : 0.0f);
        *dst += bad ? __int_as_float(0x7fc00000) : v;
    }
}

/* ---- decode, bytes ---- */

struct hidden8_job {
    planes gate, up;
    act8 x, hidden;
    choice_job choice;                     /* logits NULL: made already */
    int32_t *ids;                          /* [n_tok, n_used] */
    float *weights;                        /* the same */
    int32_t n_tok, act, n_round, n_sh_row; /* n_sh_row: of a block */
    divisor per_pair, n_used;              /* units of a hidden row; choice.n_used */
    planes sh_down;                        /* the shared expert's; form FORM_NONE: there is none */
    glu_job shared;                        /* its input */
    const float *sh_weight; /* [n_tok] or NULL: its factor, through the logistic function */
    float *out;             /* [n_tok, sh_down.n_row] */
};

/* ---- the shared expert's last product, beside the choice ---- */

/* Bytes from one token's input to the next. */
static __host__ __device__ inline size_t shared_input(int n_in) {
    return (act8_bytes(1, n_in) + 15) & ~(size_t)15;
}
/* Sums of a row of w with up to NT tokens' inputs, in `in` one behind the other, by a group of lanes. */
template <int NT> struct sums_of { float v[NT]; };
template <int F, int NT>
__device__ __forceinline__ sums_of<NT> shared_row8(const planes &w, uint32_t row, int lane,
                                                   int group, const uint8_t *in, int n_tok,
                                                   const grid_tables &g) {
    sums_of<NT> sum = {};
    raw<F> code;
    if (lane < w.n_unit) load_unit<F>(code, w, row * (uint32_t)w.n_unit + (uint32_t)lane);
#pragma unroll 1
    for (int u = lane; u < w.n_unit; u += group) {
        unpacked v;
        unpack<F>(code, g, v);
        if (u + group < w.n_unit)
            load_unit<F>(code, w, row * (uint32_t)w.n_unit + (uint32_t)(u + group));
        /* the middle is off the codes already; I8X has none, and two scales as every form */
        constexpr int SAME = form_traits<F>::mid ? (int)FORM_I8X : F;
#pragma unroll
        for (int t = 0; t < NT; t++) {
            if (t >= n_tok) break;
            act8 a = act8_at((void *)(in + (size_t)t * shared_input(w.n_in)), 1, w.n_in);
            sum.v[t] = unit_dot8<SAME>(v, act8_load(a, (uint32_t)u), sum.v[t]);
        }
    }
#pragma unroll
    for (int t = 0; t < NT; t++) sum.v[t] = lanes_sum(sum.v[t], group);
    return sum;
}
/* Forms of a shared expert that are multiplied there; others come after the experts. */
#define SHARED_FORMS(X) X(FORM_I8) X(FORM_N4) X(FORM_N4K) X(FORM_N5K) X(FORM_N6K)
static bool is_shared_form(int form) {
    switch (form) {
#define X(F) case F:
        SHARED_FORMS(X)
#undef X
        return true;
    }
    return false;
}
template <int NT>
static __device__ __attribute__((noinline)) sums_of<NT> any_row8(planes w, uint32_t row, int lane,
                                                                 int group, const uint8_t *in,
                                                                 int n_tok, const grid_tables &g) {
    switch (w.form) {
#define X(F)                                                                                       \
    case F: return shared_row8<F, NT>(w, row, lane, group, in, n_tok, g);
        SHARED_FORMS(X)
#undef X
    }
    return sums_of<NT>{};
}

/* By the last n_warp warps of the block, with up to NT tokens at a time: out[t] += factor * down(act(gate) * up), of
 * the block's rows. in: room for the inputs in bytes, shared. */
template <int NT>
__device__ __forceinline__ void shared_down8(const hidden8_job &j, int warp, int n_warp, int lane,
                                             int group, int row, uint8_t *in,
                                             const grid_tables &g) {
    const planes &w = j.sh_down;
    int end = ((int)blockIdx.x + 1) * j.n_sh_row, quads = w.n_in / 4;
    end = end < (int)w.n_row ? end : (int)w.n_row;
#pragma unroll 1
    for (int t0 = 0; t0 < j.n_tok; t0 += NT) {
        int n_tok = j.n_tok - t0 < NT ? j.n_tok - t0 : NT;
        if (t0) barrier_of(1, 32 * n_warp); /* inputs are read no more */
#pragma unroll 1
        for (int q = 32 * warp + (int)threadIdx.x % 32; q / 32 * 32 < n_tok * quads;
             q += 32 * n_warp) {
            int t = q / quads, at = q - t * quads; /* rows are whole groups of 8 quads */
            bool has = t < n_tok;
            act8 a = act8_at(in + (size_t)(has ? t : 0) * shared_input(w.n_in), 1, w.n_in);
            act8_put4(a, at,
                      has ? glu_quad(j.shared, (int64_t)(t0 + t) * quads + at)
                          : make_float4(0, 0, 0, 0),
                      has);
        }
        barrier_of(1, 32 * n_warp);
        /* row: of the warp's first group of lanes; all lanes go together */
#pragma unroll 1
        for (int r0 = row; r0 < end; r0 += n_warp * (32 / group)) {
            int r = r0 + (int)threadIdx.x % 32 / group;
            sums_of<NT> y =
                any_row8<NT>(w, (uint32_t)r, r < end ? lane : w.n_unit, group, in, n_tok, g);
            if (r >= end || lane >= n_tok) continue;
            float sum = y.v[0];
#pragma unroll
            for (int t = 1; t < NT; t++) sum = lane == t ? y.v[t] : sum;
            float *out = j.out + (int64_t)(t0 + lane) * w.n_row + r;
            *out += (j.sh_weight ? logistic(j.sh_weight[t0 + lane]) : 1.0f) * sum;
        }
    }
}

/* A team of warps makes a unit of 32 elements of a pair's hidden row: a group of lanes two rows of the gate beside
 * two of up, or four of up. A block has one team or more, and makes n_round units with each. */
enum { HIDDEN_ROWS = 4, GATED_TEAM = 512, PLAIN_TEAM = 256, MAX_TEAMS = 3, MANY_BLOCKS = 3 };
/* Forms that take more registers: two teams at most. */
static __host__ __device__ constexpr bool is_wide_form(int form) {
    return raw_words(form) > 6 || form == FORM_T4 || form == FORM_T4K || form == FORM_TFP4;
}
static __host__ __device__ constexpr int hidden_bound(int form, bool has_gate) {
    enum { GATED_BOUND = 704 }; /* 88 registers: room beside it for a block of down8_kernel */
    return is_wide_form(form) ? 2 * PLAIN_TEAM
           : has_gate         ? (int)GATED_BOUND
                              : MAX_TEAMS * PLAIN_TEAM;
}
template <int F, bool HAS_GATE, bool MANY> struct hidden8_rows {
    static constexpr int EACH = HAS_GATE ? HIDDEN_ROWS / 2 : HIDDEN_ROWS; /* of one matrix */
    static constexpr int TEAM = HAS_GATE && !MANY ? GATED_TEAM : PLAIN_TEAM;
    static constexpr int TASKS = HAS_GATE && MANY ? 2 : 1; /* of a round */
    const hidden8_job &j;
    const int32_t *chosen; /* [n_tok * n_used], shared */
    float (*h)[MAX_TEAMS][2][32];
    int group, lane, team, mine, n; /* n: rows of a group */
    uint32_t n_unit;                /* of the hidden rows of all pairs */

    __device__ __forceinline__ hidden8_rows(const hidden8_job &j_, const int32_t *c,
                                            float (*h_)[MAX_TEAMS][2][32])
        : j(j_), chosen(c), h(h_) {
        group = lanes_of(j.up), lane = (int)threadIdx.x % group;
        team = (int)threadIdx.x / TEAM, mine = (int)threadIdx.x % TEAM / group;
        n = 32 / (TEAM / group);
        n_unit = j.per_pair.n * (uint32_t)(j.n_tok * j.choice.n_used);
    }
    __device__ __forceinline__ uint32_t unit_of(int round, int of) const {
        return ((uint32_t)round * gridDim.x + blockIdx.x) * (blockDim.x / TEAM) + (uint32_t)of;
    }
    __device__ __forceinline__ bool has(int step) const {
        return step * group + lane < j.up.n_unit;
    }
    /* of a task's k-th row of a matrix: its place among the unit's 32; -1: none */
    __device__ __forceinline__ int place(int task, int k) const {
        int at = task % TASKS * EACH + k;
        return at < n ? mine * n + at : -1;
    }
    __device__ __forceinline__ void load(raw<F> &c, int task, int step, int r) const {
        int round = task / TASKS, at = place(task, r % EACH);
        uint32_t u = unit_of(round, team);
        at = at < 0 ? 0 : at;
        u = u < n_unit ? u : n_unit - 1;
        uint32_t pair = u / j.per_pair;
        int32_t mat = chosen[pair];
        uint32_t row = (uint32_t)(mat < 0 ? 0 : mat) * (uint32_t)j.up.n_row +
                       (u - pair * j.per_pair.n) * 32 + (uint32_t)at;
        load_unit<F>(c, HAS_GATE && r < EACH ? j.gate : j.up,
                     row * (uint32_t)j.up.n_unit + (uint32_t)(step * group + lane));
    }
    __device__ __forceinline__ act_unit act(int task, int step) const {
        uint32_t t = 0;
        if (j.n_tok > 1) t = unit_of(task / TASKS, team) / j.per_pair / j.n_used;
        t = t < (uint32_t)j.n_tok ? t : 0;
        return act8_load(j.x, t * (uint32_t)j.up.n_unit + (uint32_t)(step * group + lane));
    }
    __device__ __forceinline__ void put(int task, int k, float y) const {
        int at = place(task, k % EACH);
        if (at >= 0) h[task / TASKS % 2][team][HAS_GATE ? k / EACH : 0][at] = y;
    }
    /* A warp of the block rounds a team's unit while the others go on; two rounds on, its values are read. */
    __device__ __forceinline__ void done(int task) const {
        int round = task / TASKS;
        if (task % TASKS + 1 < TASKS) return;
        __syncthreads();
        int warp = (int)threadIdx.x / 32, n_warp = (int)blockDim.x / 32;
        int of = warp - (TASKS > 1 || round ? round * MAX_TEAMS % n_warp : 0);
        of += of < 0 ? n_warp : 0;
        uint32_t u = unit_of(round, of);
        if (of >= (int)blockDim.x / TEAM || u >= n_unit) return;
        float y = act_of(j.act, h[round % 2][of][0][threadIdx.x % 32]);
        if (HAS_GATE) y *= h[round % 2][of][1][threadIdx.x % 32];
        act8_put(j.hidden, u, chosen[u / j.per_pair] < 0 ? 0.0f : y);
    }
};

/* Every block makes the choice anew, a warp a token; the other warps multiply rows of the shared expert's last matrix
 * meanwhile. The next kernel starts when the choice is written down, and may read the experts' weights ahead of its
 * own wait; the bound on registers leaves room for it. Shared memory: grid points, inputs of the shared expert. */
template <int F, bool HAS_GATE, bool MANY>
__global__ void __launch_bounds__(MANY ? (int)PLAIN_TEAM : hidden_bound(F, HAS_GATE),
                                  !MANY             ? 1
                                  : is_wide_form(F) ? MANY_BLOCKS - 1
                                                    : MANY_BLOCKS)
    hidden8_kernel(const __grid_constant__ hidden8_job j,
                   const __grid_constant__ grid_tables tables) {
    DYNAMIC_SHARED(uint32_t, points);
    __shared__ float h[2][MAX_TEAMS][2][32];
    __shared__ int32_t chosen[STEP_TOKS * MAX_USED];
    grid_tables g = tables; /* then in shared memory */
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, n_warp = (int)blockDim.x / 32;
    int n_used = j.choice.n_used, n_choose = j.n_tok < n_warp / 2 ? j.n_tok : n_warp / 2;
    bool is_shared = j.sh_down.form != FORM_NONE && warp >= n_choose;
    int sh_group = j.sh_down.n_unit > 16 ? 32 : 16, sh_lane = lane & (sh_group - 1);
    int sh_row = (int)blockIdx.x * j.n_sh_row + (warp - n_choose) * (32 / sh_group);
    if (is_shared && sh_row + lane / sh_group < (int)j.sh_down.n_row) {
        const planes &w = j.sh_down;
        int row = (sh_row + lane / sh_group) * w.n_unit;
        for (int u = sh_lane; u < w.n_unit; u += sh_group) {
            bring_near(w.codes + (row + u) * 16); /* or near it: forms differ */
            bring_near(w.more + (row + u) * 4);
            bring_near(w.sub + (row + u) * 2);
            bring_near(w.top + (row + u) / 2);
        }
    }
    if (grid_words(F)) grid_load(g, F, points);
    if (lane == 0) {
        look_up(j.choice.logits);
        look_up(j.x.q);
        look_up(j.shared.up);
    }
    wait_previous();
    if (!j.choice.logits)
        for (int i = (int)threadIdx.x; i < j.n_tok * n_used; i += (int)blockDim.x)
            chosen[i] = j.ids[i];
    else if (warp < n_choose)
#pragma unroll 1
        for (int t = warp; t < j.n_tok; t += n_choose) {
            int32_t id = warp_choose<CHOOSE_FEW / 32>(j.choice, t, chosen + t * n_used);
            if (lane < n_used) chosen[t * n_used + lane] = id;
            if (blockIdx.x || lane >= n_used) continue;
            j.ids[t * n_used + lane] = id;
            __threadfence();
        }
    if (is_shared) {
        uint8_t *in = (uint8_t *)(points + grid_words(F));
        if (j.n_tok == 1)
            shared_down8<1>(j, warp - n_choose, n_warp - n_choose, sh_lane, sh_group, sh_row, in,
                            tables);
        else
            shared_down8<VEC8_TOKS>(j, warp - n_choose, n_warp - n_choose, sh_lane, sh_group,
                                    sh_row, in, tables);
    }
    __syncthreads();
    launch_next();
    hidden8_rows<F, HAS_GATE, MANY> rows(j, chosen, h);
    raw<F> code[2][HIDDEN_ROWS];
    stream8_begin<F, HIDDEN_ROWS>(code, rows);
    if (j.choice.logits && blockIdx.x == 0)
#pragma unroll 1
        for (int t = warp; t < j.n_tok; t += n_warp) {
            float weight = warp_weight(j.choice, t, lane < n_used ? chosen[t * n_used + lane] : -1);
            if (lane < n_used) j.weights[t * n_used + lane] = weight;
        }
    auto act = [&](int task, int step, int) { return rows.act(task, step); };
    auto sink = [&](int task, int k, float y) { rows.put(task, k, y); };
    stream8_run<F, HIDDEN_ROWS, 1>(code, rows, j.n_round * rows.TASKS,
                                   (j.up.n_unit + rows.group - 1) / rows.group, rows.group, g, 1,
                                   act, sink);
}

struct down8_job {
    planes down;
    act8 hidden;
    const int32_t *ids;                     /* [n_tok, n_used] */
    const float *weights;                   /* [n_tok, n_used] */
    int32_t n_used, n_part, n_step, unused; /* n_part: warps that share a row; n_step: of a part */
    divisor n_unit;                         /* down.n_unit */
    float *out;
};

/* Rows of a warp. */
static __host__ __device__ constexpr int down_rows(int form) { return is_wide_form(form) ? 2 : 4; }

/* out[t] += sum of weight * down(hidden) over the chosen experts: the units of all of them in one stream. n_part warps
 * share a few rows. Block y is the token. Before its wait a block reads the choice, which the kernel before wrote
 * before it let this one start. Shared memory: grid points. */
template <int F> struct down8_rows {
    const down8_job &j;
    const int32_t *ids;
    int row0, n_row, from, n_all; /* from: first unit of the part */

    __device__ __forceinline__ int unit(int step) const {
        return from + step * 32 + (int)threadIdx.x % 32;
    }
    __device__ __forceinline__ bool has(int step) const {
        return step < j.n_step && unit(step) < n_all;
    }
    __device__ __forceinline__ void load(raw<F> &c, int, int step, int r) const {
        uint32_t i = (uint32_t)unit(step), k = i / j.n_unit;
        uint32_t row = (uint32_t)(row0 + r < n_row ? row0 + r : n_row - 1);
        int mat = __ldcg(ids + k);
        load_unit<F>(c, j.down,
                     ((uint32_t)(mat < 0 ? 0 : mat) * (uint32_t)n_row + row) * j.n_unit.n +
                         (i - k * j.n_unit.n));
    }
    __device__ __forceinline__ void done(int) const {}
};
enum { DOWN_BOUND = 768, DOWN_PARTS = 4 };
template <int F>
__global__ void __launch_bounds__(DOWN_BOUND, 1)
    down8_kernel(const __grid_constant__ down8_job j, grid_tables g) {
    constexpr int R = down_rows(F);
    DYNAMIC_SHARED(uint32_t, points);
    __shared__ float sums[DOWN_BOUND / 32][R];
    uint32_t t = blockIdx.y;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, shift = j.n_part / 2;
    int quads = (int)(blockDim.x / 32) >> shift, n_row = (int)j.down.n_row;
    int first = (int)blockIdx.x * quads * R, part = warp & (j.n_part - 1);
    down8_rows<F> rows = {j,     j.ids + t * (uint32_t)j.n_used, first + (warp >> shift) * R,
                          n_row, part * j.n_step * 32,           j.n_used * j.down.n_unit};
    raw<F> code[2][R];
    stream8_begin<F, R>(code, rows);
    if (grid_words(F)) grid_load(g, F, points);
    float *out = j.out + t * (uint32_t)n_row + (uint32_t)first + threadIdx.x;
    bool is_out = (int)threadIdx.x < quads * R && first + (int)threadIdx.x < n_row;
    if (lane == 0) {
        look_up(j.hidden.q);
        look_up(j.weights);
    }
    if (is_out) look_up(out);
    wait_previous();
    launch_next(); /* the next weights would come between the experts' */
    float old = is_out ? *out : 0.0f;
    auto act = [&](int, int step, int) {
        uint32_t i = (uint32_t)rows.unit(step), pair = t * (uint32_t)j.n_used;
        act_unit a = act8_load(j.hidden, pair * j.n_unit.n + i);
        a.scale *= j.weights[pair + i / j.n_unit];
        return a;
    };
    auto sink = [&](int, int k, float y) { sums[warp][k] = y; };
    stream8_run<F, R, 1>(code, rows, 1, j.n_step, 32, g, 1, act, sink);
    __syncthreads();
    if (!is_out) return;
    int from = (int)threadIdx.x / R << shift, r = (int)threadIdx.x % R;
    float y = sums[from][r];
    for (int i = 1; i < j.n_part; i++) y += sums[from + i][r];
    *out = old + (rows.ids[0] < 0 ? __int_as_float(0x7fc00000) : y);
}

/* ---- prefill ---- */

/* One block: counts pairs of every expert, gives experts their places and tiles. */
__global__ void count_kernel(const int32_t *ids, int32_t n_pair, int32_t n_expert, tile_list l) {
    __shared__ int32_t count[MAX_EXPERTS], tile[MAX_EXPERTS + 1];
    launch_next();
    wait_previous();
    int tid = (int)threadIdx.x, n = (int)blockDim.x;
    for (int e = tid; e < n_expert; e += n) count[e] = 0;
    __syncthreads();
    for (int p = tid; p < n_pair; p += n)
        if (ids[p] >= 0) atomicAdd(&count[ids[p]], 1);
    __syncthreads();
    if (tid == 0) {
        int32_t pairs = 0, tiles = 0;
        for (int e = 0; e < n_expert; e++) {
            l.start[e] = pairs;
            tile[e] = tiles;
            pairs += count[e];
            tiles += (count[e] + TILE_N - 1) / TILE_N;
        }
        tile[n_expert] = tiles;
    }
    __syncthreads();
    for (int i = tile[n_expert] + tid; i < l.cap; i += n) l.expert[i] = -1;
    for (int e = tid; e < n_expert; e += n)
        for (int32_t i = 0; i < count[e]; i += TILE_N) {
            int32_t k = tile[e] + i / TILE_N;
            l.expert[k] = e;
            l.at[k] = l.start[e] + i;
            l.n[k] = count[e] - i < TILE_N ? count[e] - i : TILE_N;
        }
}

/* A block an expert: lists its pairs in order of pair, so that results do not depend on who was first. */
enum { PLACE_THREADS = 256 };
__global__ void place_kernel(const int32_t *ids, int32_t n_pair, tile_list l) {
    __shared__ int32_t room[PLACE_THREADS / 32];
    launch_next();
    wait_previous();
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, e = (int)blockIdx.x;
    int32_t at = l.start[e];
    for (int32_t first = 0; first < n_pair; first += PLACE_THREADS) {
        int32_t p = first + (int32_t)threadIdx.x;
        bool mine = p < n_pair && ids[p] == e;
        uint32_t all = __ballot_sync(0xffffffffu, mine);
        if (lane == 0) room[warp] = __popc(all);
        __syncthreads();
        int32_t before = 0, total = 0;
        for (int w = 0; w < PLACE_THREADS / 32; w++) {
            before += w < warp ? room[w] : 0;
            total += room[w];
        }
        if (mine) l.pairs[at + before + __popc(all & ((1u << lane) - 1u))] = p;
        at += total;
        __syncthreads();
    }
}

__global__ void gated_kernel(float *up, const float *gate, int64_t n, int act) {
    launch_next();
    wait_previous();
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        up[i] = gate ? act_of(act, gate[i]) * up[i] : act_of(act, up[i]);
}

/* out[t] += sum_k weight_k y[t, k], in order of choice */
__global__ void combine_kernel(const float *y, const int32_t *ids, const float *weights,
                               int32_t n_used, int64_t n, float *out) {
    launch_next();
    wait_previous();
    int64_t t = blockIdx.x;
    bool bad = ids[t * n_used] < 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        float sum = 0;
        for (int32_t k = 0; k < n_used && !bad; k++)
            sum += weights[t * n_used + k] * y[(t * n_used + k) * n + i];
        out[t * n + i] += bad ? __int_as_float(0x7fc00000) : sum;
    }
}

/* ---- ops ---- */

static dim3 elem_blocks(int64_t n) {
    int64_t b = (n + 255) / 256;
    return dim3((unsigned)(b < 8192 ? b : 8192));
}

static planes planes_or_none(const struct weight *w) {
    planes none = {};
    return w ? planes_of(w) : none;
}

static int32_t max_tiles(int32_t n_pair, int64_t n_expert) {
    return (int32_t)(n_pair / TILE_N + (n_expert < n_pair ? n_expert : n_pair)) + 1;
}

size_t cuda_moe_scratch(const struct dev_need *n) {
    size_t n_tok = (size_t)n->n_tok, n_used = (size_t)(n->n_used > 0 ? n->n_used : 1);
    size_t n_pair = n_tok * (n_used + 1), widest = (size_t)(n->n_in > n->n_ff ? n->n_in : n->n_ff);
    size_t bytes = n_tok * ((size_t)n->n_expert + 2 * n_used + 2) * 4; /* logits, choice */
    bytes += 2 * n_pair * (size_t)n->n_ff * 4;                         /* hidden rows, gate rows */
    bytes += 2 * act8_bytes(STEP_TOKS, (int64_t)widest + 32);          /* input, shared row */
    if (n->n_tok > STEP_TOKS) {
        bytes += n_tok * (size_t)halves_of((int64_t)widest) * 2 +
                 n_pair * ((size_t)halves_of(n->n_ff) * 2 + 8);
        bytes += n_pair * (size_t)n->n_in * 4; /* results of pairs */
        bytes += (n_pair + 4 * (n_pair / TILE_N + (size_t)n->n_expert + 2)) * 4;
    }
    return bytes + 64 * 256;
}

static void hidden_rows(struct cuda *c, const expert_set &e, const float *x, const int32_t *ids,
                        int32_t n_pair, int32_t n_used, float *hidden) {
    int64_t rows = (int64_t)(VEC_THREADS / float_lanes_of(e.up)) * VEC_ROWS;
    dim3 grid((unsigned)((e.up.n_row + rows - 1) / rows), (unsigned)n_pair);
    size_t room = act_room_bytes(e.up.n_in, 1);
    if (e.has_gate)
        launch(c, hidden_kernel<true>, grid, dim3(VEC_THREADS), room, e, x, ids, n_used, hidden,
               c->tables);
    else
        launch(c, hidden_kernel<false>, grid, dim3(VEC_THREADS), room, e, x, ids, n_used, hidden,
               c->tables);
}

static void down_rows(struct cuda *c, const planes &down, const float *hidden, const int32_t *ids,
                      const float *weights, int32_t n_used, const planes &sh_down,
                      const float *sh_hidden, const float *sh_weight, float *out, int32_t n_tok,
                      const float *bias, float scale) {
    int32_t group = float_lanes_of(down);
    if (sh_hidden && float_lanes_of(sh_down) > group) group = float_lanes_of(sh_down);
    int64_t rows = (int64_t)(VEC_THREADS / group) * VEC_ROWS;
    int64_t n_in = sh_hidden && sh_down.n_in > down.n_in ? sh_down.n_in : down.n_in;
    dim3 grid((unsigned)((down.n_row + rows - 1) / rows), (unsigned)n_tok);
    launch(c, down_kernel, grid, dim3(VEC_THREADS), act_room_bytes(n_in, 1), down, hidden, ids,
           weights, n_used, sh_down, sh_hidden, sh_weight, out, bias, scale, group, c->tables);
}

static expert_set experts_of(const struct weight *gate, const struct weight *up,
                             const struct weight *down, enum act act) {
    return expert_set{planes_or_none(gate),
                      planes_of(up),
                      planes_of(down),
                      gate != NULL,
                      (int32_t)act,
                      NULL,
                      NULL,
                      NULL,
                      1,
                      1};
}

/* Whether gate, up and down go through the kernels for bytes. */
static bool is_bytes(const expert_set &e) {
    return !is_number_form(e.up.form) && !is_number_form(e.down.form) &&
           (!e.has_gate || e.gate.form == e.up.form) && e.up.n_row % 32 == 0;
}

template <int F>
static void hidden_launch(struct cuda *c, bool has_gate, bool is_many, dim3 grid, dim3 block,
                          size_t room, const hidden8_job &h) {
    auto kernel = hidden8_kernel<F, false, false>;
    if (has_gate && is_many) kernel = hidden8_kernel<F, true, true>;
    else if (has_gate) kernel = hidden8_kernel<F, true, false>;
    else if (is_many) kernel = hidden8_kernel<F, false, true>;
    launch(c, kernel, grid, block, room, h, c->tables);
}

/* The chosen experts of a few tokens, through bytes. */
static void few_experts8(struct cuda *c, const struct moe_args *a, const expert_set &e,
                         const choice_job &choice, int32_t *ids, float *weights,
                         const glu_job &shared, const float *sh_weight) {
    int32_t n_pair = a->n_tok * a->n_used;
    int64_t n_ff = e.up.n_row;
    hidden8_job h = {};
    h.gate = e.gate, h.up = e.up, h.choice = choice, h.ids = ids, h.weights = weights;
    h.n_tok = a->n_tok, h.act = e.act;
    h.per_pair = divisor_of(n_ff / 32), h.n_used = divisor_of(a->n_used);
    h.x = cuda_act8(c, a->x, a->up->n_in, a->n_tok, a->up->n_in);
    h.hidden = act8_at(cuda_take(c, act8_bytes(n_pair, n_ff)), n_pair, n_ff);
    if (c->err.code) return;
    /* all blocks resident at once: of few pairs one a multiprocessor, with as many teams as let a round do; of many
     * several, so that some read while others wait at their barriers */
    int32_t units = (int32_t)(n_pair * (n_ff / 32)), teams = (units + c->n_sm - 1) / c->n_sm;
    int32_t most = e.has_gate ? 1 : hidden_bound(e.up.form, false) / PLAIN_TEAM, places = c->n_sm;
    bool is_many = units > 2 * most * c->n_sm;
    int team = e.has_gate && !is_many ? GATED_TEAM : PLAIN_TEAM;
    if (is_many) most = 1, places *= is_wide_form(e.up.form) ? MANY_BLOCKS - 1 : MANY_BLOCKS;
    teams = teams < most ? teams : most;
    h.n_round = (units + teams * places - 1) / (teams * places);
    dim3 grid((unsigned)((units + teams * h.n_round - 1) / (teams * h.n_round)));
    dim3 block((unsigned)(teams * team));
    size_t room = grid_bytes(c, e.up.form);
    bool apart = a->sh_down && !is_shared_form(planes_of(a->sh_down).form);
    if (a->sh_down && !apart) {
        h.sh_down = planes_of(a->sh_down);
        h.shared = shared, h.sh_weight = sh_weight, h.out = a->out;
        h.n_sh_row = (int32_t)((h.sh_down.n_row + grid.x - 1) / grid.x);
        int32_t most_tok = a->n_tok < VEC8_TOKS ? a->n_tok : VEC8_TOKS;
        room += (size_t)most_tok * shared_input(h.sh_down.n_in);
    }
    switch (e.up.form) {
#define X(F)                                                                                       \
    case F: hidden_launch<F>(c, e.has_gate, is_many, grid, block, room, h); break;
        FOR_EACH_FORM(X)
#undef X
    }
    down8_job d = {e.down, h.hidden, ids, weights, a->n_used, 1, 0, 0, divisor_of(e.down.n_unit),
                   a->out};
    /* all blocks resident at once; of long rows several warps share a few */
    int32_t rows = down_rows(e.down.form), steps = (a->n_used * e.down.n_unit + 31) / 32;
    int32_t quads = (int32_t)((e.down.n_row + rows * c->n_sm - 1) / (rows * c->n_sm));
    quads = quads < 8 ? quads : 8;
    while (d.n_part < DOWN_PARTS && steps > 2 * d.n_part && 2 * d.n_part * quads <= DOWN_BOUND / 32)
        d.n_part *= 2;
    d.n_step = (steps + d.n_part - 1) / d.n_part;
    dim3 down_grid((unsigned)((e.down.n_row + rows * quads - 1) / (rows * quads)),
                   (unsigned)a->n_tok);
    dim3 down_block((unsigned)(32 * quads * d.n_part));
    room = grid_bytes(c, e.down.form);
    switch (e.down.form) {
#define X(F)                                                                                       \
    case F: launch(c, down8_kernel<F>, down_grid, down_block, room, d, c->tables); break;
        FOR_EACH_FORM(X)
#undef X
    }
    if (!apart) return;
    struct linear_out sh_down = {a->sh_down, NULL, a->out, a->down->n_out, 1, true};
    cuda_linear_glu(c, &sh_down, shared, a->n_tok, sh_weight);
}

static void few_experts(struct cuda *c, const struct moe_args *a, const int32_t *ids,
                        const float *weights, const float *sh_weight) {
    int32_t n_pair = a->n_tok * a->n_used;
    expert_set e = experts_of(a->gate, a->up, a->down, a->act), s = {};
    if (a->sh_up) s = experts_of(a->sh_gate, a->sh_up, a->sh_down, a->act);
    float *hidden = (float *)cuda_take(c, (size_t)n_pair * (size_t)a->up->n_out * 4);
    float *sh_hidden = NULL;
    if (a->sh_up) sh_hidden = (float *)cuda_take(c, (size_t)a->n_tok * (size_t)a->sh_up->n_out * 4);
    if (c->err.code) return;
    hidden_rows(c, e, a->x, ids, n_pair, a->n_used, hidden);
    if (sh_hidden) hidden_rows(c, s, a->x, NULL, a->n_tok, 1, sh_hidden);
    down_rows(c, e.down, hidden, ids, weights, a->n_used, s.down, sh_hidden, sh_weight, a->out,
              a->n_tok, NULL, 1);
}

/* y[pair] = its expert's ffn, through tiles. x: halves, a row a token. */
static void tile_experts(struct cuda *c, const struct moe_args *a, const uint16_t *x,
                         const float *x_scale, const tile_list &l, float *hidden, uint16_t *h16,
                         float *h_scale, float *y) {
    int32_t n_pair = a->n_tok * a->n_used;
    int64_t n_ff = a->up->n_out, n = a->down->n_out;
    tile_job j = {};
    j.act = (int32_t)a->act;
    j.n_row = n_pair;
    j.x = x, j.x_scale = x_scale, j.list = l, j.per_x = a->n_used;
    j.n_o = 1;
    j.o[0] = tile_out{planes_of(a->up), NULL, hidden, n_ff, 1, 0, 0, 0};
    if (!a->gate) {
        j.mode = TILE_ACT;
    } else if (planes_of(a->gate).form == j.o[0].w.form) {
        j.mode = TILE_GATED;
        j.o[1].w = planes_of(a->gate);
    } else {
        tile_job g = j;
        g.mode = TILE_PLAIN;
        g.o[0].w = planes_of(a->gate);
        cuda_tiles(c, g);
        j.mode = TILE_TIMES;
    }
    cuda_tiles(c, j);
    cuda_to_halves(c, hidden, n_ff, n_pair, n_ff, h16, h_scale);
    j.mode = TILE_PLAIN;
    j.o[0] = tile_out{planes_of(a->down), NULL, y, n, 1, 0, 0, 0};
    j.x = h16, j.x_scale = h_scale, j.per_x = 1;
    cuda_tiles(c, j);
}

static tile_list take_list(struct cuda *c, int32_t n_pair, int64_t n_expert) {
    tile_list l = {};
    l.cap = max_tiles(n_pair, n_expert);
    l.pairs = (int32_t *)cuda_take(c, (size_t)n_pair * 4);
    l.expert = (int32_t *)cuda_take(c, (size_t)l.cap * 4);
    l.at = (int32_t *)cuda_take(c, (size_t)l.cap * 4);
    l.n = (int32_t *)cuda_take(c, (size_t)l.cap * 4);
    l.start = (int32_t *)cuda_take(c, (size_t)n_expert * 4);
    return l;
}

static void many_experts(struct cuda *c, const struct moe_args *a, const int32_t *ids,
                         const float *weights) {
    int32_t n_pair = a->n_tok * a->n_used;
    int64_t n = a->down->n_out, n_ff = a->up->n_out;
    uint16_t *x16 = (uint16_t *)cuda_take(c, (size_t)a->n_tok * (size_t)halves_of(n) * 2);
    float *x_scale = (float *)cuda_take(c, (size_t)a->n_tok * 4);
    tile_list l = take_list(c, n_pair, a->router->n_out);
    float *hidden = (float *)cuda_take(c, (size_t)n_pair * (size_t)n_ff * 4);
    uint16_t *h16 = (uint16_t *)cuda_take(c, (size_t)n_pair * (size_t)halves_of(n_ff) * 2);
    float *h_scale = (float *)cuda_take(c, (size_t)n_pair * 4);
    float *y = (float *)cuda_take(c, (size_t)n_pair * (size_t)n * 4);
    if (c->err.code) return;
    cuda_to_halves(c, a->x, n, a->n_tok, n, x16, x_scale);
    int32_t n_expert = (int32_t)a->router->n_out;
    launch(c, count_kernel, dim3(1), dim3(1024), 0, ids, n_pair, n_expert, l);
    launch(c, place_kernel, dim3((unsigned)n_expert), dim3(PLACE_THREADS), 0, ids, n_pair, l);
    tile_experts(c, a, x16, x_scale, l, hidden, h16, h_scale, y);
    launch(c, combine_kernel, dim3((unsigned)a->n_tok), dim3(256), 0, y, ids, weights, a->n_used, n,
           a->out);
}

/* A dense block, or the shared expert: every token, one matrix. factor: [n_tok] or NULL. */
static void dense_block(struct cuda *c, const struct ffn_args *a, const float *factor) {
    int64_t n_ff = a->up->n_out, n = a->down->n_out;
    float *up = (float *)cuda_take(c, (size_t)a->n_tok * (size_t)n_ff * 4);
    if (c->err.code) return;
    if (c->params.precise) {
        expert_set e = experts_of(a->gate, a->up, a->down, a->act);
        e.gate_b = a->gate_b, e.up_b = a->up_b, e.down_b = a->down_b;
        e.gate_scale = a->gate_scale, e.down_scale = a->down_scale;
        planes none = {};
        hidden_rows(c, e, a->x, NULL, a->n_tok, 1, up);
        down_rows(c, e.down, up, NULL, factor, 1, none, NULL, NULL, a->out, a->n_tok, a->down_b,
                  a->down_scale);
        return;
    }
    float *gate = a->gate ? (float *)cuda_take(c, (size_t)a->n_tok * (size_t)n_ff * 4) : NULL;
    size_t kept = c->scratch_used;
    if (c->err.code) return;
    struct linear_out o[2] = {{a->up, a->up_b, up, n_ff, 1, false},
                              {a->gate, a->gate_b, gate, n_ff, a->gate_scale, false}};
    cuda_linear_rows(c, o, gate ? 2 : 1, a->x, a->up->n_in, a->n_tok, NULL, false);
    struct linear_out down = {a->down, a->down_b, a->out, n, a->down_scale, true};
    if (a->n_tok <= STEP_TOKS && n_ff % 32 == 0 && !is_number_form(planes_of(a->down).form)) {
        cuda_linear_glu(c, &down, glu_job{up, gate, (int32_t)a->act, 0}, a->n_tok, factor);
        return;
    }
    int64_t n_all = (int64_t)a->n_tok * n_ff;
    launch(c, gated_kernel, elem_blocks(n_all), dim3(256), 0, up, gate, n_all, (int)a->act);
    c->scratch_used = kept;
    cuda_linear_rows(c, &down, 1, up, n_ff, a->n_tok, factor, false);
}

void cuda_ffn(struct dev *d, const struct ffn_args *a) {
    struct cuda *c = (struct cuda *)d;
    float *factor = NULL;
    if (!cuda_begin_product(c)) return;
    if (a->row_gate) {
        struct weight w = {a->row_gate, QUANT_F32, 1, a->down->n_out, 1, 1, 0, 0};
        factor = (float *)cuda_take(c, (size_t)a->n_tok * sizeof *factor);
        struct linear_out o = {&w, NULL, factor, 1, 1, false};
        if (c->err.code) return;
        cuda_linear_rows(c, &o, 1, a->x, a->down->n_out, a->n_tok, NULL, true);
    }
    dense_block(c, a, factor);
    cuda_wrote(c, a->out, (size_t)a->n_tok * (size_t)a->down->n_out * 4);
}

void cuda_moe(struct dev *d, const struct moe_args *a) {
    struct cuda *c = (struct cuda *)d;
    int64_t n_expert = a->router->n_out;
    if (!cuda_begin_product(c)) return;
    if (n_expert > MAX_EXPERTS || a->n_used > MAX_USED) {
        cuda_fail_with(c, CHIMERE_ELIMIT, "more experts than the router's kernel has room for");
        return;
    }
    bool is_few = a->n_tok <= STEP_TOKS || c->params.precise, in_bytes = false;
    if (is_few && !c->params.precise) {
        in_bytes = is_bytes(experts_of(a->gate, a->up, a->down, a->act)) &&
                   (!a->sh_up || is_bytes(experts_of(a->sh_gate, a->sh_up, a->sh_down, a->act)));
    }
    float *logits = (float *)cuda_take(c, (size_t)a->n_tok * (size_t)n_expert * 4);
    int32_t *ids =
        a->ids ? a->ids : (int32_t *)cuda_take(c, (size_t)a->n_tok * (size_t)a->n_used * 4);
    float *weights = (float *)cuda_take(c, (size_t)a->n_tok * (size_t)a->n_used * 4);
    float *sh_weight = (float *)cuda_take(c, (size_t)a->n_tok * 4);
    choice_job choice = {logits,
                         a->select_bias,
                         (int32_t)n_expert,
                         a->n_used,
                         (int32_t)a->gating,
                         (int32_t)a->normalise,
                         a->scale,
                         0};
    /* the same weights, without the sum over all experts */
    if (a->gating == MOE_SOFTMAX && a->normalise && !a->select_bias)
        choice.gating = MOE_SOFTMAX_CHOSEN;
    /* one launch: the router, the shared expert's gate and, for few tokens, its products */
    int64_t sh_ff = a->sh_up ? a->sh_up->n_out : 0, n_embd = a->down->n_out;
    struct weight gate_row = {a->shared_gate_w, QUANT_F32, 1, n_embd, 1, 1, 0, 0};
    struct linear_out o[4] = {{a->router, NULL, logits, n_expert, 1, false}};
    int32_t n_o = 1;
    struct glu_job shared = {};
    if (a->shared_gate_w) o[n_o++] = linear_out{&gate_row, NULL, sh_weight, 1, 1, false};
    if (in_bytes && a->sh_up) {
        float *rows = (float *)cuda_take(c, 2 * (size_t)a->n_tok * (size_t)sh_ff * 4);
        shared.up = rows;
        shared.gate = a->sh_gate ? rows + a->n_tok * sh_ff : NULL;
        shared.act = (int32_t)a->act;
        o[n_o++] = linear_out{a->sh_up, NULL, rows, sh_ff, 1, false};
        if (a->sh_gate)
            o[n_o++] = linear_out{a->sh_gate, NULL, rows + a->n_tok * sh_ff, sh_ff, 1, false};
    }
    if (c->err.code) return;
    cuda_wrote(c, a->out, (size_t)(a->n_tok * n_embd) * 4);
    cuda_linear_rows(c, o, n_o, a->x, n_embd, a->n_tok, NULL, true);
    if (a->sh_up && !a->shared_gate_w) sh_weight = NULL;
    if (!in_bytes || n_expert > CHOOSE_FEW) {
        dim3 grid((unsigned)((a->n_tok * 32 + CHOOSE_THREADS - 1) / CHOOSE_THREADS));
        launch(c, choose_kernel, grid, dim3(CHOOSE_THREADS), 0, choice, a->n_tok, ids, weights);
        choice.logits = NULL;
    }
    if (in_bytes) {
        few_experts8(c, a, experts_of(a->gate, a->up, a->down, a->act), choice, ids, weights,
                     shared, sh_weight);
        return;
    }
    if (is_few) {
        few_experts(c, a, ids, weights, sh_weight);
        return;
    }
    size_t kept = c->scratch_used;
    many_experts(c, a, ids, weights);
    if (!a->sh_up) return;
    c->scratch_used = kept;
    struct ffn_args f = {};
    f.n_tok = a->n_tok;
    f.act = a->act;
    f.x = a->x;
    f.gate = a->sh_gate;
    f.up = a->sh_up;
    f.down = a->sh_down;
    f.gate_scale = f.down_scale = 1;
    f.out = a->out;
    dense_block(c, &f, sh_weight);
}
