/* ssm.cu: the scans of Mamba-2 and Mamba-1. A block owns one head (Mamba-1: a strip of channels) of one sequence; the
 * rest is as in recurrent.cu. */
#include <utility>

#include "kernels/cuda/recurrent.cuh"

/* ---- Mamba-2 ---- */

struct ssd_job {
    int32_t n_head, n_group, d_head, d_state, log_cap;
    rows xbc, dt;
    const float *a, *d, *dt_bias;
    float dt_min, dt_max;
    float *s, *out;
    int64_t s_stride;
};

/* A thread's part of a row of states: every N_PART-th from p on. */
template <int N>
__device__ __forceinline__ void part_load(float (&S)[N], const float *row, int n, int p, bool has) {
#pragma unroll
    for (int k = 0; k < N; k++) {
        int at = N_PART * k + p;
        S[k] = has && at < n ? row[at] : 0.0f;
    }
}
template <int N>
__device__ __forceinline__ void part_keep(const float (&S)[N], float *row, int n, int p, bool has) {
#pragma unroll
    for (int k = 0; k < N; k++)
        if (has && N_PART * k + p < n) row[N_PART * k + p] = S[k];
}

/* Thread 4 i + p has row i of the head, states 4 k + p. */
template <int N, int THREADS>
__global__ void __launch_bounds__(THREADS) ssd_kernel(dspans b, ssd_job g) {
    DYNAMIC_SHARED(float, room); /* two buffers of [B | C] */
    int tid = (int)threadIdx.x, p = tid % N_PART, row = tid / N_PART, head = (int)blockIdx.x;
    dspan s = b.spans[blockIdx.y];
    int n_state = g.d_state;
    bool has = row < g.d_head;
    float *state = g.s + s.slot * g.s_stride + ((int64_t)head * g.d_head + row) * n_state;
    float S[N];
    part_load(S, state, n_state, p, has);
    launch_next();
    wait_previous();
    int64_t n_inner = (int64_t)g.n_head * g.d_head, n_bc = (int64_t)g.n_group * n_state;
    int64_t group_at = n_inner + (int64_t)(head / (g.n_head / g.n_group)) * n_state;
    float a = g.a[head], d = g.d[head], bias = g.dt_bias[head];
    for (int32_t i = 0; i < s.n_replay + s.n_tok; i++) {
        float *bc = room + i % 2 * 2 * n_state;
        const float *x = row_at(g.xbc, s, (int32_t)blockIdx.y, g.log_cap, i);
        for (int e = tid; e < 2 * n_state; e += (int)blockDim.x)
            bc[e] = x[group_at + (e < n_state ? 0 : n_bc) + e % n_state];
        float v = has ? x[(int64_t)head * g.d_head + row] : 0.0f;
        float t = softplus(row_at(g.dt, s, (int32_t)blockIdx.y, g.log_cap, i)[head] + bias);
        t = t < g.dt_min ? g.dt_min : t > g.dt_max ? g.dt_max : t;
        float decay = expf(t * a), tx = t * v, y = 0;
        if (i == s.n_replay && s.n_commit == 0) part_keep(S, state, n_state, p, has);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < N; k++) {
            int at = N_PART * k + p;
            if (at >= n_state) continue;
            S[k] = decay * S[k] + tx * bc[at];
            y += S[k] * bc[n_state + at];
        }
        y = lanes_sum(y, N_PART);
        if (i >= s.n_replay && has && p == 0)
            g.out[(int64_t)(s.row + i - s.n_replay) * n_inner + (int64_t)head * g.d_head + row] =
                y + d * v;
    }
    if (s.n_commit) part_keep(S, state, n_state, p, has);
}

/* Many tokens: rows of a head's state do not meet, so a block has SCAN_COLS of them and no barrier but one
 * every SCAN_TILE tokens, whose inputs are read while the tokens before them go by. R: states of a part;
 * d_state at most SCAN_ROWS. */
