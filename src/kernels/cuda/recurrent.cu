/* recurrent.cu: convolution, delta net, and the scans of Mamba-1 and Mamba-2.
 *
 * A block owns one head (Mamba-1: a strip of channels) of one sequence, keeps its state in registers and
 * takes the tokens one after the other, logged ones first. So a token's bits do not depend on how many come
 * with it. Roofline at decode: the state, read and written once, 4 MB a layer of a 35B model; the reads
 * are in flight before the wait, since no kernel of the step writes them. At prefill a token costs about
 * 300 cycles a layer, all heads at once.
 *
 * Threads of a block must not see a log row that another has already replaced: turn_kernel reads the old
 * rows out and writes the new ones, thread by thread, before the scan. */
#include <utility>

#include "kernels/cuda/cuda_impl.cuh"

enum { CONV_THREADS = 128, MAX_CONV = 8, N_PART = 4 };

struct rows { /* where a scan finds token i of span n: logged ones in replay, new ones in x */
    const float *x, *replay;
    int64_t stride, replay_stride; /* of replay: a row; log_cap rows a span */
};

__device__ __forceinline__ const float *row_at(const rows &r, const dspan &s, int32_t span,
                                               int32_t log_cap, int32_t i) {
    if (i < s.n_replay) return r.replay + ((int64_t)span * log_cap + i) * r.replay_stride;
    return r.x + (int64_t)(s.row + i - s.n_replay) * r.stride;
}

__device__ __forceinline__ float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }
__device__ __forceinline__ float silu(float x) { return x / (1.0f + expf(-x)); }

/* ---- the log ---- */

enum { MAX_PARTS = 4 };
struct turn_job {
    const float *src[MAX_PARTS];
    int64_t stride[MAX_PARTS], n[MAX_PARTS];
    int32_t n_part;
    size_t log_at;
    int64_t n_row; /* floats of all parts */
};

__global__ void turn_kernel(dspans b, rec_view rec, turn_job j, float *replay) {
    launch_next();
    wait_previous();
    dspan s = b.spans[blockIdx.y];
    int32_t i = (int32_t)blockIdx.z;
    bool old = i < s.n_replay, fresh = s.n_commit == 0 && i < s.n_tok;
    if (!old && !fresh) return;
    float *log = rec.log + ((int64_t)s.slot * rec.log_cap + i) * (int64_t)rec.log_row + j.log_at;
    replay += ((int64_t)blockIdx.y * rec.log_cap + i) * j.n_row;
    int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, k = at;
    if (at >= j.n_row) return;
    if (old) replay[at] = log[at];
    if (!fresh) return;
    int p = 0;
    while (p + 1 < j.n_part && k >= j.n[p]) k -= j.n[p++];
    log[at] = j.src[p][(s.row + i) * j.stride[p] + k];
}

/* Copies of the logged rows; NULL where no span has any and none defers. */
static float *turn(struct cuda *c, const struct span *spans, const dspans &b,
                   const struct rec_view *rec, turn_job j) {
    int32_t n_row = 0;
    bool any = false;
    for (int32_t i = 0; i < b.n_span; i++) {
        int32_t n = spans[i].n_commit == 0 ? spans[i].n_tok : 0;
        n = spans[i].n_replay > n ? spans[i].n_replay : n;
        any |= n > 0;
        n_row = n > n_row ? n : n_row;
    }
    if (!any || !rec->log) return NULL;
    for (int p = 0; p < j.n_part; p++) j.n_row += j.n[p];
    float *replay =
        (float *)cuda_take(c, (size_t)b.n_span * (size_t)rec->log_cap * (size_t)j.n_row * 4);
    if (!replay) return NULL;
    launch(c, turn_kernel,
           dim3((unsigned)((j.n_row + 255) / 256), (unsigned)b.n_span, (unsigned)n_row), dim3(256),
           0, b, *rec, j, replay);
    return replay;
}

/* ---- convolution ---- */

struct conv_job {
    const float *x, *w, *b;
    int64_t x_stride, n_conv, out_stride;
    int32_t d_conv, silu;
    float *out, *replay_out; /* replay_out: rows of logged tokens, or NULL */
};

