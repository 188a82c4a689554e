/* mamba.cu: the recurrences of Mamba-2 and Mamba-1. A block owns 64 rows of a head (Mamba-1: a group of channels)
 * of one sequence; otherwise as in delta_net.cu. At decode, convolution, scan, gate and norm of Mamba-2 are one
 * launch if the sizes are the usual ones. */
#include <utility>

#include "kernels/cuda/chunked_scan.cuh"

/* ---- Mamba-2 ---- */

struct ssd_job {
    int32_t n_head, n_group, n_rep, d_head, d_state, log_cap; /* n_rep: heads per group */
    rows xbc, dt;
    const float *a, *d, *dt_bias;
    float dt_min, dt_max;
    float *s, *out;
    int64_t s_stride;
    uint32_t *arrived; /* [n_span, n_group], zeros */
    divisor per_group; /* n_rep */
};

/* Few tokens. A block has 64 rows of a head, a warp 8 of them; lane l has states 4 l to 4 l + 3 of each 128. */
enum { SSD_THREADS = 256, SSD_ROWS = 64, SSD_EACH = 8 };

/* y of one token, for the warp's row lane / 4. bc: B, then C, each of 32 Q float4; x: of the warp's rows; factors:
 * decay, t. y = C (decay S + t x B) + d x, computed before the new S is known. */
template <int Q>
__device__ __forceinline__ float ssd_token(const float4 (&S)[SSD_EACH][Q], const float4 *bc,
                                           const float *x, float2 factors, float d) {
    int lane = (int)threadIdx.x % 32;
    float seen[SSD_EACH] = {}, dot = 0;
#pragma unroll
    for (int q = 0; q < Q; q++) {
        float4 B = bc[32 * q + lane], C = bc[32 * (Q + q) + lane];
        dot = fmaf(B.x, C.x, dot), dot = fmaf(B.y, C.y, dot);
        dot = fmaf(B.z, C.z, dot), dot = fmaf(B.w, C.w, dot);
#pragma unroll
        for (int r = 0; r < SSD_EACH; r++) {
            seen[r] = fmaf(S[r][q].x, C.x, seen[r]), seen[r] = fmaf(S[r][q].y, C.y, seen[r]);
            seen[r] = fmaf(S[r][q].z, C.z, seen[r]), seen[r] = fmaf(S[r][q].w, C.w, seen[r]);
        }
    }
    dot = lanes_sum(dot, 32);
    float sum = lanes_share<SSD_EACH>(seen, lane, 32), own = x[lane / (32 / SSD_EACH)];
    return fmaf(d, own, fmaf(factors.y * own, dot, factors.x * sum));
}

/* S = decay S + t x B */
template <int Q>
__device__ __forceinline__ void ssd_update(float4 (&S)[SSD_EACH][Q], const float4 *bc,
                                           const float *x, float2 factors) {
    int lane = (int)threadIdx.x % 32;
    float decay = factors.x;
#pragma unroll
    for (int q = 0; q < Q; q++) {
        float4 B = bc[32 * q + lane];
#pragma unroll
        for (int r = 0; r < SSD_EACH; r++) {
            float tx = factors.y * x[r];
            float4 old = S[r][q];
            S[r][q] = make_float4(fmaf(tx, B.x, decay * old.x), fmaf(tx, B.y, decay * old.y),
                                  fmaf(tx, B.z, decay * old.z), fmaf(tx, B.w, decay * old.w));
        }
    }
}

/* Decay and t of a head, computed from its dt. */
__device__ __forceinline__ float2 ssd_factors(const ssd_job &g, float dt, float a, float bias) {
    float t = softplus(dt + bias);
    t = t < g.dt_min ? g.dt_min : t > g.dt_max ? g.dt_max : t;
    return make_float2(quick_exp(t * a), t);
}

