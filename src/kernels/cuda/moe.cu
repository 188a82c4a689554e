/* moe.cu: feed-forward blocks: one, and a routed mixture. Decode reads the chosen experts' weights once
 * per token that chose them; prefill sorts pairs (token, expert) by expert on the device and multiplies
 * tiles. Sums are in the order of a token's choice, whatever the batch. */
#include <utility>

#include "kernels/cuda/cuda_impl.cuh"
#include "kernels/cuda/linear.cuh"

enum { MOE_N = 64, TOPK_THREADS = 256, MAX_USED = 64, MAX_EXPERTS = 1024 };

struct expert_set {
    planes gate, up, down;
    int32_t has_gate, act;
    const float *gate_b, *up_b, *down_b;
    float gate_scale, down_scale;
};

/* ---- decode ---- */

/* hidden[pair] = act(gate x) * (up x). Pair p of token t: expert ids[p], matrix mat. */
template <bool HAS_GATE>
__global__ void __launch_bounds__(VEC_THREADS)
    hidden_kernel(expert_set e, const float *x, const int32_t *ids, int32_t n_used, float *hidden,
                  int32_t precise, grid_tables tables) {
    DYNAMIC_SHARED(uint8_t, room);
    int32_t pair = (int32_t)blockIdx.y;
    int group = lanes_of(e.up), lane = (int)threadIdx.x % group;
    int64_t first = (int64_t)blockIdx.x * (VEC_THREADS / group) * VEC_ROWS +
                    (int64_t)(threadIdx.x / (unsigned)group) * VEC_ROWS;
    launch_next();
    wait_previous();
    int32_t mat = ids ? ids[pair] : 0;
    if (mat < 0) return; /* scores were not finite: combine writes NaN */
    int32_t n_in = e.up.n_in;
    bool floats = precise || is_number_form(e.up.form) || (HAS_GATE && is_number_form(e.gate.form));
    act_room a = act_load(room, x + (int64_t)(pair / n_used) * n_in, 0, 1, n_in, floats);
    auto ready = [&]() {};
    float up[VEC_ROWS][1], gate[VEC_ROWS][1];
    any_rows<1>(e.up, mat, first, lane, group, tables, a, ready, 1, up);
    if (HAS_GATE) any_rows<1>(e.gate, mat, first, lane, group, tables, a, ready, 1, gate);
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
 * token. group: lanes a row, the most that either matrix uses. */
__global__ void __launch_bounds__(VEC_THREADS)
    down_kernel(planes down, const float *hidden, const int32_t *ids, const float *weights,
                int32_t n_used, planes sh_down, const float *sh_hidden, const float *sh_weight,
                float *out, int32_t precise, const float *bias, float scale, int32_t group,
                grid_tables tables) {
    DYNAMIC_SHARED(uint8_t, room);
    int32_t t = (int32_t)blockIdx.y;
    int lane = (int)threadIdx.x % group;
    int64_t first = (int64_t)blockIdx.x * (VEC_THREADS / group) * VEC_ROWS +
                    (int64_t)(threadIdx.x / (unsigned)group) * VEC_ROWS;
    launch_next();
    wait_previous();
    auto ready = [&]() {};
    float sum[VEC_ROWS] = {0}, y[VEC_ROWS][1];
    bool bad = false;
    for (int32_t k = 0; k < n_used; k++) {
        int32_t mat = ids ? ids[t * n_used + k] : 0;
        if (mat < 0) {
            bad = true;
            break;
        }
        __syncthreads(); /* the room is read no more */
        bool floats = precise || is_number_form(down.form);
        act_room a =
            act_load(room, hidden + ((int64_t)t * n_used + k) * down.n_in, 0, 1, down.n_in, floats);
        any_rows<1>(down, mat, first, lane, group, tables, a, ready, 1, y);
        float f = weights ? weights[t * n_used + k] : scale;
        for (int r = 0; r < VEC_ROWS; r++) sum[r] += f * y[r][0];
    }
    if (!bad && sh_hidden) {
        __syncthreads();
        bool floats = precise || is_number_form(sh_down.form);
        act_room a =
            act_load(room, sh_hidden + (int64_t)t * sh_down.n_in, 0, 1, sh_down.n_in, floats);
        any_rows<1>(sh_down, 0, first, lane, group, tables, a, ready, 1, y);
        for (int r = 0; r < VEC_ROWS; r++) sum[r] += sh_weight[t] * y[r][0];
    }
    if (lane) return;
    for (int r = 0; r < VEC_ROWS && first + r < down.n_row; r++) {
        float *dst = out + (int64_t)t * down.n_row + first + r;
        float v = sum[r] + (bias ? bias[first + r] : 0.0f);
        *dst += bad ? __int_as_float(0x7fc00000) : v;
    }
}

/* Chosen experts, their weights, and the shared expert's factor. One block a token. */
__global__ void __launch_bounds__(TOPK_THREADS)
    choose_kernel(const float *logits, int32_t n_expert, int32_t n_used, int gating,
                  int32_t normalise, float scale, const float *select_bias, const float *x,
                  int32_t n_embd, const float *shared_gate_w, int32_t *ids, float *weights,
                  float *shared_weight) {
    __shared__ float score[MAX_EXPERTS], key[MAX_EXPERTS], room[32];
    __shared__ int32_t best_at[TOPK_THREADS / 32], chosen[MAX_USED], any_bad;
    __shared__ float best_key[TOPK_THREADS / 32];
    launch_next();
    wait_previous();
    int tid = (int)threadIdx.x;
    logits += (int64_t)blockIdx.x * n_expert;
    ids += (int64_t)blockIdx.x * n_used;
    weights += (int64_t)blockIdx.x * n_used;
    if (shared_weight) {
        float dot = 0;
        for (int i = tid; shared_gate_w && i < n_embd; i += TOPK_THREADS)
            dot += shared_gate_w[i] * x[(int64_t)blockIdx.x * n_embd + i];
        dot = block_sum(dot, room);
        if (tid == 0) shared_weight[blockIdx.x] = shared_gate_w ? 1.0f / (1.0f + expf(-dot)) : 1.0f;
    }
    if (tid == 0) any_bad = 0;
    __syncthreads();
    float most = -3.402823466e38f;
    for (int i = tid; i < n_expert; i += TOPK_THREADS) {
        float v = logits[i];
        if (!(fabsf(v) <= 3.402823466e38f)) any_bad = 1;
        most = fmaxf(most, v);
    }
    most = lanes_max(most, 32);
    if (tid % 32 == 0) room[tid / 32] = most;
    __syncthreads();
    for (int i = 0; i < TOPK_THREADS / 32; i++) most = fmaxf(most, room[i]);
    __syncthreads();
    float sum = 0;
    for (int i = tid; gating == MOE_SOFTMAX && i < n_expert; i += TOPK_THREADS)
        sum += expf(logits[i] - most);
    sum = block_sum(sum, room);
    for (int i = tid; i < n_expert; i += TOPK_THREADS) {
        float v = logits[i];
        float s = gating == MOE_SOFTMAX   ? expf(v - most) / sum
                  : gating == MOE_SIGMOID ? 1.0f / (1.0f + expf(-v))
                                          : v;
        score[i] = s;
        key[i] = s + (select_bias ? select_bias[i] : 0.0f);
        if (!(fabsf(key[i]) <= 3.402823466e38f)) any_bad = 1;
    }
    __syncthreads();
    if (any_bad) {
        if (tid < n_used) ids[tid] = -1, weights[tid] = 0.0f;
        return;
    }
    for (int32_t k = 0; k < n_used; k++) {
        float best = -3.402823466e38f;
        int32_t at = 0x7fffffff;
        for (int i = tid; i < n_expert; i += TOPK_THREADS)
            if (key[i] > best || (key[i] == best && i < at)) best = key[i], at = i;
        for (int o = 16; o > 0; o /= 2) {
            float other = __shfl_xor_sync(0xffffffffu, best, o);
            int32_t other_at = __shfl_xor_sync(0xffffffffu, at, o);
            if (other > best || (other == best && other_at < at)) best = other, at = other_at;
        }
        if (tid % 32 == 0) best_key[tid / 32] = best, best_at[tid / 32] = at;
        __syncthreads();
        if (tid == 0) {
            for (int i = 1; i < TOPK_THREADS / 32; i++)
                if (best_key[i] > best || (best_key[i] == best && best_at[i] < at))
                    best = best_key[i], at = best_at[i];
            chosen[k] = at;
            key[at] = -INFINITY;
        }
        __syncthreads();
    }
    if (tid) return;
    float total = 0, first = score[chosen[0]];
    for (int32_t k = 0; k < n_used; k++) {
        float v = gating == MOE_SOFTMAX_CHOSEN ? expf(score[chosen[k]] - first) : score[chosen[k]];
        weights[k] = v;
        total += v;
    }
    bool divide = normalise || gating == MOE_SOFTMAX_CHOSEN;
    for (int32_t k = 0; k < n_used; k++) {
        weights[k] = weights[k] / (divide ? total + 1e-20f : 1.0f) * scale;
        ids[k] = chosen[k];
    }
}

/* ---- prefill ---- */

struct tile_list {   /* pairs in order of expert, in tiles of MOE_N */
    int32_t *pairs;  /* [n_pair] */
    int32_t *expert; /* [cap]; -1: no tile */
    int32_t *at, *n; /* [cap]: first pair of the tile in pairs, how many */
    int32_t cap;
};

/* One block. Each thread counts and places the pairs of its experts, in order of pair. */
__global__ void sort_kernel(const int32_t *ids, int32_t n_pair, int32_t n_expert, tile_list l) {
    __shared__ int32_t count[MAX_EXPERTS], start[MAX_EXPERTS], tile[MAX_EXPERTS];
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
            start[e] = pairs;
            tile[e] = tiles;
            pairs += count[e];
            tiles += (count[e] + MOE_N - 1) / MOE_N;
        }
    }
    for (int i = tid; i < l.cap; i += n) l.expert[i] = -1;
    __syncthreads();
    for (int e = tid; e < n_expert; e += n) {
        int32_t at = start[e];
        for (int32_t i = 0; i < count[e]; i += MOE_N) {
            int32_t k = tile[e] + i / MOE_N;
            l.expert[k] = e;
            l.at[k] = at + i;
            l.n[k] = count[e] - i < MOE_N ? count[e] - i : MOE_N;
        }
    }
    /* warps take experts in turn: a ballot keeps the order of pairs, so that results do not depend on it */
    int lane = tid % 32;
    for (int e = tid / 32; e < n_expert; e += n / 32) {
        int32_t at = start[e];
        if (!count[e]) continue;
        for (int32_t p = 0; p < n_pair; p += 32) {
            bool mine = p + lane < n_pair && ids[p + lane] == e;
            uint32_t all = __ballot_sync(0xffffffffu, mine);
            if (mine) l.pairs[at + __popc(all & ((1u << lane) - 1u))] = p + lane;
            at += __popc(all);
        }
    }
}

