/* moe_down_gemv.cuh: the down product of the chosen experts at decode, 8-bit activations: out[t] += sum of weight *
 * down(hidden).
 *
 * The units of a row, of all its experts in sequence, form a stream. A group of lanes has a few rows; a lane takes
 * every GROUP-th unit. The stream is split into n_part parts of n_step steps. A lane adds within a part, then its parts
 * in order, then the lanes of a group are added; so the result of a token does not depend, bit for bit, on the number
 * of tokens. If U is not 0, rows have U units and U lanes share a row: a step is then one expert, and the address
 * offsets between a lane's rows are compile-time constants.
 *   few tokens   a part is a warp of a block; parts are added in shared memory; blockIdx.y is the token
 *   many tokens  a warp computes all parts of a row; it prefetches the units of its next task. Tasks of 2^shift row
 *                groups of all tokens follow each other, so that tokens find the experts that they share in the cache */
#ifndef CHIMERE_KERNELS_CUDA_MOE_DOWN_GEMV_CUH
#define CHIMERE_KERNELS_CUDA_MOE_DOWN_GEMV_CUH

#include "kernels/cuda/moe.cuh"
#include "kernels/cuda/gemv_int8.cuh"

struct down8_job {
    planes down;
    act8 hidden;
    const int32_t *ids;             /* [n_tok, n_used] */
    const float *weights;           /* [n_tok, n_used] */
    int32_t n_used, n_part, n_step; /* n_step: steps per part */
    int32_t n_all, n_task, shift;   /* n_all: units of a stream; n_task: tasks of all tokens */
    divisor n_unit, n_few, each;    /* down.n_unit; tasks (a few rows each) per token, per block */
    divisor n_tok;
    float *out;
};

/* Limits that let a block of the first kernel (256 threads, 96 registers) run next to a block of hidden8_kernel. */
enum { DOWN_PARTS = 4, DOWN_MANY = 256, DOWN_BLOCKS = 2 };
static __host__ __device__ constexpr int down_bound(bool more) { return more ? 512 : 640; }

/* Rows per lane. */
static __host__ __device__ constexpr int down_rows(int form) { return is_wide_form(form) ? 2 : 4; }

/* How the units of a stream are distributed over the lanes. */
template <int U> struct down8_lanes {
    static_assert(U == 0 || U == 16, "");
    static constexpr int GROUP = U ? U : 32,
                         SIDE = 32 / GROUP; /* lanes per row; rows of a warp in parallel */
    static __device__ __forceinline__ uint32_t unit(const down8_job &j, int first, int lane) {
        /* after the end: the last unit, with activations times 0 */
        return (uint32_t)(U ? first + lane % GROUP : min(first + lane, j.n_all - 1));
    }
    static __device__ __forceinline__ uint32_t expert(const down8_job &j, int first, uint32_t i) {
        return U ? (uint32_t)first / GROUP : i / j.n_unit;
    }
};

