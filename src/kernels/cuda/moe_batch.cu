/* moe_batch.cu: the mixture of experts for more tokens than a decode step of one sequence has: every chosen expert is
 * read and unpacked once per 8 tokens that chose it.
 *
 * Pairs (token, expert) are sorted by expert and divided into tiles of one expert and at most 8 pairs. A strip is 16
 * rows of one of the expert's matrices, the work of a warp (gemv_batch.cuh). The strips of all tiles form one
 * sequence, which the blocks divide evenly. A result does not depend on its place in a tile, so neither the order of
 * an expert's pairs nor the rest of the batch changes it. */
#include <utility>

#include "kernels/cuda/gemv_batch.cuh"
#include "kernels/cuda/moe.cuh"

/* Tiles of one expert: expert, first pair in `pairs`, number of pairs. */
struct group_list {
    int32_t *pairs; /* [n_pair], sorted by expert */
    uint4 *tiles;   /* [cap] */
    int32_t *n_tile;
};

/* One block. Pairs whose expert is dropped or missing are in no tile. */
static_assert(FEW_PLACES == 2, "group_kernel uses them in turn");
enum { GROUP_SORTERS = 1024, GROUP_PAIRS = 8, GROUP_TOKS = 256, GROUP_BLOCKS = 2 };
__global__ void __launch_bounds__(GROUP_SORTERS)
    group_sort_kernel(const int32_t *ids, int32_t n_pair, int32_t n_expert, group_list l) {
    __shared__ int32_t next[MAX_EXPERTS], sums[2][32];
    int tid = (int)threadIdx.x, lane = tid % 32, warp = tid / 32;
    pdl_trigger();
    if (tid < n_expert) next[tid] = 0;
    pdl_wait();
    __syncthreads();
    for (int p = tid; p < n_pair; p += GROUP_SORTERS)
        if (ids[p] >= 0) atomicAdd(&next[ids[p]], 1);
    __syncthreads();
    int own[2] = {tid < n_expert ? next[tid] : 0, 0}, before[2]; /* pairs, tiles; of expert tid */
    own[1] = (own[0] + GROUP_PAIRS - 1) / GROUP_PAIRS;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        before[i] = own[i];
        for (int o = 1; o < 32; o *= 2) {
            int x = __shfl_sync(0xffffffffu, before[i], (lane - o) & 31);
            if (lane >= o) before[i] += x;
        }
        if (lane == 31) sums[i][warp] = before[i];
        before[i] -= own[i];
    }
    __syncthreads();
    for (int w = 0; w < warp; w++) before[0] += sums[0][w], before[1] += sums[1][w];
    if (tid < n_expert) next[tid] = before[0];
    for (int k = 0; k < own[1]; k++)
        l.tiles[before[1] + k] =
            make_uint4((uint32_t)tid, (uint32_t)(before[0] + k * GROUP_PAIRS),
                       (uint32_t)min(own[0] - k * GROUP_PAIRS, (int)GROUP_PAIRS), 0);
    if (tid == GROUP_SORTERS - 1) *l.n_tile = before[1] + own[1];
    __syncthreads();
    for (int p = tid; p < n_pair; p += GROUP_SORTERS)
        if (ids[p] >= 0) l.pairs[atomicAdd(&next[ids[p]], 1)] = p;
}

struct group_job {
    planes w[2];   /* of one form and shape */
    float *dst[2]; /* [n_pair, n_row] */
    act8 x;
    group_list list;
    divisor n_strip, per_x; /* strips of a tile; pair p multiplies row p / per_x of x */
    int32_t n_half;         /* strips of a matrix */
    int32_t place_bytes;
};

/* What a block works on: strips [first, last) of a tile. */
struct group_turn {
    int32_t pairs[GROUP_PAIRS]; /* -1: none */
    int32_t first, last, row0;  /* row0: first row of the expert in its stack */
    uint32_t from;              /* the first strip of the next turn, of all tiles */
};

/* Sets *turn by thread 0 to 7; all threads wait for it. */
__device__ __forceinline__ void group_next(const group_job &j, group_turn *turn, uint32_t from,
                                           uint32_t end) {
    uint32_t tile = from / j.n_strip, first = from - tile * j.n_strip.n;
    uint32_t last = min(first + end - from, j.n_strip.n);
    uint4 of = j.list.tiles[tile];
    int k = (int)threadIdx.x;
    turn->pairs[k] = k < (int)of.z ? j.list.pairs[(int)of.y + k] : -1;
    turn->first = (int)first, turn->last = (int)last;
    turn->row0 = (int)of.x * (int)j.w[0].n_row;
    turn->from = from + last - first;
}