__global__ void conv_kernel(dspans b, rec_view rec, conv_job j) {
    launch_next();
    wait_previous();
    int64_t ch = (int64_t)blockIdx.x * CONV_THREADS + threadIdx.x;
    if (ch >= j.n_conv) return;
    dspan s = b.spans[blockIdx.y];
    int keep = j.d_conv - 1;
    float *state = rec.conv + (int64_t)s.slot * (int64_t)rec.conv_stride;
    float *log = rec.log + (int64_t)s.slot * rec.log_cap * (int64_t)rec.log_row;
    float old[MAX_CONV], w[MAX_CONV], bias = j.b ? j.b[ch] : 0.0f;
#pragma unroll
    for (int k = 0; k < MAX_CONV; k++) {
        w[k] = k < j.d_conv ? j.w[ch * j.d_conv + k] : 0.0f;
        old[k] = k < keep ? state[k * j.n_conv + ch] : 0.0f;
    }
    bool defer = s.n_commit == 0;
    for (int32_t i = 0; i < s.n_replay + s.n_tok; i++) {
        bool logged = i < s.n_replay;
        int64_t t = s.row + i - s.n_replay;
        if (i == s.n_replay && defer) {
#pragma unroll
            for (int k = 0; k < MAX_CONV; k++)
                if (k < keep) state[k * j.n_conv + ch] = old[k];
        }
        float in = logged ? log[i * (int64_t)rec.log_row + ch] : j.x[t * j.x_stride + ch];
        float sum = bias;
#pragma unroll
        for (int k = 0; k < MAX_CONV; k++)
            if (k < keep) sum += w[k] * old[k];
#pragma unroll
        for (int k = 0; k < MAX_CONV; k++)
            if (k == keep) sum += w[k] * in;
        float y = j.silu ? silu(sum) : sum;
        if (!logged) j.out[t * j.out_stride + ch] = y;
        else if (j.replay_out)
            j.replay_out[((int64_t)blockIdx.y * rec.log_cap + i) * j.n_conv + ch] = y;
#pragma unroll
        for (int k = 0; k + 1 < MAX_CONV; k++)
            if (k < keep) old[k] = k + 1 < keep ? old[k + 1] : in;
    }
    if (!defer) {
#pragma unroll
        for (int k = 0; k < MAX_CONV; k++)
            if (k < keep) state[k * j.n_conv + ch] = old[k];
    } else {
        for (int32_t i = 0; i < s.n_tok; i++)
            log[i * (int64_t)rec.log_row + ch] = j.x[(int64_t)(s.row + i) * j.x_stride + ch];
    }
}

static void convolve(struct cuda *c, const dspans &b, const struct rec_view &rec, conv_job j) {
    if (j.d_conv > MAX_CONV) {
        cuda_fail_with(c, CHIMERE_EUNSUPPORTED, "convolution wider than 8");
        return;
    }
    launch(c, conv_kernel,
           dim3((unsigned)((j.n_conv + CONV_THREADS - 1) / CONV_THREADS), (unsigned)b.n_span),
           dim3(CONV_THREADS), 0, b, rec, j);
}

void cuda_conv(struct dev *d, const struct conv_args *a) {
    struct cuda *c = (struct cuda *)d;
    dspans b;
    if (!cuda_begin(c) || !cuda_spans(c, a->spans, a->n_span, &b)) return;
    conv_job j = {a->x,      a->w,          a->b,      a->x_stride,
                  a->n_conv, a->out_stride, a->d_conv, (int32_t)a->silu,
                  a->out,    NULL};
    convolve(c, b, a->state, j);
}

/* ---- delta net ---- */

struct gdn_job {
    int32_t n_k_head, n_v_head, d_k, d_v;
    int32_t is_grouped, log_cap;
    float eps;
    rows mixed, alpha, beta; /* convolved [q | k | v] */
    const float *z, *a, *dt_bias, *norm_w;
    int64_t z_stride;
    float *s, *out;
    int64_t s_stride;
};

