/* chunked_scan.cu: recurrences over many tokens on tensor cores (Yang et al., Parallelizing Linear Transformers with
 * the Delta Rule, arXiv:2406.06484; gates as in arXiv:2412.06464; Mamba-2 as in arXiv:2405.21060, which has no T).
 *
 * G_i is the sum of g from the first token of a chunk to token i, S the state before the chunk:
 *   T = (I + A)^-1, A_ij = b_i e^(G_i - G_j) <k_i, k_j> below the diagonal
 *   P_ij = e^(G_i - G_j) <q_i, k_j> up to the diagonal
 *   D = T R, R_i = b_i (v_i - e^(G_i) S^T k_i)
 *   o_i = e^(G_i) S^T q_i + sum_j P_ij D_j
 *   S' = e^(G_32) S + sum_j e^(G_32 - G_j) k_j D_j^T
 * chunk_prep_kernel computes T, P and the factors of all chunks in parallel, in floats. chunk_scan_kernel then takes
 * the chunks in order; a block holds 32 columns of a head's state, which do not depend on the other columns. Its
 * matrix products split each number into a sum of two bfloat16, so a product takes three bfloat16 products. The error
 * is 2^-16 of each term, and the range is that of floats, so no number overflows.
 *
 * Bytes: per chunk, each of the 4 blocks of a head of 128 columns reads 42 KB from the L2 cache, 4 KB of which are
 * values. That is 340 MB per layer of 32 heads and 2,048 tokens, 70 us at 5 TB/s. Shared memory: 250 KB per chunk, 1.1
 * us at 128 bytes per cycle, 70 us for 64 chunks. Products: 624 of 16 x 8 x 16 per chunk and block, 0.6 us at the rate
 * of mma.sync. Measured for this layer: 184 us, and 51 us for T and P (lab/README.md). */
#include "kernels/cuda/chunked_scan.cuh"

enum {
    CHUNK = 32,    /* tokens */
    CHUNK_K = 128, /* rows of a state; zeros from d_k on */
    CHUNK_V = 32,  /* columns of the state per block */
    CHUNK_THREADS = 256,
    PREP_THREADS = 128,
    N_FACTOR = 5,
    KEY_ROW = CHUNK_K + 8, /* row length in shared memory: eight rows start in different banks */
    TOK_ROW = CHUNK + 8,
};
enum {
    F_B,
    F_KEY,
    F_QUERY,
    F_STATE,
    F_ALL
}; /* b, b e^G / |k|; e^G / |q|; e^(G_32 - G) / |k|; e^G_32 */

struct chunk_room {
    uint16_t k[2][2][CHUNK][KEY_ROW]; /* this chunk, the next one; high, low */
    uint16_t q[2][CHUNK][KEY_ROW];
    uint16_t s[2][CHUNK_V][KEY_ROW];      /* the state, transposed */
    uint16_t tp[2][2][2][CHUNK][TOK_ROW]; /* this chunk, the next one; T, P; high, low */
    uint16_t r[2][CHUNK_V][TOK_ROW];      /* R, transposed */
    float v[CHUNK][CHUNK_V + 4];
    float f[2][N_FACTOR][CHUNK];
};
static_assert(sizeof(chunk_room) <= 99 << 10, "what a block may have on sm_86 and newer");

/* The first scratch slot of a span; each of its chunks takes one slot. */
__device__ __forceinline__ int slot_of(const dspans &b, const chunk_job &g, int span) {
    return (b.spans[span].row - g.row0) / CHUNK + span - g.first;
}

__device__ __forceinline__ float bf16_low(uint32_t pair) {
    return __int_as_float((int)(pair << 16));
}
__device__ __forceinline__ float bf16_high(uint32_t pair) {
    return __int_as_float((int)(pair & 0xffff0000u));
}

/* ---- terms that do not depend on the state ---- */