template <int R>
__global__ void __launch_bounds__(SCAN_THREADS) ssd_scan_kernel(dspans b, ssd_job g) {
    constexpr int STRIDE = R + 4, EACH = (R * N_PART + SCAN_THREADS - 1) / SCAN_THREADS;
    __shared__ __align__(16) float B[2][SCAN_TILE][N_PART * STRIDE],
        C[2][SCAN_TILE][N_PART * STRIDE];
    __shared__ float v[2][SCAN_TILE][SCAN_COLS];
    __shared__ float2 f[2][SCAN_TILE]; /* decay, t */
    int tid = (int)threadIdx.x, p = tid % N_PART, mine = tid / N_PART, head = (int)blockIdx.x;
    int row = (int)blockIdx.y * SCAN_COLS + mine, n_state = g.d_state;
    dspan s = b.spans[blockIdx.z];
    bool has = row < g.d_head;
    float *state = g.s + s.slot * g.s_stride + ((int64_t)head * g.d_head + row) * n_state;
    float S[R];
    part_load(S, state, n_state, p, has);
    launch_next();
    wait_previous();
    int64_t n_inner = (int64_t)g.n_head * g.d_head, n_bc = (int64_t)g.n_group * n_state;
    int64_t group_at = n_inner + (int64_t)(head / (g.n_head / g.n_group)) * n_state;
    float a = g.a[head], d = g.d[head], bias = g.dt_bias[head];
    float next_b[SCAN_TILE * EACH], next_c[SCAN_TILE * EACH], next_v[SCAN_TILE / 4];
    float next_t = 0;
    auto fetch = [&](int32_t first) {
#pragma unroll
        for (int i = 0; i < SCAN_TILE * EACH; i++) {
            int at = tid + i % EACH * SCAN_THREADS;
            bool is = first + i / EACH < s.n_tok && at < n_state;
            const float *x = g.xbc.x + (s.row + first + i / EACH) * g.xbc.stride + group_at;
            next_b[i] = is ? x[at] : 0.0f;
            next_c[i] = is ? x[n_bc + at] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < SCAN_TILE / 4; i++) {
            int32_t t = first + 4 * i + tid / SCAN_COLS;
            int r = (int)blockIdx.y * SCAN_COLS + tid % SCAN_COLS;
            next_v[i] = t < s.n_tok && r < g.d_head
                            ? g.xbc.x[(s.row + t) * g.xbc.stride + (int64_t)head * g.d_head + r]
                            : 0.0f;
        }
        if (tid < SCAN_TILE && first + tid < s.n_tok)
            next_t = g.dt.x[(s.row + first + tid) * g.dt.stride + head];
    };
    auto keep = [&](int at) {
#pragma unroll
        for (int i = 0; i < SCAN_TILE * EACH; i++) {
            int e = tid + i % EACH * SCAN_THREADS, place = e % N_PART * STRIDE + e / N_PART;
            if (e < R * N_PART)
                B[at][i / EACH][place] = next_b[i], C[at][i / EACH][place] = next_c[i];
        }
#pragma unroll
        for (int i = 0; i < SCAN_TILE / 4; i++)
            v[at][4 * i + tid / SCAN_COLS][tid % SCAN_COLS] = next_v[i];
        if (tid < SCAN_TILE) {
            float t = softplus(next_t + bias);
            t = t < g.dt_min ? g.dt_min : t > g.dt_max ? g.dt_max : t;
            f[at][tid] = make_float2(expf(t * a), t);
        }
    };
    fetch(0);
    keep(0);
    __syncthreads();
    for (int32_t first = 0, at = 0; first < s.n_tok; first += SCAN_TILE, at ^= 1) {
        if (first + SCAN_TILE < s.n_tok) fetch(first + SCAN_TILE);
        for (int32_t i = 0; i < SCAN_TILE && first + i < s.n_tok; i++) {
            const float4 *br = (const float4 *)&B[at][i][p * STRIDE];
            const float4 *cr = (const float4 *)&C[at][i][p * STRIDE];
            float2 factor = f[at][i];
            float x = v[at][i][mine], decay = factor.x, tx = factor.y * x;
            float4 y4 = make_float4(0, 0, 0, 0);
#pragma unroll
            for (int k = 0; k < R / 4; k++) {
                float4 u = br[k], w = cr[k];
                S[4 * k] = decay * S[4 * k] + tx * u.x;
                S[4 * k + 1] = decay * S[4 * k + 1] + tx * u.y;
                S[4 * k + 2] = decay * S[4 * k + 2] + tx * u.z;
                S[4 * k + 3] = decay * S[4 * k + 3] + tx * u.w;
                y4.x += S[4 * k] * w.x;
                y4.y += S[4 * k + 1] * w.y;
                y4.z += S[4 * k + 2] * w.z;
                y4.w += S[4 * k + 3] * w.w;
            }
            float y = lanes_sum((y4.x + y4.y) + (y4.z + y4.w), N_PART);
            if (has && p == 0)
                g.out[(s.row + first + i) * n_inner + (int64_t)head * g.d_head + row] = y + d * x;
        }
        if (first + SCAN_TILE < s.n_tok) keep(at ^ 1);
        __syncthreads();
    }
    part_keep(S, state, n_state, p, has);
}