/* Thread 4 j + p of a block has column j, rows 4 i + p. */
template <int N, int THREADS>
__global__ void __launch_bounds__(THREADS) gdn_kernel(dspans b, gdn_job g) {
    DYNAMIC_SHARED(float, room); /* two buffers of [q | k], then 32 sums */
    int tid = (int)threadIdx.x, p = tid % N_PART, col = tid / N_PART, head = (int)blockIdx.x;
    dspan s = b.spans[blockIdx.y]; /* staged before the list: no kernel writes it */
    int d_k = g.d_k, d_v = g.d_v;
    bool has = col < d_v;
    float *state = g.s + s.slot * g.s_stride + (int64_t)head * d_k * d_v;
    float S[N], *sums = room + 4 * d_k;
#pragma unroll
    for (int i = 0; i < N; i++) {
        int row = N_PART * i + p;
        S[i] = has && row < d_k ? state[(int64_t)row * d_v + col] : 0.0f;
    }
    launch_next();
    wait_previous();
    int kh = g.is_grouped ? head / (g.n_v_head / g.n_k_head) : head % g.n_k_head;
    int64_t nq = (int64_t)g.n_k_head * d_k;
    int32_t n = s.n_replay + s.n_tok;
    float norm_w = has ? g.norm_w[col] : 0.0f, a = g.a[head], dt_bias = g.dt_bias[head];
    for (int32_t i = 0; i < n; i++) {
        float *qk = room + i % 2 * 2 * d_k;
        const float *x = row_at(g.mixed, s, (int32_t)blockIdx.y, g.log_cap, i);
        for (int e = tid; e < 2 * d_k; e += (int)blockDim.x)
            qk[e] = x[(e < d_k ? 0 : nq) + (int64_t)kh * d_k + e % d_k];
        float v = has ? x[2 * nq + (int64_t)head * d_v + col] : 0.0f;
        float decay = row_at(g.alpha, s, (int32_t)blockIdx.y, g.log_cap, i)[head] + dt_bias;
        float beta = row_at(g.beta, s, (int32_t)blockIdx.y, g.log_cap, i)[head];
        decay = expf(softplus(decay) * a);
        beta = 1.0f / (1.0f + expf(-beta));
        if (i == s.n_replay && s.n_commit == 0) {
#pragma unroll
            for (int r = 0; r < N; r++)
                if (has && N_PART * r + p < d_k)
                    state[(int64_t)(N_PART * r + p) * d_v + col] = S[r];
        }
        __syncthreads();
        float qq = 0, kk = 0, kept = 0;
#pragma unroll
        for (int r = 0; r < N; r++) {
            int row = N_PART * r + p;
            if (row >= d_k) continue;
            float q = qk[row], k = qk[d_k + row];
            qq += q * q;
            kk += k * k;
            kept += S[r] * k;
        }
        qq = lanes_sum(qq, N_PART);
        kk = lanes_sum(kk, N_PART);
        kept = lanes_sum(kept, N_PART);
        float kf = 1.0f / sqrtf(kk + g.eps), qf = 1.0f / sqrtf(((qq + g.eps) * (float)d_k));
        float delta = beta * (v - decay * (kept * kf)) * kf, o = 0;
#pragma unroll
        for (int r = 0; r < N; r++) {
            int row = N_PART * r + p;
            if (row >= d_k) continue;
            S[r] = decay * S[r] + qk[d_k + row] * delta;
            o += S[r] * qk[row];
        }
        o = lanes_sum(o, N_PART) * qf;
        if (i < s.n_replay) continue;
        float sq = has ? o * o : 0.0f; /* each column is counted N_PART times */
        float f = 1.0f / sqrtf(block_sum(sq, sums) / (float)(N_PART * d_v) + g.eps);
        int64_t t = s.row + i - s.n_replay;
        if (has && p == 0)
            g.out[(t * g.n_v_head + head) * d_v + col] =
                o * f * norm_w * silu(g.z[t * g.z_stride + (int64_t)head * d_v + col]);
    }
    if (s.n_commit == 0) return;
#pragma unroll
    for (int r = 0; r < N; r++)
        if (has && N_PART * r + p < d_k) state[(int64_t)(N_PART * r + p) * d_v + col] = S[r];
}