/* Grid: (head, span, group of rows). */
template <int Q> __global__ void __launch_bounds__(SSD_THREADS) ssd_kernel(dspans b, ssd_job g) {
    constexpr int STATES = 128 * Q;
    __shared__ __align__(16) float bc[2][2 * STATES], xs[2][SSD_ROWS];
    __shared__ float2 factors[2];
    int tid = (int)threadIdx.x, lane = tid % 32, at = tid / 32 * SSD_EACH, head = (int)blockIdx.x;
    int row0 = (int)blockIdx.z * SSD_ROWS, n_state = g.d_state, n_row = g.d_head - row0;
    int32_t span = (int32_t)blockIdx.y;
    dspan s = b.spans[span];
    float *state = g.s + s.slot * g.s_stride + ((int64_t)head * g.d_head + row0 + at) * n_state;
    float4 S[SSD_EACH][Q];
#pragma unroll
    for (int r = 0; r < SSD_EACH; r++)
#pragma unroll
        for (int q = 0; q < Q; q++)
            S[r][q] =
                four_at(state + r * n_state, 128 * q + 4 * lane, at + r < n_row ? n_state : 0);
    auto put_state = [&] {
#pragma unroll
        for (int r = 0; r < SSD_EACH; r++)
#pragma unroll
            for (int q = 0; q < Q; q++)
                four_put(state + r * n_state, 128 * q + 4 * lane, at + r < n_row ? n_state : 0,
                         S[r][q]);
    };
    pdl_trigger();
    pdl_wait();
    int64_t n_inner = (int64_t)g.n_head * g.d_head, n_bc = (int64_t)g.n_group * n_state;
    int64_t group_at = n_inner + (int64_t)(head / (g.n_head / g.n_group)) * n_state;
    float a = g.a[head], d = g.d[head], bias = g.dt_bias[head];
    for (int32_t i = 0; i < s.n_replay + s.n_tok; i++) {
        const float *x = row_at(g.xbc, s, span, g.log_cap, i);
        float *now = bc[i % 2], *own = xs[i % 2];
        for (int e = tid; e < 2 * STATES; e += SSD_THREADS) {
            int k = e % STATES;
            now[e] = k < n_state ? x[group_at + (e < STATES ? 0 : n_bc) + k] : 0.0f;
        }
        if (tid < SSD_ROWS)
            own[tid] = tid < n_row ? x[(int64_t)head * g.d_head + row0 + tid] : 0.0f;
        if (tid == SSD_THREADS - 1)
            factors[i % 2] = ssd_factors(g, row_at(g.dt, s, span, g.log_cap, i)[head], a, bias);
        if (i == s.n_replay && s.n_commit == 0) put_state();
        __syncthreads();
        float2 f = factors[i % 2];
        float y = ssd_token<Q>(S, (const float4 *)now, own + at, f, d);
        ssd_update<Q>(S, (const float4 *)now, own + at, f);
        int row = at + lane / (32 / SSD_EACH);
        if (i >= s.n_replay && row < n_row && lane % (32 / SSD_EACH) == 0)
            g.out[(int64_t)(s.row + i - s.n_replay) * n_inner + (int64_t)head * g.d_head + row0 +
                  row] = y;
    }
    if (s.n_commit) put_state();
}

/* Many tokens: B are the keys, C the queries, and the state is stored transposed. */
static void ssd_many(struct cuda *c, const struct ssd_args *a, const dspans &b, const ssd_job &g) {
    int64_t n_inner = (int64_t)g.n_head * g.d_head;
    chunk_job j = {};
    j.n_k_head = g.n_group, j.n_head = g.n_head, j.d_k = g.d_state, j.d_v = g.d_head;
    j.is_grouped = 1;
    j.dt_min = g.dt_min, j.dt_max = g.dt_max;
    j.v = g.xbc.x, j.k = j.v + n_inner, j.q = j.k + (int64_t)g.n_group * g.d_state;
    j.stride = g.xbc.stride;
    j.gate = g.dt.x;
    j.gate_stride = g.dt.stride;
    j.a = g.a, j.bias = g.dt_bias, j.skip = g.d;
    j.s = g.s, j.s_stride = g.s_stride;
    j.s_k = 1, j.s_v = g.d_state;
    j.out = g.out;
    cuda_chunks(c, a->spans, b, j);
}

struct gate_job { /* gate and norm of rows y [n]; the norm is over equal parts of a row */
    float *y;
    const float *z, *w; /* NULL: no gate, no norm */
    int64_t n, part, z_stride;
    float eps, per; /* per: 1 / part */
    int32_t norm_first, unused;
    act8 out8;
};

enum { GATE_THREADS = 128 };

/* Normalizes the part of y at index `at` in place, by the first GATE_THREADS of the block; the other threads only
 * take part in the barrier. of(q), weight(q): group q of four of the input and of the weights. */