template <int F>
__global__ void __launch_bounds__(VEC_THREADS, GROUP_BLOCKS)
    group_kernel(const __grid_constant__ group_job j) {
    DYNAMIC_SHARED(uint8_t, room);
    __shared__ group_turn turn;
    int warp = (int)(threadIdx.x / 32u), lane = (int)threadIdx.x % 32;
    int n_chunk = j.w[0].n_unit / chunk<F>::units;
    uint8_t *place = room + few_input::bytes(j.w[0].n_unit) + warp * FEW_PLACES * j.place_bytes;
    pdl_trigger();
    pdl_wait();
    auto end = [&] {
        uint32_t n_all = (uint32_t)*j.list.n_tile * j.n_strip.n;
        uint32_t each = (n_all + gridDim.x - 1) / gridDim.x;
        return min((blockIdx.x + 1) * each, n_all);
    };
    if (threadIdx.x < GROUP_PAIRS) {
        uint32_t n_all = (uint32_t)*j.list.n_tile * j.n_strip.n;
        uint32_t from = blockIdx.x * ((n_all + gridDim.x - 1) / gridDim.x);
        if (from < end()) group_next(j, &turn, from, end());
        else turn.first = turn.last = -1;
    }
    __syncthreads();
#pragma unroll 1
    while (turn.first >= 0) {
        int next = turn.first + warp, next_chunk = 0; /* the next chunk to copy */
        auto fetch = [&](int at) {
            if (next < turn.last) {
                bool second = next >= j.n_half;
                chunk_fetch<F>(place + at * j.place_bytes, j.w[second],
                               turn.row0 + (next - (second ? j.n_half : 0)) * FEW_ROWS, next_chunk);
                if (++next_chunk == n_chunk) next_chunk = 0, next += FEW_WARPS;
            }
            copy_commit();
        };
#pragma unroll 1
        for (int i = 0; i < FEW_PLACES; i++) fetch(i);
        few_fill(room, j.x, j.w[0].n_unit,
                 [&](int k) { return (uint32_t)max(turn.pairs[k], 0) / j.per_x; });
        __syncthreads();
        few_input in(room, j.w[0].n_unit);
        int at = 0;
#pragma unroll 1
        for (int strip = turn.first + warp; strip < turn.last; strip += FEW_WARPS) {
            float sum[4] = {0, 0, 0, 0};
#pragma unroll 1
            for (int c = 0; c < n_chunk; c++) {
                copy_wait<FEW_PLACES - 1>();
                __syncwarp();
                chunk_dot<F>(place + at * j.place_bytes, in, c * chunk<F>::units,
                             ((lane / 4 * n_chunk + c) & 1) != 0,
                             sum); /* strips begin at even rows */
                __syncwarp();
                fetch(at);
                at ^= 1;
            }
            bool second = strip >= j.n_half;
            int row = (strip - (second ? j.n_half : 0)) * FEW_ROWS + lane / 4;
#pragma unroll 1
            for (int k = 0; k < 2; k++) {
                int pair = turn.pairs[lane % 4 * 2 + k];
                if (pair < 0) continue;
                float *to = j.dst[second] + (size_t)pair * (size_t)j.w[0].n_row + row;
                to[0] = k ? sum[1] : sum[0], to[8] = k ? sum[3] : sum[2];
            }
        }
        __syncthreads(); /* neither turn nor room is read any more */
        if (warp == 0) {
            uint32_t from = turn.from;
            __syncwarp();
            if (lane < GROUP_PAIRS && from < end()) group_next(j, &turn, from, end());
            else if (lane < GROUP_PAIRS) turn.first = -1;
        }
        __syncthreads();
    }
}

/* clang-format off */
#define GROUP_FORMS(X) X(FORM_I8) X(FORM_N4) X(FORM_N4K) X(FORM_N5K) X(FORM_N6K) X(FORM_O4)
/* clang-format on */

static int32_t place_of(int form) {
    switch (form) {
#define X(F)                                                                                       \
    case F: return chunk<F>::bytes;
        GROUP_FORMS(X)
#undef X
    }
    return 0;
}
static size_t group_bytes(const planes &w) {
    return (size_t)few_input::bytes(w.n_unit) + (size_t)(FEW_WARPS * FEW_PLACES * place_of(w.form));
}