/* b and g of one token and head. */
__device__ __forceinline__ float2 token_gates(const chunk_job &g, int64_t t, int head) {
    float gate = softplus(g.gate[t * g.gate_stride + head] + g.bias[head]), b, log_decay;
    if (g.is_delta) {
        b = g.beta_scale / (1.0f + expf(-g.beta[t * g.gate_stride + head]));
        log_decay = gate * g.a[head];
    } else {
        b = gate < g.dt_min ? g.dt_min : gate > g.dt_max ? g.dt_max : gate;
        log_decay = b * g.a[head];
    }
    return make_float2(b, log_decay < -1e5f ? -1e5f : log_decay); /* a sum of 32 stays finite */
}

union prep_room {
    float kq[2][CHUNK][CHUNK_K + 4];
    float a[PREP_THREADS / 32][CHUNK][CHUNK + 4];
};

/* One warp computes T and P of a head. dots: k k^T, q k^T; scale: 1 / |k|, 1 / |q| of token `lane`. */
__device__ __forceinline__ void prep_head(const chunk_job &g, int64_t at, float (*a)[CHUNK + 4],
                                          const float (*dots)[CHUNK][CHUNK + 1], float2 gates,
                                          float2 scale) {
    int lane = (int)threadIdx.x % 32;
    float G = gates.y;
#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
        float before = __shfl_sync(0xffffffffu, G, lane >= o ? lane - o : 0);
        if (lane >= o) G += before;
    }
    float last = __shfl_sync(0xffffffffu, G, 31), own = expf(G), b = gates.x;
    float *f = g.f + at * N_FACTOR * CHUNK + lane;
    f[F_B * CHUNK] = b;
    f[F_KEY * CHUNK] = b * own * scale.x;
    f[F_QUERY * CHUNK] = own * scale.y;
    f[F_STATE * CHUNK] = expf(last - G) * scale.x;
    f[F_ALL * CHUNK] = expf(last);
    uint16_t *to = (uint16_t *)g.tp + at * 4 * CHUNK * CHUNK + lane;
    auto put = [&](int which, int i, float x) {
        uint32_t high = bf16_pair(x, 0.0f);
        to[(2 * which) * CHUNK * CHUNK + i * CHUNK] = (uint16_t)high;
        to[(2 * which + 1) * CHUNK * CHUNK + i * CHUNK] =
            (uint16_t)bf16_pair(x - bf16_low(high), 0.0f);
    };
    for (int i = 0; i < CHUNK; i++) {
        float e = expf(__shfl_sync(0xffffffffu, G, i) - G) * scale.x;
        float of_q = e * __shfl_sync(0xffffffffu, scale.y, i);
        float of_k = e * __shfl_sync(0xffffffffu, b * scale.x, i);
        put(1, i, lane <= i ? of_q * dots[1][i][lane] : 0.0f);
        a[i][lane] = lane < i ? of_k * dots[0][i][lane] : 0.0f;
    }
    __syncwarp();
    if (!g.is_delta) return;
    float t[CHUNK]; /* column `lane` of T */
#pragma unroll
    for (int i = 0; i < CHUNK; i++) {
        float sum[4] = {i == lane ? 1.0f : 0.0f, 0, 0, 0};
#pragma unroll
        for (int m = 0; m < i; m += 4) {
            float4 row = *(const float4 *)&a[i][m];
            sum[0] = fmaf(-row.x, t[m], sum[0]);
            if (m + 1 < i) sum[1] = fmaf(-row.y, t[m + 1], sum[1]);
            if (m + 2 < i) sum[2] = fmaf(-row.z, t[m + 2], sum[2]);
            if (m + 3 < i) sum[3] = fmaf(-row.w, t[m + 3], sum[3]);
        }
        t[i] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        put(0, i, t[i]);
    }
    __syncwarp();
}