/* A warp's position in the streams: a token and a few of its rows. */
template <int F, int U> struct down8_place {
    using L = down8_lanes<U>;
    static constexpr int R = down_rows(F);
    int32_t id;      /* in lane k: the token's k-th expert */
    uint32_t t, row; /* the token; the lane's first row */

    __device__ __forceinline__ down8_place(const down8_job &j, uint32_t of_token, uint32_t few,
                                           int lane)
        : t(of_token), row(few * (R * L::SIDE) + (uint32_t)lane / L::GROUP) {
        id = __ldcg(j.ids + t * (uint32_t)j.n_used + (uint32_t)min(lane, j.n_used - 1));
        id = warp_stand_in(id);
    }
    /* Loads the units of a step. All lanes must call it. */
    __device__ __forceinline__ void fetch(raw<F> *c, const down8_job &j, int lane,
                                          int first) const {
        constexpr plane_sizes s = sizes_of(F);
        uint32_t i = L::unit(j, first, lane), k = L::expert(j, first, i);
        uint32_t n_row = (uint32_t)j.down.n_row, n_unit = U ? U : j.n_unit.n;
        uint32_t mat = (uint32_t)max(__shfl_sync(0xffffffffu, id, (int)k), 0), at;
        if (U) at = mat * n_row * U + (row * U + (uint32_t)lane % L::GROUP);
        else at = (mat * n_row + row - k) * n_unit + i;
        const uint8_t *codes = j.down.codes + (size_t)at * s.codes;
        const uint8_t *more = j.down.more + (size_t)at * s.more;
        const uint8_t *sub = j.down.sub + (size_t)at * s.sub;
        const uint8_t *top = j.down.top + (size_t)(at / s.top_units) * s.top;
#pragma unroll
        for (int r = 0; r < R; r++) {
            uint32_t on = (uint32_t)r * L::SIDE * n_unit;
            load_field<s.codes, true>(c[r].code, codes + on * s.codes);
            load_field<s.more, true>(c[r].more, more + on * s.more);
            load_field<s.sub, false>(&c[r].sub, sub + on * s.sub);
            load_field<s.top, false>(c[r].top, top + on / s.top_units * s.top);
        }
    }
    /* The activations of a step; weight: in lane k, that of the k-th expert. */
    __device__ __forceinline__ act_unit act(const down8_job &j, int lane, float weight,
                                            int first) const {
        uint32_t i = L::unit(j, first, lane);
        act_unit a = act8_load(j.hidden, t * (uint32_t)j.n_all + i);
        float by = __shfl_sync(0xffffffffu, weight, (int)L::expert(j, first, i));
        a.scale *= U || first + lane < j.n_all ? by : 0.0f;
        return a;
    }
    __device__ __forceinline__ float *out(const down8_job &j, int lane) const {
        return j.out + t * (uint32_t)j.down.n_row + row +
               (uint32_t)(lane % L::GROUP / (L::GROUP / R) * L::SIDE);
    }
    /* Stores the sums of the warp's rows in *to, which contained `old`. */
    __device__ __forceinline__ void put(float *to, float old, float *sum, int lane) const {
        float y = lanes_share<R>(sum, lane % L::GROUP, L::GROUP);
        bool bad = __shfl_sync(0xffffffffu, id, 0) < 0;
        if (lane % (L::GROUP / R) == 0) *to = old + (bad ? __int_as_float(0x7fc00000) : y);
    }
};

/* Computes one or two steps of a stream from unit `first` on; next(slot) loads the units that replace a step's. */
template <int F, int U, class Next>
__device__ __forceinline__ void down8_two(raw<F> code[2][down_rows(F)], const down8_place<F, U> &at,
                                          const down8_job &j, const grid_tables &g, int lane,
                                          float weight, int first, bool both, float *sum,
                                          Next next) {
    act_unit a = at.act(j, lane, weight, first);
    act_unit b = at.act(j, lane, weight, both ? first + down8_lanes<U>::GROUP : first);
#pragma unroll
    for (int r = 0; r < down_rows(F); r++) sum[r] = raw_dot8<F>(code[0][r], a, g, sum[r]);
    next(0);
    if (both) {
#pragma unroll
        for (int r = 0; r < down_rows(F); r++) sum[r] = raw_dot8<F>(code[1][r], b, g, sum[r]);
    }
    next(1);
}

/* Few tokens: parts are warps of a block. A block reads the choice before its pdl_wait: the preceding kernel writes
 * the choice before it triggers this one. Shared memory: grid points. */