static void ssd_many(struct cuda *c, const dspans &b, const ssd_job &g) {
    dim3 grid((unsigned)g.n_head, (unsigned)((g.d_head + SCAN_COLS - 1) / SCAN_COLS),
              (unsigned)b.n_span);
    if (g.d_state <= 64) launch(c, ssd_scan_kernel<16>, grid, dim3(SCAN_THREADS), 0, b, g);
    else launch(c, ssd_scan_kernel<SCAN_ROWS / N_PART>, grid, dim3(SCAN_THREADS), 0, b, g);
}

/* Gate and norm of part blockIdx.y of row blockIdx.x, in place. */
__global__ void gate_norm_kernel(float *y, const float *z, const float *w, int64_t n, int64_t part,
                                 int64_t z_stride, int32_t norm_first, float eps, act8 out8) {
    __shared__ float room[32];
    launch_next();
    wait_previous();
    int64_t at = blockIdx.y * part;
    y += blockIdx.x * n + at;
    z = z ? z + blockIdx.x * z_stride + at : NULL;
    float sum = 0;
    for (int64_t i = threadIdx.x; i < part; i += blockDim.x) {
        if (z && !norm_first) y[i] *= silu(z[i]);
        sum += y[i] * y[i];
    }
    sum = block_sum(sum, room);
    float f = w ? 1.0f / sqrtf(sum / (float)part + eps) : 1.0f;
    for (int64_t i = threadIdx.x; i < part; i += blockDim.x) {
        float v = y[i] * f * (w ? w[at + i] : 1.0f);
        v = z && norm_first ? v * silu(z[i]) : v;
        y[i] = v;
        if (out8.q) act8_put(out8, (blockIdx.x * n + at + i) / 32, v);
    }
}

void cuda_ssd(struct dev *d, const struct ssd_args *a) {
    struct cuda *c = (struct cuda *)d;
    dspans b;
    if (!cuda_begin(c) || !cuda_spans(c, a->spans, a->n_span, &b)) return;
    int64_t n_inner = (int64_t)a->n_head * a->d_head;
    int64_t n_xbc = n_inner + 2 * (int64_t)a->n_group * a->d_state;
    if (a->d_state > 256 || a->d_head > 256) {
        cuda_fail_with(c, CHIMERE_EUNSUPPORTED, "Mamba-2 with heads or states over 256");
        return;
    }
    turn_job turned = {
        {a->xbc, a->dt}, {a->xbc_stride, a->dt_stride}, {n_xbc, a->n_head}, 2, a->log_at, 0};
    float *replay = cuda_turn(c, a->spans, b, &a->state, turned);
    if (c->err.code) return;
    ssd_job g = {};
    g.n_head = a->n_head, g.n_group = a->n_group, g.d_head = a->d_head, g.d_state = a->d_state;
    g.log_cap = a->state.log_cap;
    g.xbc = rows{a->xbc, replay, a->xbc_stride, n_xbc + a->n_head};
    g.dt = rows{a->dt, replay ? replay + n_xbc : NULL, a->dt_stride, n_xbc + a->n_head};
    g.a = a->a, g.d = a->d, g.dt_bias = a->dt_bias;
    g.dt_min = a->dt_min, g.dt_max = a->dt_max;
    g.s = a->state.s, g.s_stride = (int64_t)a->state.s_stride;
    g.out = a->out;
    dim3 grid((unsigned)a->n_head, (unsigned)b.n_span);
    dim3 block((unsigned)((a->d_head * N_PART + 31) / 32 * 32));
    size_t room = (size_t)(4 * a->d_state) * 4;
    if (cuda_is_many(a->spans, a->n_span) && a->d_state <= SCAN_ROWS) ssd_many(c, b, g);
    else if (a->d_head > 128) launch(c, ssd_kernel<64, 1024>, grid, block, room, b, g);
    else if (a->d_state <= 64) launch(c, ssd_kernel<16, 512>, grid, block, room, b, g);
    else if (a->d_state <= 128 && a->d_head <= 64)
        launch(c, ssd_kernel<32, 256>, grid, block, room, b, g);
    else if (a->d_state <= 128) launch(c, ssd_kernel<32, 512>, grid, block, room, b, g);
    else launch(c, ssd_kernel<64, 512>, grid, block, room, b, g);
    cuda_wrote(c, a->out, (size_t)(a->n_tok * n_inner) * 4);
    if (!a->z && !a->norm_w) return;
    int64_t part = a->norm_w ? n_inner / a->n_norm : n_inner;
    act8 out8 = {};
    if (part % 32 == 0) out8 = cuda_shadow_new(c, a->out, a->n_tok, n_inner);
    launch(c, gate_norm_kernel, dim3((unsigned)a->n_tok, (unsigned)(n_inner / part)), dim3(256), 0,
           a->out, a->z, a->norm_w, n_inner, part, a->z_stride, (int32_t)a->norm_first, a->eps,
           out8);
}