/* Grid: (scratch slot, key head). */
__global__ void __launch_bounds__(PREP_THREADS) chunk_prep_kernel(dspans b, chunk_job g) {
    __shared__ __align__(16) prep_room room;
    __shared__ float dots[2][CHUNK][CHUNK + 1], norms[2][CHUNK];
    pdl_trigger();
    pdl_wait();
    int tid = (int)threadIdx.x, lane = tid % 32, slot = (int)blockIdx.x, kh = (int)blockIdx.y;
    int span = g.first;
    while (span + 1 < g.first + g.n_span && slot_of(b, g, span + 1) <= slot) span++;
    dspan s = b.spans[span];
    int32_t t0 = (slot - slot_of(b, g, span)) * CHUNK;
    if (t0 >= s.n_tok) return;
    uint32_t *qk = g.qk + ((int64_t)slot * g.n_k_head + kh) * (4 * CHUNK * CHUNK_K / 2);
#pragma unroll 4
    for (int e = tid; e < 2 * CHUNK * CHUNK_K / 4; e += PREP_THREADS) {
        int quad = e % (CHUNK_K / 4), row = e / (CHUNK_K / 4) % CHUNK,
            is_q = e / (CHUNK * CHUNK_K / 4);
        const float *x =
            (is_q ? g.q : g.k) + (int64_t)(s.row + t0 + row) * g.stride + (int64_t)kh * g.n_k;
        float4 v = four_at(x, 4 * quad, t0 + row < s.n_tok ? g.d_k : 0);
        *(float4 *)&room.kq[is_q][row][4 * quad] = v;
        uint2 high, low;
        split_pair(v.x, v.y, high.x, low.x);
        split_pair(v.z, v.w, high.y, low.y);
        uint2 *to = (uint2 *)qk + 2 * is_q * (CHUNK * CHUNK_K / 4) + row * (CHUNK_K / 4) + quad;
        to[0] = high;
        to[CHUNK * CHUNK_K / 4] = low;
    }
    __syncthreads();
    for (int is_q = 0; is_q < 2; is_q++) {
        const float *x = room.kq[is_q][tid / 4] + tid % 4;
        float sum = 0;
        for (int i = 0; i < CHUNK_K; i += 4) sum = fmaf(x[i], x[i], sum);
        sum = lanes_sum(sum, 4);
        if (tid % 4 == 0) norms[is_q][tid / 4] = sum;
    }
    { /* a thread computes rows i + 8 e of k or q times rows j + 8 f of k */
        int is_q = tid / 64, i = tid % 64 / 8, j = tid % 8;
        float sum[4][4] = {};
        for (int quad = 0; quad < CHUNK_K; quad += 4) {
            float4 x[4], y[4];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                x[e] = *(const float4 *)&room.kq[is_q][i + 8 * e][quad];
                y[e] = *(const float4 *)&room.kq[0][j + 8 * e][quad];
            }
#pragma unroll
            for (int e = 0; e < 16; e++) {
                float4 u = x[e / 4], v = y[e % 4];
                float &to = sum[e / 4][e % 4];
                to = fmaf(u.x, v.x, to), to = fmaf(u.y, v.y, to);
                to = fmaf(u.z, v.z, to), to = fmaf(u.w, v.w, to);
            }
        }
#pragma unroll
        for (int e = 0; e < 16; e++) dots[is_q][i + e / 4 * 8][j + e % 4 * 8] = sum[e / 4][e % 4];
    }
    __syncthreads();
    bool has = t0 + lane < s.n_tok;
    float2 scale = make_float2(1, 1);
    if (g.is_delta && has)
        scale = make_float2(1.0f / sqrtf(norms[0][lane] + g.eps),
                            1.0f / sqrtf((norms[1][lane] + g.eps) * (float)g.d_k));
    for (int r = tid / 32; r < g.n_rep; r += PREP_THREADS / 32) {
        int head = g.is_grouped ? kh * g.n_rep + r : r * g.n_k_head + kh;
        float2 gates = has ? token_gates(g, s.row + t0 + lane, head) : make_float2(0, 0);
        prep_head(g, (int64_t)slot * g.n_head + head, room.a[tid / 32], dots, gates, scale);
    }
}

/* ---- the scan over chunks ---- */

__device__ __forceinline__ void mma_split(float d[4], const uint32_t high[4], const uint32_t low[4],
                                          const uint32_t *b_high, const uint32_t *b_low) {
    mma_16816_bf16(d, high, b_high);
    mma_16816_bf16(d, high, b_low);
    mma_16816_bf16(d, low, b_high);
}

/* What one thread of chunk_scan_kernel computes. Its warp holds 16 columns (`half`) and 32 rows (`part`) of the
 * transposed state in registers. Of the products with the state it computes 16 tokens from tok0 on, of k (parts 0 and
 * 1) or q (2 and 3). In a result fragment the thread has columns `group` and group + 8, and rows or tokens `two` and
 * two + 1. */