template <int F, int U>
__global__ void __launch_bounds__(down_bound(TAKES_MORE), 1)
    down8_kernel(const __grid_constant__ down8_job j, grid_tables g) {
    constexpr int R = down_rows(F), STEP = down8_lanes<U>::GROUP;
    DYNAMIC_SHARED(uint32_t, points);
    __shared__ float sums[down_bound(TAKES_MORE) / 32][R][32];
    int lane = (int)(threadIdx.x % 32u), warp = (int)(threadIdx.x / 32u), each = (int)j.each.n;
    int part = (int)((uint32_t)warp / j.each), first = part * j.n_step * STEP;
    int end = min(first + j.n_step * STEP, j.n_all);
    uint32_t few = blockIdx.x * (uint32_t)each + (uint32_t)(warp - part * each);
    bool has = few < j.n_few.n;
    down8_place<F, U> at(j, blockIdx.y, has ? few : 0, lane);
    raw<F> code[2][R];
    if (!has) end = first;
    if (first < end) at.fetch(code[0], j, lane, first);
    if (first + STEP < end) at.fetch(code[1], j, lane, first + STEP);
    if (grid_words(F)) grid_load(g, F, points);
    float *out = at.out(j, lane);
    const float *weights = j.weights + at.t * (uint32_t)j.n_used + min(lane, j.n_used - 1);
    prefetch_tlb(out);
    if (lane == 0) {
        prefetch_tlb(j.hidden.q);
        prefetch_tlb(weights);
    }
    pdl_wait();
    pdl_trigger(); /* earlier, the next kernel's weights would compete with the experts' */
    float weight = *weights, old = part == 0 ? *out : 0.0f, sum[R] = {};
#pragma unroll 1
    for (; first < end; first += 2 * STEP)
        down8_two<F, U>(code, at, j, g, lane, weight, first, first + STEP < end, sum,
                        [&](int slot) {
                            int then = first + (2 + slot) * STEP;
                            if (then < end) at.fetch(code[slot], j, lane, then);
                        });
    if (part)
#pragma unroll
        for (int r = 0; r < R; r++) sums[warp][r][lane] = sum[r];
    if (j.n_part > 1) __syncthreads();
    if (part || !has) return;
#pragma unroll 1
    for (int p = 1; p < j.n_part; p++)
#pragma unroll
        for (int r = 0; r < R; r++) sum[r] += sums[warp + p * each][r][lane];
    at.put(out, old, sum, lane);
}

/* Many tokens: a warp computes all parts of its rows. Its tasks start at its index in the grid and
 * advance by the number of warps. */
template <int F, int U>
__global__ void __launch_bounds__(DOWN_MANY, DOWN_BLOCKS)
    down8_many_kernel(const __grid_constant__ down8_job j, grid_tables g) {
    constexpr int R = down_rows(F), STEP = down8_lanes<U>::GROUP;
    DYNAMIC_SHARED(uint32_t, points);
    int lane = (int)(threadIdx.x % 32u), n_warp = (int)gridDim.x * (DOWN_MANY / 32);
    int task = (int)(blockIdx.x * (DOWN_MANY / 32) + threadIdx.x / 32u);
    auto place_of = [&](int of) {
        uint32_t i = (uint32_t)min(of, j.n_task - 1), set = i >> j.shift, first = set / j.n_tok;
        return down8_place<F, U>(j, set - first * j.n_tok.n,
                                 (first << j.shift) + (i & ((1u << j.shift) - 1)), lane);
    };
    down8_place<F, U> at = place_of(task);
    raw<F> code[2][R];
    if (task < j.n_task) {
        at.fetch(code[0], j, lane, 0);
        at.fetch(code[1], j, lane, STEP);
    }
    if (grid_words(F)) grid_load(g, F, points);
    if (lane == 0) {
        prefetch_tlb(j.hidden.q);
        prefetch_tlb(j.weights);
        prefetch_tlb(j.out);
    }
    pdl_wait();
    pdl_trigger();
#pragma unroll 1
    for (; task < j.n_task; task += n_warp) {
        down8_place<F, U> next = place_of(task + n_warp), to = at;
        float weight = j.weights[at.t * (uint32_t)j.n_used + (uint32_t)min(lane, j.n_used - 1)];
        float *out = at.out(j, lane), old = *out, total[R] = {}, sum[R] = {};
        int end = min(j.n_step * STEP, j.n_all); /* of the part */
#pragma unroll 1
        for (int first = 0; first < j.n_all;) {
            /* the next step is in this part, at the start of the next part, or in the next task; after the last task,
             * its units are loaded again */
            int then = min(first + 2 * STEP, end), then_end = then < end ? end : then + 2 * STEP;
            if (then >= j.n_all) then = 0, then_end = 2 * STEP, to = next;
            down8_two<F, U>(code, at, j, g, lane, weight, first, first + STEP < end, sum,
                            [&](int slot) {
                                if (then + slot * STEP < then_end)
                                    to.fetch(code[slot], j, lane, then + slot * STEP);
                            });
            first = min(first + 2 * STEP, end);
            if (first < end) continue;
            end = min(end + j.n_step * STEP, j.n_all);
#pragma unroll
            for (int r = 0; r < R; r++) total[r] += sum[r], sum[r] = 0.0f;
        }
        at.put(out, old, total, lane);
        at = next;
    }
}

#endif