/* y[pair] = matrix(expert) x: of gate for z 0, of up for z 1, or of down. per_token: x has a row a token. */
__global__ void __launch_bounds__(TILE_THREADS)
    expert_kernel(planes a, planes b, const uint16_t *x, const float *x_scale, int32_t n_used,
                  int32_t per_token, tile_list l, float *ya, float *yb, grid_tables tables) {
    DYNAMIC_SHARED(uint16_t, shared);
    __shared__ int32_t cols[MOE_N], pair_of[MOE_N];
    launch_next();
    wait_previous();
    int32_t tile = (int32_t)blockIdx.y, e = l.expert[tile];
    if (e < 0) return;
    const planes &w = blockIdx.z ? b : a;
    float *y = blockIdx.z ? yb : ya;
    int64_t first = (int64_t)blockIdx.x * TILE_M;
    if (first >= w.n_row) return;
    if (threadIdx.x < MOE_N) {
        int i = (int)threadIdx.x;
        int32_t p = i < l.n[tile] ? l.pairs[l.at[tile] + i] : -1;
        pair_of[i] = p;
        cols[i] = p < 0 ? -1 : per_token ? p / n_used : p;
    }
    __syncthreads();
    float acc[2][MOE_N / 16][4];
    tile_product<MOE_N>(w, e, first, x, halves_of(w.n_in), cols, tables, shared, acc);
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < MOE_N / 16; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int64_t row = first + tile_row(m, i);
                int col = tile_col<MOE_N>(n, i);
                int32_t p = pair_of[col];
                if (row < w.n_row && p >= 0)
                    y[(int64_t)p * w.n_row + row] = acc[m][n][i] * x_scale[cols[col]];
            }
}