struct scan_place {
    int half, part, is_q, tok0, group, two;
    __device__ __forceinline__ scan_place() {
        int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
        half = warp % 2, part = warp / 2;
        is_q = part / 2, tok0 = part % 2 * 16;
        group = lane / 4, two = lane % 4 * 2;
    }
};

/* Asynchronous copy of n_row rows to shared memory, by all threads of the block. */
__device__ __forceinline__ void fetch_rows(uint16_t *to, int to_row, const uint32_t *from,
                                           int n_row, int row_bytes) {
    int per_row = row_bytes / 16;
    for (int e = (int)threadIdx.x; e < n_row * per_row; e += CHUNK_THREADS)
        copy_async16(to + e / per_row * to_row + e % per_row * 8, from + 4 * e, true);
}
__device__ __forceinline__ const uint32_t *keys_of(const chunk_job &g, int64_t slot, int kh) {
    return g.qk + (slot * g.n_k_head + kh) * (4 * CHUNK * CHUNK_K / 2);
}
/* Starts the copy of keys, T, P and factors. */
template <bool DELTA>
__device__ __forceinline__ void fetch_keys(chunk_room &room, const chunk_job &g, int64_t slot,
                                           int head, int kh, int to) {
    fetch_rows(room.k[to][0][0], KEY_ROW, keys_of(g, slot, kh), 2 * CHUNK, 2 * CHUNK_K);
    const uint32_t *tp = g.tp + (slot * g.n_head + head) * (4 * CHUNK * CHUNK / 2);
    if (DELTA) fetch_rows(room.tp[to][0][0][0], TOK_ROW, tp, 2 * CHUNK, 2 * CHUNK);
    fetch_rows(room.tp[to][1][0][0], TOK_ROW, tp + CHUNK * CHUNK, 2 * CHUNK, 2 * CHUNK);
    const float *f = g.f + (slot * g.n_head + head) * (N_FACTOR * CHUNK);
    int e = (int)threadIdx.x;
    if (e < N_FACTOR * CHUNK / 4) copy_async16(&room.f[to][0][4 * e], f + 4 * e, true);
}
__device__ __forceinline__ void fetch_queries(chunk_room &room, const chunk_job &g, int64_t slot,
                                              int kh) {
    fetch_rows(room.q[0][0], KEY_ROW, keys_of(g, slot, kh) + CHUNK * CHUNK_K, 2 * CHUNK,
               2 * CHUNK_K);
}

/* S^T x for the warp's tokens of k or q. */
__device__ __forceinline__ void state_times(const chunk_room &room, const scan_place &w, int now,
                                            float (&o)[2][4]) {
    float sum[3][2][4] = {}; /* independent accumulators, for parallel products */
    const uint16_t *x = w.is_q ? room.q[0][w.tok0] : room.k[now][0][w.tok0];
#pragma unroll
    for (int i = 0; i < CHUNK_K / 16; i++) {
        uint32_t high[4], low[4], x_high[4], x_low[4];
        first_factor(high, &room.s[0][w.half * 16][16 * i], KEY_ROW);
        first_factor(low, &room.s[1][w.half * 16][16 * i], KEY_ROW);
        second_factor(x_high, x + 16 * i, KEY_ROW);
        second_factor(x_low, x + CHUNK * KEY_ROW + 16 * i, KEY_ROW);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            mma_16816_bf16(sum[0][n], high, x_high + 2 * n);
            mma_16816_bf16(sum[1][n], high, x_low + 2 * n);
            mma_16816_bf16(sum[2][n], low, x_high + 2 * n);
        }
    }
#pragma unroll
    for (int e = 0; e < 8; e++)
        o[e / 4][e % 4] = sum[0][e / 4][e % 4] + (sum[1][e / 4][e % 4] + sum[2][e / 4][e % 4]);
}

/* From S^T k: computes R of the warp's tokens and stores it in shared memory. From S^T q: the part of o
 * that depends on the state and on v. */