void cuda_gdn(struct dev *d, const struct gdn_args *a) {
    struct cuda *c = (struct cuda *)d;
    dspans b;
    if (!cuda_begin(c) || !cuda_spans(c, a->spans, a->n_span, &b)) return;
    int64_t n_conv = 2 * (int64_t)a->n_k_head * a->d_k + (int64_t)a->n_v_head * a->d_v;
    if (a->d_k > 256 || a->d_v > 256) {
        cuda_fail_with(c, CHIMERE_EUNSUPPORTED, "delta net with heads wider than 256");
        return;
    }
    turn_job turned = {{a->alpha, a->beta},
                       {a->n_v_head, a->n_v_head},
                       {a->n_v_head, a->n_v_head},
                       2,
                       (size_t)n_conv,
                       0};
    float *mixed = (float *)cuda_take(c, (size_t)a->n_tok * (size_t)n_conv * 4);
    float *ab = turn(c, a->spans, b, &a->state, turned), *again = NULL;
    int32_t cap = a->state.log_cap;
    if (ab) again = (float *)cuda_take(c, (size_t)b.n_span * (size_t)cap * (size_t)n_conv * 4);
    if (c->err.code) return;
    conv_job j = {a->qkv, a->conv_w, a->conv_b, a->qkv_stride, n_conv,
                  n_conv, a->d_conv, 1,         mixed,         again};
    convolve(c, b, a->state, j);
    gdn_job g = {};
    g.n_k_head = a->n_k_head, g.n_v_head = a->n_v_head, g.d_k = a->d_k, g.d_v = a->d_v;
    g.is_grouped = a->is_grouped;
    g.log_cap = cap;
    g.eps = a->eps;
    g.mixed = rows{mixed, again, n_conv, n_conv};
    g.alpha = rows{a->alpha, ab, a->n_v_head, 2 * a->n_v_head};
    g.beta = rows{a->beta, ab ? ab + a->n_v_head : NULL, a->n_v_head, 2 * a->n_v_head};
    g.z = a->z, g.a = a->a, g.dt_bias = a->dt_bias, g.norm_w = a->norm_w;
    g.z_stride = a->z_stride;
    g.s = a->state.s, g.s_stride = (int64_t)a->state.s_stride;
    g.out = a->out;
    dim3 grid((unsigned)a->n_v_head, (unsigned)b.n_span);
    dim3 block((unsigned)((a->d_v * N_PART + 31) / 32 * 32));
    size_t room = (size_t)(4 * a->d_k + 32) * 4;
    if (a->d_k <= 64) launch(c, gdn_kernel<16, 1024>, grid, block, room, b, g);
    else if (a->d_k <= 128 && a->d_v <= 128)
        launch(c, gdn_kernel<32, 512>, grid, block, room, b, g);
    else if (a->d_v <= 128) launch(c, gdn_kernel<64, 512>, grid, block, room, b, g);
    else launch(c, gdn_kernel<64, 1024>, grid, block, room, b, g);
}

/* ---- Mamba-2 ---- */

struct ssd_job {
    int32_t n_head, n_group, d_head, d_state, log_cap;
    rows xbc, dt;
    const float *a, *d, *dt_bias;
    float dt_min, dt_max;
    float *s, *out;
    int64_t s_stride;
};

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
#pragma unroll
    for (int k = 0; k < N; k++) {
        int at = N_PART * k + p;
        S[k] = has && at < n_state ? state[at] : 0.0f;
    }
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
        if (i == s.n_replay && s.n_commit == 0) {
#pragma unroll
            for (int k = 0; k < N; k++)
                if (has && N_PART * k + p < n_state) state[N_PART * k + p] = S[k];
        }
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
    if (s.n_commit == 0) return;
#pragma unroll
    for (int k = 0; k < N; k++)
        if (has && N_PART * k + p < n_state) state[N_PART * k + p] = S[k];
}

/* Gate and norm of part blockIdx.y of row blockIdx.x, in place. */
__global__ void gate_norm_kernel(float *y, const float *z, const float *w, int64_t n, int64_t part,
                                 int64_t z_stride, int32_t norm_first, float eps) {
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
        y[i] = z && norm_first ? v * silu(z[i]) : v;
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
    float *replay = turn(c, a->spans, b, &a->state, turned);
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
    if (a->d_state <= 64) launch(c, ssd_kernel<16, 1024>, grid, block, room, b, g);
    else if (a->d_head <= 128) launch(c, ssd_kernel<64, 512>, grid, block, room, b, g);
    else launch(c, ssd_kernel<64, 1024>, grid, block, room, b, g);
    if (!a->z && !a->norm_w) return;
    int64_t part = a->norm_w ? n_inner / a->n_norm : n_inner;
    launch(c, gate_norm_kernel, dim3((unsigned)a->n_tok, (unsigned)(n_inner / part)), dim3(256), 0,
           a->out, a->z, a->norm_w, n_inner, part, a->z_stride, (int32_t)a->norm_first, a->eps);
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
    float *r = turn(c, a->spans, b, &a->state, turned);
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
    if (a->d_state <= 16) launch(c, ssm_kernel<16>, grid, dim3(SSM_THREADS), 0, b, g);
    else launch(c, ssm_kernel<SSM_STATES>, grid, dim3(SSM_THREADS), 0, b, g);
}

/* Rows of logged tokens of every sequence that can be drafted for, and of a batch. */
size_t cuda_recurrent_scratch(const struct dev_need *n) {
    size_t row =
        (size_t)n->n_conv + (size_t)n->n_v_head * 2 + 2 * (size_t)n->n_v_head * (size_t)n->d_rec_v;
    size_t n_log = (size_t)(n->n_tok < 64 ? n->n_tok : 64) * STEP_MAX_TOK;
    return ((size_t)n->n_tok + 2 * n_log) * row * 4 + 16 * 256;
}