/* ---- Mamba-1 ---- */

struct ssm_job {
    int32_t d_state, log_cap;
    int64_t n_inner, z_stride;
    rows x, dt, b, c;
    const float *z, *a, *d;
    float *s, *out;
    int64_t s_stride;
};

enum { SSM_THREADS = 128, SSM_STATES = 64 };

/* A thread has one channel; N: its states, at least d_state. */
template <int N> __global__ void ssm_kernel(dspans b, ssm_job g) {
    int64_t ch = (int64_t)blockIdx.x * SSM_THREADS + threadIdx.x;
    dspan s = b.spans[blockIdx.y];
    if (ch >= g.n_inner) return;
    float *state = g.s + s.slot * g.s_stride + ch * g.d_state;
    float S[N], A[N];
#pragma unroll
    for (int n = 0; n < N; n++) {
        S[n] = n < g.d_state ? state[n] : 0.0f;
        A[n] = n < g.d_state ? g.a[ch * g.d_state + n] : 0.0f;
    }
    launch_next();
    wait_previous();
    float d = g.d[ch];
    for (int32_t i = 0; i < s.n_replay + s.n_tok; i++) {
        int32_t span = (int32_t)blockIdx.y;
        float x = row_at(g.x, s, span, g.log_cap, i)[ch];
        float t = softplus(row_at(g.dt, s, span, g.log_cap, i)[ch]);
        const float *B = row_at(g.b, s, span, g.log_cap, i);
        const float *C = row_at(g.c, s, span, g.log_cap, i);
        float y = d * x;
        if (i == s.n_replay && s.n_commit == 0) {
#pragma unroll
            for (int n = 0; n < N; n++)
                if (n < g.d_state) state[n] = S[n];
        }
#pragma unroll
        for (int n = 0; n < N; n++) {
            if (n >= g.d_state) continue;
            S[n] = expf(t * A[n]) * S[n] + t * x * B[n];
            y += S[n] * C[n];
        }
        if (i < s.n_replay) continue;
        int64_t row = s.row + i - s.n_replay;
        g.out[row * g.n_inner + ch] = g.z ? y * silu(g.z[row * g.z_stride + ch]) : y;
    }
    if (s.n_commit == 0) return;
#pragma unroll
    for (int n = 0; n < N; n++)
        if (n < g.d_state) state[n] = S[n];
}

void cuda_ssm(struct dev *d, const struct ssm_args *a) {
    struct cuda *c = (struct cuda *)d;
    dspans b;
    if (!cuda_begin(c) || !cuda_spans(c, a->spans, a->n_span, &b)) return;
    if (a->d_state > SSM_STATES) {
        cuda_fail_with(c, CHIMERE_EUNSUPPORTED, "Mamba-1 with more than 64 states");
        return;
    }
    int64_t n = a->n_inner, row = 2 * n + 2 * a->d_state;
    turn_job turned = {{a->x, a->dt, a->b, a->c},
                       {a->x_stride, a->dt_stride, a->bc_stride, a->bc_stride},
                       {n, n, a->d_state, a->d_state},
                       4,
                       a->log_at,
                       0};
    float *r = cuda_turn(c, a->spans, b, &a->state, turned);
    if (c->err.code) return;
    ssm_job g = {};
    g.d_state = a->d_state;
    g.log_cap = a->state.log_cap;
    g.n_inner = n;
    g.z_stride = a->z_stride;
    g.x = rows{a->x, r, a->x_stride, row};
    g.dt = rows{a->dt, r ? r + n : NULL, a->dt_stride, row};
    g.b = rows{a->b, r ? r + 2 * n : NULL, a->bc_stride, row};
    g.c = rows{a->c, r ? r + 2 * n + a->d_state : NULL, a->bc_stride, row};
    g.z = a->z, g.a = a->a, g.d = a->d;
    g.s = a->state.s, g.s_stride = (int64_t)a->state.s_stride;
    g.out = a->out;
    dim3 grid((unsigned)((n + SSM_THREADS - 1) / SSM_THREADS), (unsigned)b.n_span);
    cuda_wrote(c, a->out, (size_t)(a->n_tok * n) * 4);
    if (a->d_state <= 16) launch(c, ssm_kernel<16>, grid, dim3(SSM_THREADS), 0, b, g);
    else launch(c, ssm_kernel<SSM_STATES>, grid, dim3(SSM_THREADS), 0, b, g);
}