__device__ __forceinline__ void take_values(chunk_room &room, const scan_place &w, int now,
                                            float skip, float (&o)[2][4]) {
    const float(*f)[CHUNK] = room.f[now];
#pragma unroll
    for (int n = 0; n < 2; n++) {
        int tok = w.tok0 + n * 8 + w.two, col = w.half * 16 + w.group;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int t = tok + e % 2;
            float v = room.v[t][col + e / 2 * 8];
            o[n][e] = w.is_q ? fmaf(f[F_QUERY][t], o[n][e], skip * v)
                             : f[F_B][t] * v - f[F_KEY][t] * o[n][e];
        }
        if (w.is_q) continue;
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
            uint32_t high, low;
            split_pair(o[n][e], o[n][e + 1], high, low);
            *(uint32_t *)&room.r[0][col + e * 4][tok] = high;
            *(uint32_t *)&room.r[1][col + e * 4][tok] = low;
        }
    }
}

/* D of the warp's columns and all tokens: as floats, 8 tokens per fragment, and as first factors, 16 tokens each. */
template <bool DELTA>
__device__ __forceinline__ void make_d(const chunk_room &room, const scan_place &w, int now,
                                       float (&D)[4][4], uint32_t (&high)[2][4],
                                       uint32_t (&low)[2][4]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        first_factor(high[i], &room.r[0][w.half * 16][16 * i], TOK_ROW);
        first_factor(low[i], &room.r[1][w.half * 16][16 * i], TOK_ROW);
    }
    if (!DELTA) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t h = high[i / 4][i % 4], l = low[i / 4][i % 4];
            D[i / 2][i % 2 * 2] = bf16_low(h) + bf16_low(l);
            D[i / 2][i % 2 * 2 + 1] = bf16_high(h) + bf16_high(l);
        }
        return;
    }
#pragma unroll
    for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i <= n; i++) {
            uint32_t t_high[4], t_low[4];
            second_factor(t_high, &room.tp[now][0][0][16 * n][16 * i], TOK_ROW);
            second_factor(t_low, &room.tp[now][0][1][16 * n][16 * i], TOK_ROW);
            mma_split(D[2 * n], high[i], low[i], t_high, t_low);
            mma_split(D[2 * n + 1], high[i], low[i], t_high + 2, t_low + 2);
        }
#pragma unroll
    for (int i = 0; i < 8; i++) /* the result layout is that of a first factor */
        split_pair(D[i / 2][i % 2 * 2], D[i / 2][i % 2 * 2 + 1], high[i / 4][i % 4],
                   low[i / 4][i % 4]);
}

/* o += P D for the warp's tokens. */
__device__ __forceinline__ void add_inner(const chunk_room &room, const scan_place &w, int now,
                                          const uint32_t (&high)[2][4], const uint32_t (&low)[2][4],
                                          float (&o)[2][4]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (16 * i > w.tok0) break;
        uint32_t p_high[4], p_low[4];
        second_factor(p_high, &room.tp[now][1][0][w.tok0][16 * i], TOK_ROW);
        second_factor(p_low, &room.tp[now][1][1][w.tok0][16 * i], TOK_ROW);
        mma_split(o[0], high[i], low[i], p_high, p_low);
        mma_split(o[1], high[i], low[i], p_high + 2, p_low + 2);
    }
}

/* S = e^G_32 S + sum of e^(G_32 - G_j) k_j D_j^T, transposed. */
__device__ __forceinline__ void move_state(const chunk_room &room, const scan_place &w, int now,
                                           const float (&D)[4][4], float (&S)[4][4]) {
    const float(*f)[CHUNK] = room.f[now];
    float all = f[F_ALL][0];
    uint32_t high[2][4], low[2][4];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int tok = i / 2 * 8 + w.two;
        split_pair(D[i / 2][i % 2 * 2] * f[F_STATE][tok],
                   D[i / 2][i % 2 * 2 + 1] * f[F_STATE][tok + 1], high[i / 4][i % 4],
                   low[i / 4][i % 4]);
    }