static bool is_grouped(const struct cuda *c, const planes &w) {
    return place_of(w.form) && w.n_unit % 8 == 0 && w.n_row % FEW_ROWS == 0 &&
           blocks_of(c, group_bytes(w)) > 0;
}

bool cuda_can_group(const struct cuda *c, const struct moe_args *a, const expert_set &e) {
    return c->compute >= 80 && !c->params.precise && a->n_tok > STEP_TOKS &&
           a->n_tok <= GROUP_TOKS && a->router->n_out <= MAX_EXPERTS && !a->bias.gate &&
           !a->bias.up && a->act != ACT_CLAMPED && is_grouped(c, e.up) && is_grouped(c, e.down) &&
           (!e.has_gate || e.gate.form == e.up.form) && e.up.n_row % 32 == 0;
}

static void group_launch(struct cuda *c, const struct moe_args *a, group_job j, int n_w) {
    const planes &w = j.w[0];
    size_t bytes = group_bytes(w);
    int32_t blocks = blocks_of(c, bytes);
    dim3 grid((unsigned)(c->n_sm * (blocks < GROUP_BLOCKS ? blocks : GROUP_BLOCKS)));
    j.n_half = (int32_t)(w.n_row / FEW_ROWS);
    j.n_strip = divisor_of(n_w * j.n_half);
    j.place_bytes = place_of(w.form);
    for (int i = 0; i < n_w; i++) cuda_reads_planes(c, j.w[i], experts_touched(a));
    switch (w.form) {
#define X(F)                                                                                       \
    case F: launch(c, group_kernel<F>, grid, dim3(VEC_THREADS), bytes, j); break;
        GROUP_FORMS(X)
#undef X
    }
}

/* Scratch of cuda_group for up to GROUP_TOKS tokens. */
size_t cuda_group_scratch(const struct dev_need *n) {
    size_t n_tok = (size_t)(n->n_tok < GROUP_TOKS ? n->n_tok : GROUP_TOKS);
    size_t n_pair = n_tok * (size_t)(n->n_used > 0 ? n->n_used : 1);
    return act8_bytes((int64_t)n_tok, n->n_in + 32) + act8_bytes((int64_t)n_pair, n->n_ff + 32) +
           n_pair * 4 + (n_pair + (size_t)n->n_expert + 1) * sizeof(uint4) + 8 * 256;
}

void cuda_group(struct cuda *c, const struct moe_args *a, const expert_set &e, const int32_t *ids,
                float *y) {
    int32_t n_pair = a->n_tok * a->n_used, n_expert = (int32_t)a->router->n_out;
    int64_t n_ff = e.up.n_row, cap = n_pair / GROUP_PAIRS + (n_expert < n_pair ? n_expert : n_pair);
    group_job j = {};
    j.list.pairs = (int32_t *)cuda_take(c, (size_t)n_pair * 4);
    j.list.tiles = (uint4 *)cuda_take(c, (size_t)cap * sizeof(uint4));
    j.list.n_tile = (int32_t *)cuda_take(c, 4);
    j.x = cuda_act8(c, a->x, e.up.n_in, a->n_tok, e.up.n_in);
    float *rows = (float *)cuda_take(c, 2 * (size_t)(n_pair * n_ff) * 4);
    act8 hidden = act8_at(cuda_take(c, act8_bytes(n_pair, n_ff)), n_pair, n_ff);
    if (c->err.code) return;
    launch(c, group_sort_kernel, dim3(1), dim3(GROUP_SORTERS), 0, ids, n_pair, n_expert, j.list);
    glu_job glu = {rows, e.has_gate ? rows + n_pair * n_ff : NULL, e.act, 0};
    j.w[0] = e.up, j.w[1] = e.gate;
    j.dst[0] = rows, j.dst[1] = rows + n_pair * n_ff;
    j.per_x = divisor_of(a->n_used);
    group_launch(c, a, j, e.has_gate ? 2 : 1);
    cuda_glu8(c, glu, n_pair, n_ff, hidden);
    j.w[0] = e.down, j.dst[0] = y;
    j.x = hidden;
    j.per_x = divisor_of(1);
    group_launch(c, a, j, 1);
}