__global__ void gated_kernel(float *up, const float *gate, int64_t n, int act) {
    launch_next();
    wait_previous();
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        up[i] = gate ? act_of(act, gate[i]) * up[i] : act_of(act, up[i]);
}

/* out[t] += sum_k weight_k y[t, k] + shared weight * shared[t] */
__global__ void combine_kernel(const float *y, const int32_t *ids, const float *weights,
                               int32_t n_used, const float *shared, const float *shared_weight,
                               int64_t n, float *out) {
    launch_next();
    wait_previous();
    int64_t t = blockIdx.x;
    bool bad = ids[t * n_used] < 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        float sum = 0;
        for (int32_t k = 0; k < n_used && !bad; k++)
            sum += weights[t * n_used + k] * y[(t * n_used + k) * n + i];
        if (shared) sum += shared_weight[t] * shared[t * n + i];
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
    return (int32_t)(n_pair / MOE_N + (n_expert < n_pair ? n_expert : n_pair)) + 1;
}

size_t cuda_moe_scratch(const struct dev_need *n) {
    size_t n_tok = (size_t)n->n_tok, n_used = (size_t)(n->n_used > 0 ? n->n_used : 1);
    size_t n_pair = n_tok * (n_used + 1), widest = (size_t)(n->n_in > n->n_ff ? n->n_in : n->n_ff);
    size_t bytes = n_tok * ((size_t)n->n_expert + 2 * n_used + 2) * 4; /* logits, choice */
    bytes += 2 * n_pair * (size_t)n->n_ff * 4;                         /* hidden rows, gate rows */
    if (n->n_tok > STEP_TOKS) {
        bytes += n_tok * (size_t)halves_of((int64_t)widest) * 2 +
                 n_pair * ((size_t)halves_of(n->n_ff) * 2 + 8);
        bytes += n_pair * (size_t)n->n_in * 4; /* results of pairs */
        bytes += (n_pair + 3 * (n_pair / MOE_N + (size_t)n->n_expert + 2)) * 4;
    }
    return bytes + 64 * 256;
}