#pragma unroll
    for (int e = 0; e < 16; e++) S[e / 4][e % 4] *= all;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int n = 0; n < 2; n++) {
            uint32_t k_high[4], k_low[4];
            second_turned(k_high, &room.k[now][0][16 * i][w.part * 32 + 16 * n], KEY_ROW);
            second_turned(k_low, &room.k[now][1][16 * i][w.part * 32 + 16 * n], KEY_ROW);
            mma_split(S[2 * n], high[i], low[i], k_high, k_low);
            mma_split(S[2 * n + 1], high[i], low[i], k_high + 2, k_low + 2);
        }
}

__device__ __forceinline__ void keep_state(chunk_room &room, const scan_place &w,
                                           const float (&S)[4][4]) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t high, low;
        split_pair(S[i / 2][i % 2 * 2], S[i / 2][i % 2 * 2 + 1], high, low);
        int col = w.half * 16 + w.group + i % 2 * 8, row = w.part * 32 + i / 2 * 8 + w.two;
        *(uint32_t *)&room.s[0][col][row] = high;
        *(uint32_t *)&room.s[1][col][row] = low;
    }
}

/* Grid: (head, 32 columns of its state, span). */
template <bool DELTA>
__global__ void __launch_bounds__(CHUNK_THREADS) chunk_scan_kernel(dspans b, chunk_job g) {
    DYNAMIC_SHARED(chunk_room, rooms);
    chunk_room &room = *rooms;
    pdl_trigger();
    pdl_wait();
    scan_place w;
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int head = (int)blockIdx.x, col0 = (int)blockIdx.y * CHUNK_V;
    int span = g.first + (int)blockIdx.z, slot0 = slot_of(b, g, span);
    int kh = g.is_grouped ? head / g.n_rep : head % g.n_k_head;
    dspan s = b.spans[span];
    int n_chunk = (s.n_tok + CHUNK - 1) / CHUNK;
    float next[CHUNK * CHUNK_V / CHUNK_THREADS];
    auto read_values = [&](int chunk) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int t = chunk * CHUNK + warp + 8 * i, col = col0 + lane;
            next[i] = t < s.n_tok && col < g.d_v
                          ? g.v[(int64_t)(s.row + t) * g.stride + (int64_t)head * g.d_v + col]
                          : 0.0f;
        }
    };
    auto keep_values = [&] {
#pragma unroll
        for (int i = 0; i < 4; i++) room.v[warp + 8 * i][lane] = next[i];
    };
    float S[4][4]; /* fragments of 8 rows each */
    float *state = g.s + s.slot * g.s_stride + (int64_t)head * g.n_k * g.d_v;
    auto each_of_state = [&](auto act) {
#pragma unroll
        for (int e = 0; e < 16; e++) {
            int col = col0 + w.half * 16 + w.group + e % 4 / 2 * 8;
            int row = w.part * 32 + e / 4 * 8 + w.two + e % 2;
            act(S[e / 4][e % 4], row < g.d_k && col < g.d_v,
                state + (int64_t)row * g.s_k + (int64_t)col * g.s_v);
        }
    };
    each_of_state([](float &x, bool has, const float *at) { x = has ? *at : 0.0f; });
    fetch_keys<DELTA>(room, g, slot0, head, kh, 0);
    fetch_queries(room, g, slot0, kh);
    copy_commit();
    read_values(0);
    keep_values();
    keep_state(room, w, S);
    copy_wait<0>();
    __syncthreads();
    float skip = g.skip ? g.skip[head] : 0.0f;
    for (int chunk = 0; chunk < n_chunk; chunk++) {
        int now = chunk % 2;
        bool more = chunk + 1 < n_chunk;
        if (more) {
            fetch_keys<DELTA>(room, g, slot0 + chunk + 1, head, kh, now ^ 1);
            read_values(chunk + 1);
        }
        copy_commit();
        float o[2][4] = {}, D[4][4] = {};
        if (DELTA || w.is_q) state_times(room, w, now, o);
        take_values(room, w, now, skip, o);
        __syncthreads(); /* R is complete; queries, values and the state have been read */
        if (more) {
            fetch_queries(room, g, slot0 + chunk + 1, kh);
            keep_values();
        }
        copy_commit();
        uint32_t high[2][4], low[2][4];
        make_d<DELTA>(room, w, now, D, high, low);
        if (w.is_q) {
            add_inner(room, w, now, high, low, o);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                int t = chunk * CHUNK + w.tok0 + e / 4 * 8 + w.two + e % 2;
                int col = col0 + w.half * 16 + w.group + e % 4 / 2 * 8;
                if (t >= s.n_tok || col >= g.d_v) continue;
                float *to = g.out + ((int64_t)(s.row + t) * g.n_head + head) * g.d_v + col;
                *to = g.is_added ? *to + o[e / 4][e % 4] : o[e / 4][e % 4];
            }
        }
        move_state(room, w, now, D, S);
        if (more) keep_state(room, w, S);
        copy_wait<0>();
        __syncthreads();
    }
    each_of_state([](float x, bool has, float *at) {
        if (has) *at = x;
    });
}