template <class Of, class Weight>
__device__ __forceinline__ void norm_part(const gate_job &j, int64_t at, Of of, Weight weight) {
    __shared__ float room[GATE_THREADS / 32];
    int tid = (int)threadIdx.x, part = (int)j.part, n = (part + 3) / 4;
    bool works = tid < GATE_THREADS;
    float4 first = works && tid < n ? of(tid) : make_float4(0, 0, 0, 0), y = first;
    float sum = 0;
#pragma unroll 1
    for (int q = tid; works && q < n;) {
        sum = fmaf(y.x, y.x, sum), sum = fmaf(y.y, y.y, sum);
        sum = fmaf(y.z, y.z, sum), sum = fmaf(y.w, y.w, sum);
        q += GATE_THREADS;
        if (q < n) y = of(q);
    }
    sum = lanes_sum(sum, 32);
    if (works && tid % 32 == 0) room[tid / 32] = sum;
    __syncthreads();
    static_assert(GATE_THREADS == 128, "four warps are added by name");
    float f = j.w ? rsqrtf(((room[0] + room[1]) + (room[2] + room[3])) * j.per + j.eps) : 1.0f;
#pragma unroll 1
    for (int q = tid; works && q / 32 * 32 < n; q += GATE_THREADS) {
        bool has = q < n;
        y = make_float4(0, 0, 0, 0);
        if (has) {
            float4 w = weight(q);
            y = q == tid ? first : of(q);
            y = make_float4(y.x * (f * w.x), y.y * (f * w.y), y.z * (f * w.z), y.w * (f * w.w));
            four_put(j.y + at, 4 * q, part, y);
        }
        if (j.out8.q) act8_put4(j.out8, at / 4 + q, y, has);
    }
}