static void hidden_rows(struct cuda *c, const expert_set &e, const float *x, const int32_t *ids,
                        int32_t n_pair, int32_t n_used, float *hidden) {
    int group = lanes_of(e.up);
    int64_t rows = (int64_t)(VEC_THREADS / group) * VEC_ROWS;
    bool floats = c->params.precise || is_number_form(e.up.form) ||
                  (e.has_gate && is_number_form(e.gate.form));
    dim3 grid((unsigned)((e.up.n_row + rows - 1) / rows), (unsigned)n_pair);
    size_t room = act_room_bytes(e.up.n_in, 1, floats);
    int32_t precise = floats; /* gate and up share the room, so both see floats or both bytes */
    if (e.has_gate)
        launch(c, hidden_kernel<true>, grid, dim3(VEC_THREADS), room, e, x, ids, n_used, hidden,
               precise, c->tables);
    else
        launch(c, hidden_kernel<false>, grid, dim3(VEC_THREADS), room, e, x, ids, n_used, hidden,
               precise, c->tables);
}

static void down_rows(struct cuda *c, const planes &down, const float *hidden, const int32_t *ids,
                      const float *weights, int32_t n_used, const planes &sh_down,
                      const float *sh_hidden, const float *sh_weight, float *out, int32_t n_tok,
                      const float *bias, float scale) {
    int32_t group = lanes_of(down);
    if (sh_hidden && lanes_of(sh_down) > group) group = lanes_of(sh_down);
    int64_t rows = (int64_t)(VEC_THREADS / group) * VEC_ROWS;
    int64_t n_in = sh_hidden && sh_down.n_in > down.n_in ? sh_down.n_in : down.n_in;
    dim3 grid((unsigned)((down.n_row + rows - 1) / rows), (unsigned)n_tok);
    bool floats = c->params.precise || is_number_form(down.form) ||
                  (sh_hidden && is_number_form(sh_down.form));
    launch(c, down_kernel, grid, dim3(VEC_THREADS), act_room_bytes(n_in, 1, floats), down, hidden,
           ids, weights, n_used, sh_down, sh_hidden, sh_weight, out, (int32_t)c->params.precise,
           bias, scale, group, c->tables);
}

