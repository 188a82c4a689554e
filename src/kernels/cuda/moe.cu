/* moe.cu: feed-forward blocks: dense, and mixture of experts. Decode reads the chosen experts' weights once per token
 * that chose them. Prefill sorts pairs (token, expert) by expert on the device and multiplies tiles. Results are
 * summed in the order of a token's choice, whatever else is in the batch. */
#include <utility>

#include "kernels/cuda/cuda_impl.cuh"
#include "kernels/cuda/moe_down_gemv.cuh"
#include "kernels/cuda/gemv_float.cuh"
#include "kernels/cuda/moe.cuh"
#include "kernels/cuda/gemm.cuh"

extern "C" {
#include "format/quant.h"
}

/* ---- choice of experts ---- */

__global__ void __launch_bounds__(CHOOSE_THREADS)
    choose_kernel(choice_job c, int32_t n_tok, int32_t *ids, float *weights) {
    pdl_trigger();
    pdl_wait();
    int64_t t = ((int64_t)blockIdx.x * CHOOSE_THREADS + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (t >= n_tok) return;
    int32_t id;
    if (c.n_group > 1) id = warp_choose<MAX_EXPERTS / 32, true>(c, t);
    else if (c.n_expert <= CHOOSE_FEW) id = warp_choose<CHOOSE_FEW / 32>(c, t);
    else id = warp_choose<MAX_EXPERTS / 32>(c, t);
    id = warp_keep(c, t, id);
    float weight = warp_weight(c, t, id);
    if (lane < c.n_used) ids[t * c.n_used + lane] = id, weights[t * c.n_used + lane] = weight;
}

/* The same for up to BATCH_TOKS tokens by one block, which also lists the pairs (token, expert) by expert, so that the
 * pairs of an expert read its weights at about the same time. choice.logits NULL: ids are already chosen. */
enum { ROUTE_THREADS = 768 };
__global__ void __launch_bounds__(ROUTE_THREADS)
    route_kernel(choice_job c, int32_t n_tok, int32_t *ids, float *weights, int16_t *order) {
    __shared__ int32_t
        at[MAX_EXPERTS + 1]; /* pairs of an expert, then the place of the next; last: of none */
    int tid = (int)threadIdx.x, lane = tid % 32, n_pair = n_tok * c.n_used;
    pdl_trigger();
    for (int e = tid; e <= c.n_expert; e += ROUTE_THREADS) at[e] = 0;
    pdl_wait();
    if (c.logits)
#pragma unroll 1
        for (int t = tid / 32; t < n_tok; t += ROUTE_THREADS / 32) {
            int32_t id = warp_keep(c, t, warp_choose<CHOOSE_FEW / 32>(c, t));
            float weight = warp_weight(c, t, id);
            if (lane >= c.n_used) continue;
            ids[t * c.n_used + lane] = id, weights[t * c.n_used + lane] = weight;
        }
    __syncthreads();
    for (int p = tid; p < n_pair; p += ROUTE_THREADS)
        atomicAdd(&at[ids[p] < 0 ? c.n_expert : ids[p]], 1);
    __syncthreads();
    if (tid < 32) { /* prefix sums; each lane has `each` experts */
        int each = c.n_expert / 32 + 1, first = lane * each, own = 0;
        int last = first + each < c.n_expert + 1 ? first + each : c.n_expert + 1;
        for (int e = first; e < last; e++) own += at[e];
        int sum = own;
        for (int o = 1; o < 32; o *= 2) {
            int x = __shfl_sync(0xffffffffu, sum, (lane - o) & 31);
            if (lane >= o) sum += x;
        }
        sum -= own;
        for (int e = first; e < last; e++) {
            int n = at[e];
            at[e] = sum;
            sum += n;
        }
    }
    __syncthreads();
    for (int p = tid; p < n_pair; p += ROUTE_THREADS)
        order[atomicAdd(&at[ids[p] < 0 ? c.n_expert : ids[p]], 1)] = (int16_t)p;
}

/* ---- decode with f32 activations: precise mode, unquantized experts ---- */

/* hidden[pair] = act(gate x) * (up x). Pair p of token t uses expert ids[p], which is matrix mat. */
template <bool HAS_GATE>
__global__ void __launch_bounds__(VEC_THREADS)
    hidden_kernel(expert_set e, const float *x, const int32_t *ids, int32_t n_used, float *hidden,
                  grid_tables tables) {
    DYNAMIC_SHARED(uint8_t, room);
    int32_t pair = (int32_t)blockIdx.y;
    int group = float_lanes_of(e.up), lane = (int)threadIdx.x % group;
    int64_t first = (int64_t)blockIdx.x * (VEC_THREADS / group) * VEC_ROWS +
                    (int64_t)(threadIdx.x / (unsigned)group) * VEC_ROWS;
    pdl_trigger();
    pdl_wait();
    int32_t mat = ids ? ids[pair] : 0;
    if (mat < 0) return; /* dropped, or scores not finite: down_kernel writes NaN */
    int32_t n_in = e.up.n_in;
    const float *a = act_load(room, x + (int64_t)(pair / n_used) * n_in, 0, 1, n_in);
    float up[VEC_ROWS][1], gate[VEC_ROWS][1];
    any_rows<1>(e.up, mat, first, lane, group, tables, a, 1, up);
    if (HAS_GATE) any_rows<1>(e.gate, mat, first, lane, group, tables, a, 1, gate);
    if (lane) return;
    for (int r = 0; r < VEC_ROWS && first + r < e.up.n_row; r++) {
        int64_t at = mat * e.up.n_row + first + r;
        float u = up[r][0] + (e.up_b ? e.up_b[at] : 0.0f);
        float h = HAS_GATE ? glu_of(e.act,
                                    e.gate_scale * gate[r][0] + (e.gate_b ? e.gate_b[at] : 0.0f), u)
                           : act_of(e.act, u);
        hidden[pair * e.up.n_row + first + r] = h;
    }
}

/* out[t] += sum over the token's pairs of weight * down(hidden), plus the shared expert. blockIdx.y is the token. bias:
 * one row per matrix; with ids it is added before the weight is applied, without ids after. Without ids there is one
 * matrix, whose factor is the logistic function of weights[t]; likewise for the shared expert. group: lanes per row,
 * the larger number of the two matrices. */
__global__ void __launch_bounds__(VEC_THREADS)
    down_kernel(planes down, const float *hidden, const int32_t *ids, const float *weights,
                int32_t n_used, planes sh_down, const float *sh_hidden, const float *sh_weight,
                float *out, const float *bias, float scale, int32_t group, grid_tables tables) {
    DYNAMIC_SHARED(uint8_t, room);
    int32_t t = (int32_t)blockIdx.y;
    int lane = (int)threadIdx.x % group;
    int64_t first = (int64_t)blockIdx.x * (VEC_THREADS / group) * VEC_ROWS +
                    (int64_t)(threadIdx.x / (unsigned)group) * VEC_ROWS;
    pdl_trigger();
    pdl_wait();
    float sum[VEC_ROWS] = {0}, y[VEC_ROWS][1];
    bool bad = false;
    for (int32_t k = 0; k < n_used; k++) {
        int32_t mat = ids ? ids[t * n_used + k] : 0;
        if (mat < -1) continue; /* dropped */
        if (mat < 0) {
            bad = true;
            break;
        }
        __syncthreads(); /* room is no longer read */
        const float *a =
            act_load(room, hidden + ((int64_t)t * n_used + k) * down.n_in, 0, 1, down.n_in);
        any_rows<1>(down, mat, first, lane, group, tables, a, 1, y);
        float f = !weights ? scale : ids ? weights[t * n_used + k] : logistic(weights[t]);
        for (int r = 0; r < VEC_ROWS; r++) {
            bool biased = ids && bias && first + r < down.n_row;
            sum[r] += f * (y[r][0] + (biased ? bias[mat * down.n_row + first + r] : 0.0f));
        }
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
        float v = sum[r] + (bias && !ids ? bias[first + r] : 0.0f);
        *dst += bad ? __int_as_float(0x7fc00000) : v;
    }
}

/* ---- prefill ---- */

/* A single block: counts the pairs of every expert and assigns list positions and tiles to the experts. */
__global__ void count_kernel(const int32_t *ids, int32_t n_pair, int32_t n_expert, tile_list l) {
    __shared__ int32_t count[MAX_EXPERTS], tile[MAX_EXPERTS + 1];
    pdl_trigger();
    pdl_wait();
    int tid = (int)threadIdx.x, n = (int)blockDim.x;
    for (int e = tid; e < n_expert; e += n) count[e] = 0;
    __syncthreads();
    for (int p = tid; p < n_pair; p += n)
        if (ids[p] >= 0) atomicAdd(&count[ids[p]], 1);
    __syncthreads();
    if (tid < 32) { /* prefix sums; each lane has `each` experts */
        int each = (n_expert + 31) / 32, first = tid * each;
        int last = first + each < n_expert ? first + each : n_expert;
        int32_t own[2] = {0, 0}, before[2]; /* pairs, tiles */
        for (int e = first; e < last; e++)
            own[0] += count[e], own[1] += (count[e] + TILE_N - 1) / TILE_N;
        for (int i = 0; i < 2; i++) {
            int32_t sum = own[i];
            for (int o = 1; o < 32; o *= 2) {
                int32_t x = __shfl_sync(0xffffffffu, sum, (tid - o) & 31);
                if (tid >= o) sum += x;
            }
            before[i] = sum - own[i];
        }
        if (tid == 31) tile[n_expert] = before[1] + own[1];
        for (int e = first; e < last; e++) {
            l.start[e] = before[0];
            tile[e] = before[1];
            before[0] += count[e], before[1] += (count[e] + TILE_N - 1) / TILE_N;
        }
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

/* One block per expert: lists its pairs in ascending order, so that the result does not depend on timing. */
enum { PLACE_THREADS = 256, PLACE_EACH = 4 }; /* pairs per thread and round */
__global__ void place_kernel(const int32_t *ids, int32_t n_pair, tile_list l) {
    __shared__ int32_t room[2][PLACE_THREADS / 32];
    pdl_trigger();
    pdl_wait();
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, e = (int)blockIdx.x, turn = 0;
    int32_t at = l.start[e];
    for (int32_t first = 0; first < n_pair; first += PLACE_THREADS * PLACE_EACH, turn ^= 1) {
        int32_t p = first + (int32_t)threadIdx.x * PLACE_EACH, before = 0, total = 0;
        bool mine[PLACE_EACH];
#pragma unroll
        for (int i = 0; i < PLACE_EACH; i++) mine[i] = p + i < n_pair && ids[p + i] == e;
#pragma unroll
        for (int i = 0; i < PLACE_EACH; i++) {
            uint32_t all = __ballot_sync(0xffffffffu, mine[i]);
            before += __popc(all & ((1u << lane) - 1u));
            total += __popc(all);
        }
        if (lane == 0) room[turn][warp] = total;
        __syncthreads();
        total = 0;
        for (int w = 0; w < PLACE_THREADS / 32; w++) {
            before += w < warp ? room[turn][w] : 0;
            total += room[turn][w];
        }
#pragma unroll
        for (int i = 0; i < PLACE_EACH; i++)
            if (mine[i]) l.pairs[at + before++] = p + i;
        at += total;
    }
}

__global__ void gated_kernel(float *up, const float *gate, i64 n, int act) {
    pdl_trigger();
    pdl_wait();
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        up[i] = gate ? glu_of(act, gate[i], up[i]) : act_of(act, up[i]);
}

/* up[pair] = act(gate + bias) * (up + bias) for rows of n; one block per pair. gate NULL: act(up + bias). */
__global__ void biased_glu_kernel(float *up, const float *gate, const int32_t *ids,
                                  struct moe_bias b, int32_t n, int act) {
    pdl_trigger();
    pdl_wait();
    int64_t pair = blockIdx.x, mat = ids[pair];
    if (mat < 0) return;
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        float u = up[pair * n + i] + (b.up ? b.up[mat * n + i] : 0.0f);
        if (gate) u = glu_of(act, gate[pair * n + i] + (b.gate ? b.gate[mat * n + i] : 0.0f), u);
        else u = act_of(act, u);
        up[pair * n + i] = u;
    }
}

/* y[pair] (+)= matrix ids[pair] of w times row pair / per_x of x; f32 activations. */
__global__ void __launch_bounds__(VEC_THREADS)
    pair_kernel(planes w, const float *x, i64 x_stride, const int32_t *ids, int32_t per_x, float *y,
                int32_t add, grid_tables tables) {
    DYNAMIC_SHARED(uint8_t, room);
    int32_t pair = (int32_t)blockIdx.y;
    int group = float_lanes_of(w), lane = (int)threadIdx.x % group;
    int64_t first = (int64_t)blockIdx.x * (VEC_THREADS / group) * VEC_ROWS +
                    (int64_t)(threadIdx.x / (unsigned)group) * VEC_ROWS;
    pdl_trigger();
    pdl_wait();
    int32_t mat = ids[pair];
    if (mat < 0) return; /* dropped, or scores not finite: combine_kernel reads no row of it */
    float out[VEC_ROWS][1];
    const float *a = act_load(room, x + (int64_t)(pair / per_x) * x_stride, 0, 1, w.n_in);
    any_rows<1>(w, mat, first, lane, group, tables, a, 1, out);
    if (lane) return;
    for (int r = 0; r < VEC_ROWS && first + r < w.n_row; r++) {
        float *to = y + pair * w.n_row + first + r;
        *to = add ? *to + out[r][0] : out[r][0];
    }
}

/* out[t] += sum_k weight_k bias[id_k]; one block per token. NaN and infinity remain. */
__global__ void down_bias_kernel(const float *bias, const int32_t *ids, const float *weights,
                                 int32_t n_used, int32_t n, float *out) {
    pdl_trigger();
    pdl_wait();
    int64_t t = blockIdx.x;
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) {
        float sum = 0;
        for (int32_t k = 0; k < n_used; k++) {
            int64_t mat = ids[t * n_used + k];
            if (mat >= 0) sum += weights[t * n_used + k] * bias[mat * n + i];
        }
        out[t * n + i] += sum;
    }
}

/* out[t] += sum_k weight_k y[t, k], in the order of the choice */
__global__ void combine_kernel(const float *y, const int32_t *ids, const float *weights,
                               int32_t n_used, i64 n, float *out) {
    pdl_trigger();
    pdl_wait();
    int64_t t = blockIdx.x;
    bool bad = ids[t * n_used] == -1;
    weights += t * n_used, ids += t * n_used, y += t * n_used * n, out += t * n;
    for (int i = 4 * (int)threadIdx.x; i < n; i += 4 * (int)blockDim.x) {
        float4 sum = make_float4(0, 0, 0, 0), old = four_at(out, i, (int)n);
#pragma unroll 8
        for (int32_t k = 0; k < n_used; k++) {
            float4 v = four_at(y + k * n, i, (int)n);
            if (ids[k] < 0) v = make_float4(0, 0, 0, 0); /* dropped: y has no row for it */
            float w = weights[k];
            sum.x += w * v.x, sum.y += w * v.y, sum.z += w * v.z, sum.w += w * v.w;
        }
        if (bad) sum.x = sum.y = sum.z = sum.w = __int_as_float(0x7fc00000);
        old.x += sum.x, old.y += sum.y, old.z += sum.z, old.w += sum.w;
        four_put(out, i, (int)n, old);
    }
}

/* ---- ops ---- */

static dim3 elem_blocks(int64_t n) {
    int64_t b = (n + 255) / 256;
    return dim3((unsigned)(b < 8192 ? b : 8192));
}

static planes cuda_repack_or_none(const struct weight *w) {
    planes none = {};
    return w ? cuda_repack_of(w) : none;
}

static int32_t max_tiles(int32_t n_pair, int64_t n_expert) {
    return (int32_t)(n_pair / TILE_N + (n_expert < n_pair ? n_expert : n_pair)) + 1;
}

size_t cuda_moe_scratch(const struct dev_need *n) {
    size_t n_tok = (size_t)n->n_tok, n_used = (size_t)(n->n_used > 0 ? n->n_used : 1);
    size_t n_pair = n_tok * (n_used + 1), widest = (size_t)(n->n_in > n->n_ff ? n->n_in : n->n_ff);
    size_t bytes = n_tok * ((size_t)n->n_expert + 3 * n_used + 2) * 4; /* logits, choice, slots */
    bytes += 2 * n_pair * (size_t)n->n_ff * 4;                         /* hidden rows, gate rows */
    /* 8-bit input, shared expert's row */
    bytes += 2 * act8_bytes(BATCH_TOKS, (int64_t)widest + 32);
    bytes += STEP_TOKS * n_used * (size_t)n->n_in * 4; /* results of the pairs, in two parts */
    if (n->n_tok > STEP_TOKS) {
        bytes += n_tok * (size_t)halves_of((int64_t)widest) * 2 +
                 n_pair * ((size_t)halves_of(n->n_ff) * 2 + 8);
        bytes += n_pair * (size_t)n->n_in * 4; /* results of the pairs */
        bytes += (n_pair + 4 * (n_pair / TILE_N + (size_t)n->n_expert + 2)) * 4;
    }
    return bytes + cuda_group_scratch(n) + 64 * 256;
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
    return expert_set{cuda_repack_or_none(gate),
                      cuda_repack_of(up),
                      cuda_repack_of(down),
                      gate != NULL,
                      (int32_t)act,
                      NULL,
                      NULL,
                      NULL,
                      1,
                      1};
}

static expert_set routed_of(const struct moe_args *a) {
    expert_set e = experts_of(a->gate, a->up, a->down, a->act);
    e.gate_b = a->bias.gate, e.up_b = a->bias.up, e.down_b = a->bias.down;
    return e;
}

static void add_down_bias(struct cuda *c, const struct moe_args *a, const int32_t *ids,
                          const float *weights) {
    if (a->bias.down)
        launch(c, down_bias_kernel, dim3((unsigned)a->n_tok), dim3(256), 0, a->bias.down, ids,
               weights, a->n_used, (int32_t)a->down->n_out, a->out);
}

/* Whether gate, up and down are quantized, so that the kernels for 8-bit activations apply. */
static bool is_bytes(const expert_set &e) {
    return !is_number_form(e.up.form) && !is_number_form(e.down.form) &&
           (!e.has_gate || e.gate.form == e.up.form) && e.up.n_row % 32 == 0;
}

template <int F>
static void down_launch(struct cuda *c, bool is_many, dim3 grid, dim3 block, size_t room,
                        const down8_job &d) {
    auto kernel = down8_kernel<F, 0>;
    if (d.n_unit.n == 16) kernel = is_many ? down8_many_kernel<F, 16> : down8_kernel<F, 16>;
    else if (is_many) kernel = down8_many_kernel<F, 0>;
    launch(c, kernel, grid, block, room, d, c->tables);
}

/* The down product of the chosen experts, few tokens. */
static void few_down8(struct cuda *c, const struct moe_args *a, const planes &down,
                      const act8 &hidden, const int32_t *ids, const float *weights) {
    int32_t group = down.n_unit == 16 ? 16 : 32; /* lanes per row */
    int32_t few = (int32_t)down.n_row / (down_rows(down.form) * (32 / group));
    int32_t steps = (a->n_used * down.n_unit + group - 1) / group;
    down8_job d = {};
    d.down = down, d.hidden = hidden, d.ids = ids, d.weights = weights, d.out = a->out;
    d.n_used = a->n_used, d.n_part = 1, d.n_all = a->n_used * down.n_unit;
    d.n_task = a->n_tok * few;
    d.n_unit = divisor_of(down.n_unit), d.n_few = divisor_of(few), d.n_tok = divisor_of(a->n_tok);
    while (1 << d.shift < DOWN_MANY / 32 && few % (2 << d.shift) == 0) d.shift++;
    /* all blocks are resident at once; if rows are long, several warps share them */
    int32_t each = (few + c->n_sm - 1) / c->n_sm; /* tasks per block */
    each = each < 8 ? each : 8;
    int32_t bound = down_bound(c->compute >= 100);
    /* a part has at least two steps, which a warp loads before pdl_wait */
    while (d.n_part < DOWN_PARTS && steps > 2 * d.n_part && (d.n_part + 1) * each <= bound / 32)
        d.n_part++;
    d.n_step = (steps + d.n_part - 1) / d.n_part;
    d.each = divisor_of(each);
    dim3 grid((unsigned)((few + each - 1) / each), (unsigned)a->n_tok);
    dim3 block((unsigned)(32 * each * d.n_part));
    int32_t places = c->n_sm * (bound / (int32_t)block.x);
    bool is_many = (int32_t)(grid.x * grid.y) > places;
    if (is_many) {
        int32_t warps = DOWN_MANY / 32, blocks = (d.n_task + warps - 1) / warps;
        places = c->n_sm * DOWN_BLOCKS;
        int32_t rounds = (blocks + places - 1) / places;
        grid = dim3((unsigned)((blocks + rounds - 1) / rounds)), block = dim3(DOWN_MANY);
    }
    size_t room = grid_bytes(c, down.form);
    cuda_reads_planes(c, down, experts_touched(a));
    switch (down.form) {
#define X(F)                                                                                       \
    case F: down_launch<F>(c, is_many, grid, block, room, d); break;
        FOR_EACH_FORM(X)
#undef X
    }
}

/* The chosen experts of a few tokens, with 8-bit activations. If there are more than SORTED_TOKS, pairs are sorted by
 * expert. */
enum { SORTED_TOKS = 8 };
static void few_experts8(struct cuda *c, const struct moe_args *a, const expert_set &e,
                         choice_job choice, int32_t *ids, float *weights, const glu_job &shared,
                         const float *sh_weight) {
    int64_t n_pair = (int64_t)a->n_tok * a->n_used, n_ff = e.up.n_row;
    act8 hidden = act8_at(cuda_take(c, act8_bytes(n_pair, n_ff)), n_pair, n_ff);
    int16_t *order = NULL;
    if (a->n_tok > SORTED_TOKS) order = (int16_t *)cuda_take(c, (size_t)n_pair * 2);
    if (c->err.code) return;
    if (order) {
        launch(c, route_kernel, dim3(1), dim3(ROUTE_THREADS), 0, choice, a->n_tok, ids, weights,
               order);
        choice.logits = NULL;
    }
    bool apart = cuda_hidden8(c, a, e, choice, ids, weights, order, shared, sh_weight, hidden);
    if (c->err.code) return;
    few_down8(c, a, e.down, hidden, ids, weights);
    add_down_bias(c, a, ids, weights);
    if (!apart) return;
    struct linear_out sh_down = {a->sh_down, NULL, a->out, a->down->n_out, 1, true};
    cuda_linear_glu(c, &sh_down, shared, a->n_tok, sh_weight);
}

static void few_experts(struct cuda *c, const struct moe_args *a, const int32_t *ids,
                        const float *weights, const float *sh_weight) {
    int32_t n_pair = a->n_tok * a->n_used;
    expert_set e = routed_of(a), s = {};
    if (a->sh_up) s = experts_of(a->sh_gate, a->sh_up, a->sh_down, a->act);
    float *hidden = (float *)cuda_take(c, (size_t)n_pair * (size_t)a->up->n_out * 4);
    float *sh_hidden = NULL;
    if (a->sh_up) sh_hidden = (float *)cuda_take(c, (size_t)a->n_tok * (size_t)a->sh_up->n_out * 4);
    if (c->err.code) return;
    hidden_rows(c, e, a->x, ids, n_pair, a->n_used, hidden);
    if (sh_hidden) hidden_rows(c, s, a->x, NULL, a->n_tok, 1, sh_hidden);
    down_rows(c, e.down, hidden, ids, weights, a->n_used, s.down, sh_hidden, sh_weight, a->out,
              a->n_tok, e.down_b, 1);
}

/* Whether the activation function needs a kernel of its own after the tiles. */
static bool is_biased(const struct moe_args *a) {
    return a->bias.gate || a->bias.up || a->act == ACT_CLAMPED;
}

/* y[pair] = feed-forward of its expert, by tiles. x: one row per token. gate: scratch for gate rows, needed if
 * there is a gate and its rows get a bias. */
static void tile_experts(struct cuda *c, const struct moe_args *a, const halves &x,
                         const tile_list &l, const int32_t *ids, float *hidden, float *gate,
                         float *y) {
    int32_t n_pair = a->n_tok * a->n_used;
    int64_t n_ff = a->up->n_out, n = a->down->n_out;
    tile_job j = {};
    j.act = (int32_t)a->act;
    j.n_row = n_pair;
    j.x = x, j.list = l, j.per_x = a->n_used;
    j.reads = (float)experts_touched(a);
    j.n_o = 1;
    j.o[0] = tile_out{cuda_repack_of(a->up), NULL, hidden, n_ff, 1, 0, 0, 0};
    if (is_biased(a)) {
        tile_job g = j;
        g.mode = j.mode = TILE_PLAIN;
        if (gate) g.o[0].w = cuda_repack_of(a->gate), g.o[0].dst = gate;
        if (gate) cuda_tiles(c, g);
    } else if (!a->gate) {
        j.mode = TILE_ACT;
    } else if (cuda_repack_of(a->gate).form == j.o[0].w.form) {
        j.mode = TILE_GATED;
        j.o[1].w = cuda_repack_of(a->gate);
    } else {
        tile_job g = j;
        g.mode = TILE_PLAIN;
        g.o[0].w = cuda_repack_of(a->gate);
        cuda_tiles(c, g);
        j.mode = TILE_TIMES;
    }
    cuda_tiles(c, j);
    if (is_biased(a))
        launch(c, biased_glu_kernel, dim3((unsigned)n_pair), dim3(256), 0, hidden, gate, ids,
               a->bias, (int32_t)n_ff, (int)a->act);
    j.x = cuda_to_halves(c, hidden, n_ff, n_pair, n_ff);
    j.per_x = 1;
    j.mode = TILE_PLAIN;
    j.o[0] = tile_out{cuda_repack_of(a->down), NULL, y, n, 1, 0, 0, 0};
    if (!c->err.code) cuda_tiles(c, j);
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

static void many_experts(struct cuda *c, const struct moe_args *a, const halves &x,
                         const int32_t *ids, const float *weights) {
    int32_t n_pair = a->n_tok * a->n_used;
    int64_t n = a->down->n_out, n_ff = a->up->n_out;
    tile_list l = take_list(c, n_pair, a->router->n_out);
    float *hidden = (float *)cuda_take(c, (size_t)n_pair * (size_t)n_ff * 4);
    float *y = (float *)cuda_take(c, (size_t)n_pair * (size_t)n * 4);
    float *gate =
        a->gate && is_biased(a) ? (float *)cuda_take(c, (size_t)n_pair * (size_t)n_ff * 4) : NULL;
    if (c->err.code) return;
    int32_t n_expert = (int32_t)a->router->n_out;
    launch(c, count_kernel, dim3(1), dim3(1024), 0, ids, n_pair, n_expert, l);
    launch(c, place_kernel, dim3((unsigned)n_expert), dim3(PLACE_THREADS), 0, ids, n_pair, l);
    tile_experts(c, a, x, l, ids, hidden, gate, y);
    launch(c, combine_kernel, dim3((unsigned)a->n_tok), dim3(256), 0, y, ids, weights, a->n_used, n,
           a->out);
    add_down_bias(c, a, ids, weights);
}

/* As many_experts, with each expert's weights unpacked once per 8 tokens that chose it. */
static void grouped_experts(struct cuda *c, const struct moe_args *a, const expert_set &e,
                            const int32_t *ids, const float *weights) {
    int64_t n = a->down->n_out;
    float *y = (float *)cuda_take(c, (size_t)(a->n_tok * a->n_used * n) * 4);
    if (c->err.code) return;
    cuda_group(c, a, e, ids, y);
    launch(c, combine_kernel, dim3((unsigned)a->n_tok), dim3(256), 0, y, ids, weights, a->n_used, n,
           a->out);
    add_down_bias(c, a, ids, weights);
}

/* ---- experts in two parts (struct weight) ---- */

static bool has_tail(const struct weight *w) { return w && w->tail; }

static bool moe_has_tail(const struct moe_args *a) {
    return has_tail(a->gate) || has_tail(a->up) || has_tail(a->down) || has_tail(a->sh_gate) ||
           has_tail(a->sh_up) || has_tail(a->sh_down);
}

/* What multiplies the rows of x by the experts of the pairs. */
struct pair_rows {
    const int32_t *ids;
    const tile_list *list; /* NULL: few pairs, with f32 activations */
    int32_t n_pair;
    float reads;
};

/* y[pair] (+)= matrix ids[pair] of w times columns x .. of row pair / per_x, rows x_stride apart. */
static void pair_part(struct cuda *c, const struct pair_rows *p, const struct weight *w,
                      const float *x, int64_t x_stride, int32_t per_x, float *y, bool add) {
    struct weight own = *w;
    own.tail = NULL;
    planes m = cuda_repack_of(&own);
    size_t kept = c->scratch_used;
    if (!p->list) {
        int64_t rows = (int64_t)(VEC_THREADS / float_lanes_of(m)) * VEC_ROWS;
        dim3 grid((unsigned)((m.n_row + rows - 1) / rows), (unsigned)p->n_pair);
        launch(c, pair_kernel, grid, dim3(VEC_THREADS), act_room_bytes(m.n_in, 1), m, x, x_stride,
               p->ids, per_x, y, (int32_t)add, c->tables);
        return;
    }
    tile_job j = {};
    j.mode = TILE_PUT, j.n_o = 1, j.n_row = p->n_pair, j.reads = p->reads;
    j.x = cuda_to_halves(c, x, x_stride, p->n_pair / per_x, m.n_in);
    j.list = *p->list, j.per_x = per_x;
    j.o[0] = tile_out{m, NULL, y, m.n_row, 1, add, 0, 0};
    if (!c->err.code) cuda_tiles(c, j);
    c->scratch_used = kept;
}

static void pair_product(struct cuda *c, const struct pair_rows *p, const struct weight *w,
                         const float *x, int64_t x_stride, int32_t per_x, float *y) {
    pair_part(c, p, w, x, x_stride, per_x, y, false);
    if (w->tail) pair_part(c, p, w->tail, x + w->n_in, x_stride, per_x, y, true);
}

/* The chosen experts, one product after the other. */
static void experts_in_parts(struct cuda *c, const struct moe_args *a, const int32_t *ids,
                             const float *weights) {
    int32_t n_pair = a->n_tok * a->n_used, n_expert = (int32_t)a->router->n_out;
    int64_t n = a->down->n_out, n_ff = a->up->n_out;
    float *hidden = (float *)cuda_take(c, (size_t)n_pair * (size_t)n_ff * 4);
    float *gate = a->gate ? (float *)cuda_take(c, (size_t)n_pair * (size_t)n_ff * 4) : NULL;
    float *y = (float *)cuda_take(c, (size_t)n_pair * (size_t)n * 4);
    struct pair_rows p = {ids, NULL, n_pair, (float)experts_touched(a)};
    tile_list l = {};
    if (a->n_tok > STEP_TOKS && !c->params.precise) l = take_list(c, n_pair, n_expert), p.list = &l;
    if (c->err.code) return;
    if (p.list) {
        launch(c, count_kernel, dim3(1), dim3(1024), 0, ids, n_pair, n_expert, l);
        launch(c, place_kernel, dim3((unsigned)n_expert), dim3(PLACE_THREADS), 0, ids, n_pair, l);
    }
    pair_product(c, &p, a->up, a->x, n, a->n_used, hidden);
    if (gate) pair_product(c, &p, a->gate, a->x, n, a->n_used, gate);
    launch(c, biased_glu_kernel, dim3((unsigned)n_pair), dim3(256), 0, hidden, gate, ids, a->bias,
           (int32_t)n_ff, (int)a->act);
    pair_product(c, &p, a->down, hidden, n_ff, 1, y);
    launch(c, combine_kernel, dim3((unsigned)a->n_tok), dim3(256), 0, y, ids, weights, a->n_used, n,
           a->out);
    add_down_bias(c, a, ids, weights);
}

/* A dense block, or the shared expert: one matrix for all tokens. factor: [n_tok] or NULL. */
static void dense_block(struct cuda *c, const struct ffn_args *a, const float *factor) {
    int64_t n_ff = a->up->n_out, n = a->down->n_out;
    float *up = (float *)cuda_take(c, (size_t)a->n_tok * (size_t)n_ff * 4);
    if (c->err.code) return;
    bool in_parts = has_tail(a->gate) || has_tail(a->up) || has_tail(a->down);
    if (c->params.precise && !in_parts) {
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
    cuda_linear_rows(c, o, gate ? 2 : 1, a->x, tensor_n_in(a->up), a->n_tok, NULL, false);
    struct linear_out down = {a->down, a->down_b, a->out, n, a->down_scale, true};
    if (n_ff % 32 == 0 && !in_parts && !is_number_form(cuda_repack_of(a->down).form) &&
        cuda_is_batch(c, &down, 1, a->n_tok)) {
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

static void choose(struct cuda *c, choice_job &choice, int32_t n_tok, int32_t *ids,
                   float *weights) {
    dim3 grid((unsigned)((n_tok * 32 + CHOOSE_THREADS - 1) / CHOOSE_THREADS));
    launch(c, choose_kernel, grid, dim3(CHOOSE_THREADS), 0, choice, n_tok, ids, weights);
    choice.logits = NULL;
}

/* Up to STEP_TOKS tokens whose experts are in a pool, in passes of as many tokens as the slots have room for. */
static void pooled_experts(struct cuda *c, const struct moe_args *of, bool in_bytes,
                           choice_job choice, int32_t *ids, float *weights, const glu_job &shared,
                           const float *sh_weight) {
    int32_t n_used = of->n_used, each = of->pool->n_slot / n_used;
    struct moe_args a = *of;
    a.gate = of->gate ? &of->pool->slot[0] : NULL;
    a.up = &of->pool->slot[1];
    a.down = &of->pool->slot[2];
    int32_t *slots = (int32_t *)cuda_take(c, (size_t)(of->n_tok * n_used) * 4);
    size_t kept = c->scratch_used;
    if (each < 1) cuda_fail_with(c, CHIMERE_ELIMIT, "fewer slots than experts per token");
    if (c->err.code) return;
    if (each < of->n_tok && choice.logits) choose(c, choice, of->n_tok, ids, weights);
    for (int32_t t = 0; t < of->n_tok && !c->err.code; t += each) {
        int32_t *slot = slots + t * n_used;
        float *weight = weights + t * n_used;
        const float *sh = sh_weight ? sh_weight + t : NULL;
        a.n_tok = of->n_tok - t < each ? of->n_tok - t : each;
        a.x = of->x + (int64_t)t * of->down->n_out, a.out = of->out + (int64_t)t * of->down->n_out;
        cuda_pool_step(c, of, a.n_tok, choice, ids + t * n_used, weight, slot);
        choice.logits = NULL;
        struct glu_job own = shared;
        if (own.up) own.up += (int64_t)t * of->sh_up->n_out;
        if (own.gate) own.gate += (int64_t)t * of->sh_up->n_out;
        c->scratch_used = kept;
        if (in_bytes) few_experts8(c, &a, routed_of(&a), choice, slot, weight, own, sh);
        else few_experts(c, &a, slot, weight, sh);
    }
}

void cuda_moe(struct dev *d, const struct moe_args *of) {
    struct cuda *c = (struct cuda *)d;
    struct moe_args staged = *of;
    const struct moe_args *a = of;
    int64_t n_expert = a->router->n_out;
    if (!cuda_begin_product(c)) return;
    if (n_expert > MAX_EXPERTS || a->n_used > MAX_USED) {
        cuda_fail_with(c, CHIMERE_ELIMIT, "more experts than the router's kernel has room for");
        return;
    }
    bool is_few = a->n_tok <= STEP_TOKS || c->params.precise, in_bytes = false;
    bool in_parts = moe_has_tail(a);
    if (!c->params.precise && !in_parts &&
        (a->n_tok <= STEP_TOKS || (a->n_tok <= BATCH_TOKS && a->n_tok * a->n_used <= MAX_PAIRS))) {
        in_bytes = is_bytes(experts_of(a->gate, a->up, a->down, a->act)) &&
                   (!a->sh_up || is_bytes(experts_of(a->sh_gate, a->sh_up, a->sh_down, a->act)));
    }
    bool grouped = !in_parts && cuda_can_group(c, a, routed_of(a));
    float *logits = (float *)(a->logits ? (void *)a->logits
                                        : cuda_take(c, (size_t)a->n_tok * (size_t)n_expert * 4));
    int32_t *ids =
        a->ids ? a->ids : (int32_t *)cuda_take(c, (size_t)a->n_tok * (size_t)a->n_used * 4);
    float *weights = (float *)cuda_take(c, (size_t)a->n_tok * (size_t)a->n_used * 4);
    float *sh_weight = (float *)cuda_take(c, (size_t)a->n_tok * 4);
    choice_job choice = {logits,    a->select_bias,     (int32_t)n_expert,
                         a->n_used, (int32_t)a->gating, (int32_t)a->normalise,
                         a->scale,  a->n_group,         a->chosen,
                         a->keep,   a->expert_scale,    a->n_group_used,
                         0};
    /* the weights are the same without the sum over all experts */
    if (a->gating == MOE_SOFTMAX && a->normalise && !a->select_bias)
        choice.gating = MOE_SOFTMAX_CHOSEN;
    /* one launch: the router, the shared expert's gate and, with few tokens, the shared
     * expert's gate and up products */
    int64_t sh_ff = a->sh_up ? a->sh_up->n_out : 0, n_embd = a->down->n_out;
    struct weight gate_row = {a->shared_gate_w, QUANT_F32, 1, n_embd, 1, 1, 0, 0};
    struct linear_out o[4] = {};
    int32_t n_o = 0;
    if (!a->logits) o[n_o++] = linear_out{a->router, a->bias.router, logits, n_expert, 1, false};
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
    if (n_o) cuda_linear_rows(c, o, n_o, a->x, n_embd, a->n_tok, NULL, true);
    if (a->sh_up && !a->shared_gate_w) sh_weight = NULL;
    if (in_parts && a->pool) {
        cuda_fail_with(c, CHIMERE_EUNSUPPORTED, "experts in two parts cannot be in slots");
        return;
    }
    bool is_step = a->pool && a->n_tok <= STEP_TOKS; /* then the pool chooses */
    if (n_expert > CHOOSE_FEW || a->n_group > 1 || (!is_step && (!in_bytes || grouped || a->pool)))
        choose(c, choice, a->n_tok, ids, weights);
    if (is_step) {
        pooled_experts(c, a, in_bytes, choice, ids, weights, shared, sh_weight);
        return;
    }
    if (a->pool) {
        cuda_pool_stage(c, a, ids);
        staged.gate = a->gate ? &a->pool->stage[0] : NULL;
        staged.up = &a->pool->stage[1];
        staged.down = &a->pool->stage[2];
        a = &staged;
    }
    if (c->err.code) return;
    if (in_bytes && grouped) {
        grouped_experts(c, a, routed_of(a), ids, weights);
        struct linear_out sh_down = {a->sh_down, NULL, a->out, n_embd, 1, true};
        if (a->sh_up) cuda_linear_glu(c, &sh_down, shared, a->n_tok, sh_weight);
        return;
    }
    if (in_bytes) {
        few_experts8(c, a, routed_of(a), choice, ids, weights, shared, sh_weight);
        return;
    }
    if (is_few && !in_parts) {
        few_experts(c, a, ids, weights, sh_weight);
        return;
    }
    halves x = {};
    if (!in_parts && (!grouped || a->sh_up)) x = cuda_to_halves(c, a->x, n_embd, a->n_tok, n_embd);
    size_t kept = c->scratch_used;
    if (c->err.code) return;
    if (in_parts) experts_in_parts(c, a, ids, weights);
    else if (grouped) grouped_experts(c, a, routed_of(a), ids, weights);
    else many_experts(c, a, x, ids, weights);
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
    c->ready = x;
    dense_block(c, &f, sh_weight);
    c->ready = halves{};
}