__device__ __forceinline__ float4 silu4(float4 z) {
    return make_float4(silu(z.x), silu(z.y), silu(z.z), silu(z.w));
}
__device__ __forceinline__ float4 product4(float4 a, float4 b) {
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

/* Gate and norm of part blockIdx.y of row blockIdx.x. */
__global__ void __launch_bounds__(GATE_THREADS) gate_norm_kernel(gate_job j) {
    pdl_trigger();
    pdl_wait();
    int part = (int)j.part;
    int64_t own = (int64_t)blockIdx.y * part, at = blockIdx.x * j.n + own;
    const float *z = j.z ? j.z + blockIdx.x * j.z_stride + own : NULL;
    float4 ones = make_float4(1, 1, 1, 1);
    auto gate = [&](int q) { return silu4(four_at(z, 4 * q, part)); };
    norm_part(
        j, at,
        [&](int q) {
            float4 y = four_at(j.y + at, 4 * q, part);
            return z && !j.norm_first ? product4(y, gate(q)) : y;
        },
        [&](int q) {
            float4 w = j.w ? four_at(j.w + own, 4 * q, part) : ones;
            return z && j.norm_first ? product4(w, gate(q)) : w;
        });
}

/* One token per span, heads of 64 rows and 128 states, a pending convolution of 4: this kernel computes all of it, with
 * gate and norm. Grid: (head, span). State, weights and kept convolution inputs are read before pdl_wait. The heads of
 * a group each compute its B and C. The last of them to arrive updates the kept inputs of B and C and normalizes the
 * group's rows. The order of additions is that of the separate kernels. */
__global__ void __launch_bounds__(SSD_THREADS, 4)
    ssd_step_kernel(dspans b, rec_view rec, conv_job v, ssd_job g, gate_job n) {
    constexpr int STATES = 128, TAPS = 4, EACH = SSD_THREADS + SSD_ROWS;
    static_assert(SSD_THREADS == 2 * STATES, "a thread convolves one channel of B or C");
    __shared__ __align__(16) float line[EACH]; /* B, C, x */
    __shared__ __align__(16) float4 norm_line[GATE_THREADS], w_x[SSD_ROWS];
    __shared__ __align__(16) float bias_x[SSD_ROWS][4];
    /* new kept inputs of B and C */
    __shared__ float gates[SSD_ROWS], kept_bc[TAPS - 1][SSD_THREADS];
    __shared__ float2 factors;
    __shared__ uint32_t arrived;
    unsigned tid = threadIdx.x;
    int lane = (int)(tid % 32), at = (int)(tid / 32) * SSD_EACH, head = (int)blockIdx.x;
    int group = (int)((uint32_t)head / g.per_group), n_inner = g.n_head * SSD_ROWS;
    int n_conv = (int)v.n_conv;
    int32_t s_row = b.spans[blockIdx.y].row, slot = b.spans[blockIdx.y].slot;
    float4 *state = (float4 *)(g.s + slot * g.s_stride) + head * (SSD_ROWS * STATES / 4);
    int own = at * (STATES / 4) + lane;
    float4 S[SSD_EACH][1];
#pragma unroll
    for (int r = 0; r < SSD_EACH; r++) S[r][0] = (state + own)[r * (STATES / 4)];
    /* each thread has a channel of B or C; the first 64 also have one of x */
    bool has_x = tid < SSD_ROWS, is_first = group * g.n_rep == head;
    /* recomputed at each use, to save registers */
    auto bc_channel = [&] {
        int k = unknown((int)tid);
        return n_inner + (group + (k < STATES ? 0 : g.n_group - 1)) * STATES + k;
    };
    auto x_channel = [&] { return head * SSD_ROWS + unknown((int)tid); };
    float *kept = rec.conv + slot * (int64_t)rec.conv_stride;
    int bc_at = bc_channel(), x_at = x_channel();
    float4 w = ((const float4 *)v.w)[bc_at];
    float old[2][TAPS - 1], bias = v.b ? v.b[bc_at] : 0.0f;
#pragma unroll
    for (int k = 0; k < TAPS - 1; k++) {
        old[0][k] = (kept + k * n_conv)[bc_at];
        if (has_x) old[1][k] = (kept + k * n_conv)[x_at];
    }
    if (has_x) copy_async16(&w_x[tid], v.w + TAPS * x_at, true);
    /* the thread uses one of the four */
    if (v.b && has_x) copy_async16(bias_x[tid], v.b + x_at / 4 * 4, true);
    int64_t norm_at = (int64_t)group * n.part;
    if (tid >= SSD_THREADS - GATE_THREADS) {
        int q = (int)tid - (SSD_THREADS - GATE_THREADS);
        copy_async16(&norm_line[q], n.w + norm_at + 4 * q, 4 * q < n.part);
    }
    copy_commit();
    float a = g.a[head], d = g.d[head], dt_bias = g.dt_bias[head];
    pdl_trigger();
    copy_wait<0>(); /* own copies; the norm's weights are read after a barrier */
    pdl_wait();
    const float *x = v.x + s_row * (int)v.x_stride;
    float in = x[bc_at], in_x = has_x ? x[x_at] : 0.0f;
    if (tid / 64 == 1)
        gates[tid - 64] = silu(n.z[s_row * (int)n.z_stride + head * SSD_ROWS + (int)tid - 64]);
    if (tid == SSD_THREADS - 1)
        factors = ssd_factors(g, g.dt.x[s_row * (int)g.dt.stride + head], a, dt_bias);
    float *conved = v.out + s_row * (int)v.out_stride;
    float y = conv_four(bias, w, old[0][0], old[0][1], old[0][2], in);
    line[tid] = y;
#pragma unroll
    for (int k = 0; k < TAPS - 1; k++) kept_bc[k][tid] = old[0][k];
    if (is_first) conved[bc_channel()] = y;
    if (has_x) {
        y = conv_four(v.b ? bias_x[tid][tid % 4] : 0.0f, w_x[tid], old[1][0], old[1][1], old[1][2],
                      in_x);
        line[tid + SSD_THREADS] = y;
        conved[x_channel()] = y;
#pragma unroll
        for (int k = 0; k < TAPS - 1; k++) (kept + k * n_conv)[x_channel()] = old[1][k];
    }
    __syncthreads();
    const float4 *bc = (const float4 *)line;
    const float *xs = line + SSD_THREADS + at;
    float2 f = factors;
    y = ssd_token<1>(S, bc, xs, f, d);
    int row = at + lane / (32 / SSD_EACH);
    float *out = n.y + (int64_t)s_row * n_inner;
    if (lane % (32 / SSD_EACH) == 0) out[head * SSD_ROWS + row] = y * gates[row];
    __syncthreads();
    group = (int)((uint32_t)unknown(head) / g.per_group); /* recomputed, to save registers */
    norm_at = (int64_t)group * n.part;
    uint32_t *counter = &g.arrived[blockIdx.y * (unsigned)g.n_group + (unsigned)group];
    if (tid == 0) arrived = atomic_ticket(counter) + 1u;
    ssd_update<1>(S, bc, xs, f);
    float4 *to = state + unknown(own);
#pragma unroll
    for (int r = 0; r < SSD_EACH; r++) to[r * (STATES / 4)] = S[r][0];
    __syncthreads();
    if (arrived < (unsigned)g.n_rep) return;
    norm_part(
        n, (int64_t)s_row * n_inner + norm_at,
        [&](int q) { return __ldcg((const float4 *)(out + norm_at) + q); },
        [&](int q) {
            return q < GATE_THREADS ? norm_line[q] : ((const float4 *)(n.w + norm_at))[q];
        });
#pragma unroll
    for (int k = 0; k < TAPS - 1; k++) (kept + k * n_conv)[bc_channel()] = kept_bc[k][tid];
    if (tid == 0) *counter = 0;
}

/* Whether ssd_step_kernel can compute the op together with the pending convolution. */
static bool is_step(const struct ssd_args *a, const pending_conv &v) {
    int64_t n_inner = (int64_t)a->n_head * a->d_head;
    return v.j.x && v.j.out == a->xbc && v.j.out_stride == a->xbc_stride && v.j.silu &&
           v.j.d_conv == 4 && v.j.n_conv == n_inner + 2 * (int64_t)a->n_group * a->d_state &&
           v.rec.conv == a->state.conv && v.spans == a->spans && v.b.n_span == a->n_span &&
           a->d_head == SSD_ROWS && a->d_state == 128 && a->z && a->norm_w && !a->norm_first &&
           a->n_norm == a->n_group && a->n_head % a->n_group == 0 &&
           a->n_group * a->n_span <= CUDA_N_ARRIVED && is_aligned(v.j.w) && is_aligned(v.j.b) &&
           is_aligned(a->norm_w) && is_aligned(a->state.conv) && a->state.conv_stride % 4 == 0;
}

void cuda_ssd(struct dev *d, const struct ssd_args *a) {
    struct cuda *c = (struct cuda *)d;
    dspans b;
    pending_conv conv = c->conv;
    bool step = is_step(a, conv);
    if (step) c->conv.j.x = NULL;
    if (!cuda_begin(c) || !cuda_spans(c, a->spans, a->n_span, &b)) return;
    int64_t n_inner = (int64_t)a->n_head * a->d_head;
    int64_t n_xbc = n_inner + 2 * (int64_t)a->n_group * a->d_state;
    if (a->d_state > 256) {
        cuda_fail_with(c, CHIMERE_EUNSUPPORTED, "Mamba-2 with more than 256 states");
        return;
    }
    turn_job turned = {
        {a->xbc, a->dt}, {a->xbc_stride, a->dt_stride}, {n_xbc, a->n_head}, 2, a->log_at, 0};
    float *replay = cuda_turn(c, a->spans, b, &a->state, turned);
    if (c->err.code) return;
    ssd_job g = {};
    g.n_head = a->n_head, g.n_group = a->n_group, g.d_head = a->d_head, g.d_state = a->d_state;
    g.n_rep = a->n_head / a->n_group;
    g.per_group = divisor_of(g.n_rep);
    g.log_cap = a->state.log_cap;
    g.xbc = rows{a->xbc, replay, a->xbc_stride, n_xbc + a->n_head};
    g.dt = rows{a->dt, replay ? replay + n_xbc : NULL, a->dt_stride, n_xbc + a->n_head};
    g.a = a->a, g.d = a->d, g.dt_bias = a->dt_bias;
    g.dt_min = a->dt_min, g.dt_max = a->dt_max;
    g.s = a->state.s, g.s_stride = (int64_t)a->state.s_stride;
    g.out = a->out;
    g.arrived = c->arrived;
    cuda_wrote(c, a->out, (size_t)(a->n_tok * n_inner) * 4);
    int64_t part = a->norm_w ? n_inner / a->n_norm : n_inner;
    gate_job n = {};
    n.y = a->out, n.z = a->z, n.w = a->norm_w;
    n.n = n_inner, n.part = part, n.z_stride = a->z_stride;
    n.eps = a->eps, n.per = 1.0f / (float)part;
    n.norm_first = a->norm_first;
    bool norms = a->z || a->norm_w;
    if (norms && part % 32 == 0) n.out8 = cuda_shadow_new(c, a->out, a->n_tok, n_inner);
    dim3 block(SSD_THREADS);
    if (step) {
        launch(c, ssd_step_kernel, dim3((unsigned)a->n_head, (unsigned)b.n_span), block, 0, b,
               a->state, conv.j, g, n);
        return;
    }
    dim3 grid((unsigned)a->n_head, (unsigned)b.n_span,
              (unsigned)((a->d_head + SSD_ROWS - 1) / SSD_ROWS));
    if (cuda_is_many(a->spans, a->n_span) && cuda_has_chunks(c, a->d_state, false))
        ssd_many(c, a, b, g);
    else if (a->d_state <= 128) launch(c, ssd_kernel<1>, grid, block, 0, b, g);
    else launch(c, ssd_kernel<2>, grid, block, 0, b, g);
    if (norms)
        launch(c, gate_norm_kernel, dim3((unsigned)a->n_tok, (unsigned)(n_inner / part)),
               dim3(GATE_THREADS), 0, n);
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

/* One thread per channel; N: registers for its states, at least d_state. */
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
    pdl_trigger();
    pdl_wait();
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