static void few_experts(struct cuda *c, const struct moe_args *a, const int32_t *ids,
                        const float *weights, const float *sh_weight) {
    int32_t n_pair = a->n_tok * a->n_used;
    expert_set e = {planes_or_none(a->gate),
                    planes_of(a->up),
                    planes_of(a->down),
                    a->gate != NULL,
                    (int32_t)a->act,
                    NULL,
                    NULL,
                    NULL,
                    1,
                    1};
    float *hidden = (float *)cuda_take(c, (size_t)n_pair * (size_t)a->up->n_out * 4);
    float *sh_hidden = NULL;
    planes sh_down = {};
    if (a->sh_up) {
        sh_hidden = (float *)cuda_take(c, (size_t)a->n_tok * (size_t)a->sh_up->n_out * 4);
        sh_down = planes_of(a->sh_down);
    }
    if (c->err.code) return;
    hidden_rows(c, e, a->x, ids, n_pair, a->n_used, hidden);
    if (sh_hidden) {
        expert_set s = {planes_or_none(a->sh_gate),
                        planes_of(a->sh_up),
                        sh_down,
                        a->sh_gate != NULL,
                        (int32_t)a->act,
                        NULL,
                        NULL,
                        NULL,
                        1,
                        1};
        hidden_rows(c, s, a->x, NULL, a->n_tok, 1, sh_hidden);
    }
    down_rows(c, e.down, hidden, ids, weights, a->n_used, sh_down, sh_hidden, sh_weight, a->out,
              a->n_tok, NULL, 1);
}

/* y[row] = ffn of each row listed in l, through tiles. x: halves, a row a token. */
static void tile_experts(struct cuda *c, const struct weight *gate, const struct weight *up,
                         const struct weight *down, enum act act, const uint16_t *x,
                         const float *x_scale, int32_t n_used, int32_t n_pair, const tile_list &l,
                         float *hidden, float *gated, uint16_t *h16, float *h_scale, float *y) {
    planes pu = planes_of(up), pg = planes_or_none(gate), pd = planes_of(down), none = {};
    dim3 grid((unsigned)((pu.n_row + TILE_M - 1) / TILE_M), (unsigned)l.cap, gate ? 2 : 1);
    launch(c, expert_kernel, grid, dim3(TILE_THREADS), tile_shared(MOE_N), pu, pg, x, x_scale,
           n_used, 1, l, hidden, gated, c->tables);
    int64_t n = (int64_t)n_pair * pu.n_row;
    launch(c, gated_kernel, elem_blocks(n), dim3(256), 0, hidden, gate ? gated : NULL, n, (int)act);
    cuda_to_halves(c, hidden, pu.n_row, n_pair, pu.n_row, h16, h_scale);
    dim3 grid_down((unsigned)((pd.n_row + TILE_M - 1) / TILE_M), (unsigned)l.cap, 1);
    launch(c, expert_kernel, grid_down, dim3(TILE_THREADS), tile_shared(MOE_N), pd, none, h16,
           h_scale, n_used, 0, l, y, (float *)NULL, c->tables);
}

static tile_list take_list(struct cuda *c, int32_t n_pair, int64_t n_expert) {
    tile_list l = {};
    l.cap = max_tiles(n_pair, n_expert);
    l.pairs = (int32_t *)cuda_take(c, (size_t)n_pair * 4);
    l.expert = (int32_t *)cuda_take(c, (size_t)l.cap * 4);
    l.at = (int32_t *)cuda_take(c, (size_t)l.cap * 4);
    l.n = (int32_t *)cuda_take(c, (size_t)l.cap * 4);
    return l;
}