/* ---- launches ---- */

bool cuda_has_chunks(const struct cuda *c, int32_t n_k, bool is_delta) {
    return c->compute >= 80 && (n_k <= CHUNK_K || !is_delta);
}

static int64_t n_slots(int64_t n_tok) { return n_tok / CHUNK + 16; }

size_t cuda_chunk_scratch(int64_t n_tok, int64_t n_k_head, int64_t n_head) {
    size_t qk = (size_t)n_k_head * 4 * CHUNK * CHUNK_K * 2,
           tp = (size_t)n_head * (4 * CHUNK * CHUNK * 2 + N_FACTOR * CHUNK * 4);
    return (size_t)n_slots(n_tok) * (qk + tp) + 3 * 256;
}

/* Processes the spans in order, as many per launch as fit in the scratch slots. */
static void launch_chunks(struct cuda *c, const struct span *spans, const dspans &b, chunk_job g,
                          int64_t n_slot) {
    for (g.first = 0; g.first < b.n_span; g.first += g.n_span) {
        int64_t used = 0;
        g.row0 = spans[g.first].row;
        for (g.n_span = 0; g.first + g.n_span < b.n_span; g.n_span++) {
            const struct span *s = &spans[g.first + g.n_span];
            int64_t end = (s->row - g.row0) / CHUNK + g.n_span + (s->n_tok + CHUNK - 1) / CHUNK;
            if (g.n_span && (end > n_slot || s->row != s[-1].row + s[-1].n_tok)) break;
            used = end;
        }
        launch(c, chunk_prep_kernel, dim3((unsigned)used, (unsigned)g.n_k_head), dim3(PREP_THREADS),
               0, b, g);
        launch(c, g.is_delta ? chunk_scan_kernel<true> : chunk_scan_kernel<false>,
               dim3((unsigned)g.n_head, (unsigned)((g.d_v + CHUNK_V - 1) / CHUNK_V),
                    (unsigned)g.n_span),
               dim3(CHUNK_THREADS), sizeof(chunk_room), b, g);
    }
}

/* Without a delta rule, D does not depend on the keys, so outputs are a sum over parts of a key: P and the rows of the
 * state of 128 elements at a time. */
void cuda_chunks(struct cuda *c, const struct span *spans, const dspans &b, chunk_job g) {
    int64_t n_slot = n_slots(b.n_tok);
    g.qk = (uint32_t *)cuda_take(c, (size_t)n_slot * (size_t)g.n_k_head * 4 * CHUNK * CHUNK_K * 2);
    g.tp = (uint32_t *)cuda_take(c, (size_t)n_slot * (size_t)g.n_head * 4 * CHUNK * CHUNK * 2);
    g.f = (float *)cuda_take(c, (size_t)n_slot * (size_t)g.n_head * N_FACTOR * CHUNK * 4);
    if (!g.f) return;
    g.n_rep = g.n_head / g.n_k_head;
    g.n_k = g.d_k;
    for (int32_t at = 0; at < g.n_k; at += CHUNK_K) {
        chunk_job part = g;
        part.d_k = g.n_k - at < CHUNK_K ? g.n_k - at : CHUNK_K;
        part.k = g.k + at, part.q = g.q + at, part.s = g.s + (int64_t)at * g.s_k;
        part.is_added = at > 0;
        if (at) part.skip = NULL;
        launch_chunks(c, spans, b, part, n_slot);
    }
}