static void many_experts(struct cuda *c, const struct moe_args *a, const int32_t *ids,
                         const float *weights, const float *sh_weight) {
    int32_t n_pair = a->n_tok * a->n_used;
    int64_t n = a->down->n_out, n_ff = a->up->n_out;
    uint16_t *x16 = (uint16_t *)cuda_take(c, (size_t)a->n_tok * (size_t)halves_of(n) * 2);
    float *x_scale = (float *)cuda_take(c, (size_t)a->n_tok * 4);
    tile_list l = take_list(c, n_pair, a->router->n_out);
    float *hidden = (float *)cuda_take(c, (size_t)n_pair * (size_t)n_ff * 4);
    float *gated = a->gate ? (float *)cuda_take(c, (size_t)n_pair * (size_t)n_ff * 4) : NULL;
    uint16_t *h16 = (uint16_t *)cuda_take(c, (size_t)n_pair * (size_t)halves_of(n_ff) * 2);
    float *h_scale = (float *)cuda_take(c, (size_t)n_pair * 4);
    float *y = (float *)cuda_take(c, (size_t)n_pair * (size_t)n * 4);
    if (c->err.code) return;
    cuda_to_halves(c, a->x, n, a->n_tok, n, x16, x_scale);
    launch(c, sort_kernel, dim3(1), dim3(1024), 0, ids, n_pair, (int32_t)a->router->n_out, l);
    tile_experts(c, a->gate, a->up, a->down, a->act, x16, x_scale, a->n_used, n_pair, l, hidden,
                 gated, h16, h_scale, y);
    launch(c, combine_kernel, dim3((unsigned)a->n_tok), dim3(256), 0, y, ids, weights, a->n_used,
           (const float *)NULL, (const float *)NULL, n, a->out);
}

/* A dense block, or the shared expert: every token, one matrix. factor: [n_tok] or NULL. */
static void dense_block(struct cuda *c, const struct ffn_args *a, const float *factor) {
    int64_t n_ff = a->up->n_out, n = a->down->n_out;
    float *up = (float *)cuda_take(c, (size_t)a->n_tok * (size_t)n_ff * 4);
    if (c->err.code) return;
    if (a->n_tok <= STEP_TOKS || c->params.precise) {
        expert_set e = {planes_or_none(a->gate),
                        planes_of(a->up),
                        planes_of(a->down),
                        a->gate != NULL,
                        (int32_t)a->act,
                        a->gate_b,
                        a->up_b,
                        a->down_b,
                        a->gate_scale,
                        a->down_scale};
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
    int64_t n_all = (int64_t)a->n_tok * n_ff;
    launch(c, gated_kernel, elem_blocks(n_all), dim3(256), 0, up, gate, n_all, (int)a->act);
    c->scratch_used = kept;
    struct linear_out down = {a->down, a->down_b, a->out, n, a->down_scale, true};
    cuda_linear_rows(c, &down, 1, up, n_ff, a->n_tok, factor, false);
}

void cuda_ffn(struct dev *d, const struct ffn_args *a) {
    struct cuda *c = (struct cuda *)d;
    if (cuda_begin(c)) dense_block(c, a, NULL);
}

void cuda_moe(struct dev *d, const struct moe_args *a) {
    struct cuda *c = (struct cuda *)d;
    int64_t n_expert = a->router->n_out;
    if (!cuda_begin(c)) return;
    if (n_expert > MAX_EXPERTS || a->n_used > MAX_USED) {
        cuda_fail_with(c, CHIMERE_ELIMIT, "more experts than the router's kernel has room for");
        return;
    }
    float *logits = (float *)cuda_take(c, (size_t)a->n_tok * (size_t)n_expert * 4);
    int32_t *ids =
        a->ids ? a->ids : (int32_t *)cuda_take(c, (size_t)a->n_tok * (size_t)a->n_used * 4);
    float *weights = (float *)cuda_take(c, (size_t)a->n_tok * (size_t)a->n_used * 4);
    float *sh_weight = (float *)cuda_take(c, (size_t)a->n_tok * 4);
    if (c->err.code) return;
    int32_t n_embd = (int32_t)a->down->n_out;
    struct linear_out o = {a->router, NULL, logits, n_expert, 1, false};
    cuda_linear_rows(c, &o, 1, a->x, n_embd, a->n_tok, NULL, true);
    launch(c, choose_kernel, dim3((unsigned)a->n_tok), dim3(TOPK_THREADS), 0, logits,
           (int32_t)n_expert, a->n_used, (int)a->gating, (int32_t)a->normalise, a->scale,
           a->select_bias, a->x, n_embd, a->shared_gate_w, ids, weights,
           a->sh_up ? sh_weight : (float *)NULL);
    if (a->n_tok <= STEP_TOKS || c->params.precise) {
        few_experts(c, a, ids, weights, sh_weight);
        return;
    }
    size_t kept = c->scratch_used;
    many_experts(c, a, ids, weights, sh_weight);
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
