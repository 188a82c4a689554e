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

/* The same without a log, every token at once. */
__global__ void conv_many_kernel(dspans b, rec_view rec, conv_job j) {
    launch_next();
    wait_previous();
    int64_t ch = (int64_t)blockIdx.x * CONV_THREADS + threadIdx.x, t = blockIdx.y;
    if (ch >= j.n_conv) return;
    dspan s = b.spans[b.of_row[t]];
    int keep = j.d_conv - 1;
    const float *state = rec.conv + (int64_t)s.slot * (int64_t)rec.conv_stride;
    float sum = j.b ? j.b[ch] : 0.0f;
    for (int k = 0; k < j.d_conv; k++) {
        int64_t i = t - s.row - keep + k; /* position in the span */
        float x = i < 0 ? state[(i + keep) * j.n_conv + ch] : j.x[(s.row + i) * j.x_stride + ch];
        sum += j.w[ch * j.d_conv + k] * x;
    }
    j.out[t * j.out_stride + ch] = j.silu ? silu(sum) : sum;
}

__global__ void conv_state_kernel(dspans b, rec_view rec, conv_job j) {
    wait_previous();
    int64_t ch = (int64_t)blockIdx.x * CONV_THREADS + threadIdx.x;
    if (ch >= j.n_conv) return;
    dspan s = b.spans[blockIdx.y];
    int keep = j.d_conv - 1;
    float *state = rec.conv + (int64_t)s.slot * (int64_t)rec.conv_stride, now[MAX_CONV];
    for (int k = 0; k < keep; k++) {
        int64_t i = (int64_t)s.n_tok - keep + k;
        now[k] = i < 0 ? state[(i + keep) * j.n_conv + ch] : j.x[(s.row + i) * j.x_stride + ch];
    }
    for (int k = 0; k < keep; k++) state[k * j.n_conv + ch] = now[k];
}

/* Whether a batch goes the way of many tokens: nothing logged, nothing deferred. */
static bool is_many(const struct span *spans, int32_t n_span) {
    bool many = false;
    for (int32_t i = 0; i < n_span; i++) {
        if (spans[i].n_replay || !spans[i].n_commit) return false;
        many |= spans[i].n_tok > STEP_MAX_TOK;
    }
    return many;
}

static void convolve_many(struct cuda *c, const dspans &b, const struct rec_view &rec,
                          const conv_job &j) {
    unsigned n = (unsigned)((j.n_conv + CONV_THREADS - 1) / CONV_THREADS);
    launch(c, conv_many_kernel, dim3(n, (unsigned)b.n_tok), dim3(CONV_THREADS), 0, b, rec, j);
    launch(c, conv_state_kernel, dim3(n, (unsigned)b.n_span), dim3(CONV_THREADS), 0, b, rec, j);
}

void cuda_conv(struct dev *d, const struct conv_args *a) {
    struct cuda *c = (struct cuda *)d;
    dspans b;
    if (!cuda_begin(c) || !cuda_spans(c, a->spans, a->n_span, &b)) return;
    conv_job j = {a->x,      a->w,          a->b,      a->x_stride,
                  a->n_conv, a->out_stride, a->d_conv, (int32_t)a->silu,
                  a->out,    NULL};
    cuda_wrote(c, a->out, (size_t)a->n_tok * (size_t)a->out_stride * 4);
    if (is_many(a->spans, a->n_span) && a->d_conv <= MAX_CONV) convolve_many(c, b, a->state, j);
    else convolve(c, b, a->state, j);
}

/* ---- delta net ---- */

struct gdn_job {
    int32_t n_k_head, n_v_head, d_k, d_v;
    int32_t is_grouped, log_cap;
    float eps;
    int32_t unused;
    rows mixed, alpha, beta; /* convolved [q | k | v] */
    const float *z, *a, *dt_bias, *norm_w;
    int64_t z_stride;
    float *s, *out;
    int64_t s_stride;
    act8 out8; /* q NULL: none */
};

/* Thread 4 j + p of a block has column j, rows 4 i + p. */
template <int N, int THREADS>
__global__ void __launch_bounds__(THREADS) gdn_kernel(dspans b, gdn_job g) {
    DYNAMIC_SHARED(float, room); /* two buffers of [q | k], then 32 sums, then a row of out */
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
        float y = has ? o * f * norm_w * silu(g.z[t * g.z_stride + (int64_t)head * d_v + col]) : 0;
        if (has && p == 0) g.out[(t * g.n_v_head + head) * d_v + col] = y;
        if (!g.out8.q) continue;
        float *line = sums + 32;
        if (has && p == 0) line[col] = y;
        __syncthreads();
        if (tid < d_v) act8_put(g.out8, (t * g.n_v_head + head) * (d_v / 32) + tid / 32, line[tid]);
    }
    if (s.n_commit == 0) return;
#pragma unroll
    for (int r = 0; r < N; r++)
        if (has && N_PART * r + p < d_k) state[(int64_t)(N_PART * r + p) * d_v + col] = S[r];
}

/* ---- delta net, many tokens ---- */

/* Columns of the state do not meet: a block has COLS of a head, so that all multiprocessors work, and
 * nothing waits for anything but the state itself. What depends on a token alone is made first, for all
 * tokens at once: convolution, norms of q and k, decay and beta. The state goes through the same
 * operations in the same order as in gdn_kernel, and so do outputs. */
enum { SCAN_COLS = 32, SCAN_THREADS = SCAN_COLS * N_PART, SCAN_TILE = 8, SCAN_ROWS = 128 };

/* factors[t, head]: of k, of q, decay, beta. A warp has 4 heads of a token, 8 lanes each: q, then k. */
__global__ void gdn_factors_kernel(gdn_job g, int64_t n, float4 *factors) {
    launch_next();
    wait_previous();
    int lane = (int)threadIdx.x % 32, p = lane % N_PART, is_k = lane / N_PART % 2;
    int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 8;
    bool has = at < n;
    int64_t t = has ? at / g.n_v_head : 0;
    int head = has ? (int)(at % g.n_v_head) : 0;
    int kh = g.is_grouped ? head / (g.n_v_head / g.n_k_head) : head % g.n_k_head;
    const float *x = g.mixed.x + t * g.mixed.stride + (is_k ? (int64_t)g.n_k_head * g.d_k : 0) +
                     (int64_t)kh * g.d_k;
    float sum = 0;
    for (int row = p; row < g.d_k; row += N_PART) sum += x[row] * x[row];
    sum = lanes_sum(sum, N_PART);
    float kk = __shfl_sync(0xffffffffu, sum, lane / 8 * 8 + N_PART);
    if (!has || lane % 8) return;
    float decay = g.alpha.x[t * g.alpha.stride + head] + g.dt_bias[head];
    float beta = g.beta.x[t * g.beta.stride + head];
    factors[at] = make_float4(1.0f / sqrtf(kk + g.eps), 1.0f / sqrtf((sum + g.eps) * (float)g.d_k),
                              expf(softplus(decay) * g.a[head]), 1.0f / (1.0f + expf(-beta)));
}

/* Block (head, part of its columns, span). d_k at most SCAN_ROWS. */
__global__ void __launch_bounds__(SCAN_THREADS)
    gdn_scan_kernel(dspans b, gdn_job g, const float4 *factors) {
    constexpr int R = SCAN_ROWS / N_PART, STRIDE = R + 4; /* rows of a part; parts in other banks */
    __shared__ __align__(16) float q[2][SCAN_TILE][N_PART * STRIDE],
        k[2][SCAN_TILE][N_PART * STRIDE];
    __shared__ float v[2][SCAN_TILE][SCAN_COLS];
    __shared__ __align__(16) float4 f[2][SCAN_TILE];
    int tid = (int)threadIdx.x, p = tid % N_PART, mine = tid / N_PART, head = (int)blockIdx.x;
    int col = (int)blockIdx.y * SCAN_COLS + mine, d_k = g.d_k, d_v = g.d_v;
    dspan s = b.spans[blockIdx.z];
    bool has = col < d_v;
    float *state = g.s + s.slot * g.s_stride + (int64_t)head * d_k * d_v;
    float S[R];
#pragma unroll
    for (int i = 0; i < R; i++) {
        int row = N_PART * i + p;
        S[i] = has && row < d_k ? state[(int64_t)row * d_v + col] : 0.0f;
    }
    launch_next();
    wait_previous();
    int kh = g.is_grouped ? head / (g.n_v_head / g.n_k_head) : head % g.n_k_head;
    int64_t nq = (int64_t)g.n_k_head * d_k;
    float next_q[SCAN_TILE], next_k[SCAN_TILE], next_v[SCAN_TILE / 4];
    float4 next_f = make_float4(0, 0, 0, 0);
    auto fetch = [&](int32_t first) {
#pragma unroll
        for (int i = 0; i < SCAN_TILE; i++) {
            bool is = first + i < s.n_tok && tid < d_k;
            const float *x = g.mixed.x + (int64_t)(s.row + first + i) * g.mixed.stride;
            next_q[i] = is ? x[(int64_t)kh * d_k + tid] : 0.0f;
            next_k[i] = is ? x[nq + (int64_t)kh * d_k + tid] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < SCAN_TILE / 4; i++) {
            int32_t t = first + 4 * i + tid / SCAN_COLS;
            int c = (int)blockIdx.y * SCAN_COLS + tid % SCAN_COLS;
            next_v[i] = t < s.n_tok && c < d_v ? g.mixed.x[(int64_t)(s.row + t) * g.mixed.stride +
                                                           2 * nq + (int64_t)head * d_v + c]
                                               : 0.0f;
        }
        if (tid < SCAN_TILE && first + tid < s.n_tok)
            next_f = factors[(int64_t)(s.row + first + tid) * g.n_v_head + head];
    };
    auto keep = [&](int at) {
        int place = tid % N_PART * STRIDE + tid / N_PART;
#pragma unroll
        for (int i = 0; i < SCAN_TILE; i++) {
            if (tid < SCAN_ROWS) q[at][i][place] = next_q[i], k[at][i][place] = next_k[i];
        }
#pragma unroll
        for (int i = 0; i < SCAN_TILE / 4; i++)
            v[at][4 * i + tid / SCAN_COLS][tid % SCAN_COLS] = next_v[i];
        if (tid < SCAN_TILE) f[at][tid] = next_f;
    };
    fetch(0);
    keep(0);
    __syncthreads();
    for (int32_t first = 0, at = 0; first < s.n_tok; first += SCAN_TILE, at ^= 1) {
        if (first + SCAN_TILE < s.n_tok) fetch(first + SCAN_TILE);
        for (int32_t i = 0; i < SCAN_TILE && first + i < s.n_tok; i++) {
            const float4 *kr = (const float4 *)&k[at][i][p * STRIDE];
            const float4 *qr = (const float4 *)&q[at][i][p * STRIDE];
            float4 factor = f[at][i];
            float kept = 0, o = 0;
#pragma unroll
            for (int r = 0; r < R / 4; r++) {
                float4 x = kr[r];
                kept += S[4 * r] * x.x;
                kept += S[4 * r + 1] * x.y;
                kept += S[4 * r + 2] * x.z;
                kept += S[4 * r + 3] * x.w;
            }
            kept = lanes_sum(kept, N_PART);
            float decay = factor.z;
            float delta = factor.w * (v[at][i][mine] - decay * (kept * factor.x)) * factor.x;
#pragma unroll
            for (int r = 0; r < R / 4; r++) {
                float4 x = kr[r], y = qr[r];
                S[4 * r] = decay * S[4 * r] + x.x * delta;
                o += S[4 * r] * y.x;
                S[4 * r + 1] = decay * S[4 * r + 1] + x.y * delta;
                o += S[4 * r + 1] * y.y;
                S[4 * r + 2] = decay * S[4 * r + 2] + x.z * delta;
                o += S[4 * r + 2] * y.z;
                S[4 * r + 3] = decay * S[4 * r + 3] + x.w * delta;
                o += S[4 * r + 3] * y.w;
            }
            o = lanes_sum(o, N_PART) * factor.y;
            if (has && p == 0)
                g.out[((int64_t)(s.row + first + i) * g.n_v_head + head) * d_v + col] = o;
        }
        if (first + SCAN_TILE < s.n_tok) keep(at ^ 1);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < R; i++)
        if (has && N_PART * i + p < d_k) state[(int64_t)(N_PART * i + p) * d_v + col] = S[i];
}

/* out = rms_norm(out) * silu(z), block (head, token), threads and sums as in gdn_kernel. */
__global__ void gdn_norm_kernel(gdn_job g) {
    __shared__ float sums[32];
    launch_next();
    wait_previous();
    int tid = (int)threadIdx.x, col = tid / N_PART, head = (int)blockIdx.x;
    int64_t t = blockIdx.y;
    bool has = col < g.d_v;
    float *out = g.out + (t * g.n_v_head + head) * g.d_v;
    float o = has ? out[col] : 0.0f;
    float f = 1.0f / sqrtf(block_sum(o * o, sums) / (float)(N_PART * g.d_v) + g.eps);
    if (has && tid % N_PART == 0)
        out[col] = o * f * g.norm_w[col] * silu(g.z[t * g.z_stride + (int64_t)head * g.d_v + col]);
}

static void gdn_many(struct cuda *c, const dspans &b, const gdn_job &g) {
    int64_t n = (int64_t)b.n_tok * g.n_v_head;
    float4 *factors = (float4 *)cuda_take(c, (size_t)n * sizeof *factors);
    if (!factors) return;
    launch(c, gdn_factors_kernel, dim3((unsigned)((n * 8 + 255) / 256)), dim3(256), 0, g, n,
           factors);
    launch(c, gdn_scan_kernel,
           dim3((unsigned)g.n_v_head, (unsigned)((g.d_v + SCAN_COLS - 1) / SCAN_COLS),
                (unsigned)b.n_span),
           dim3(SCAN_THREADS), 0, b, g, factors);
    launch(c, gdn_norm_kernel, dim3((unsigned)g.n_v_head, (unsigned)b.n_tok),
           dim3((unsigned)((g.d_v * N_PART + 31) / 32 * 32)), 0, g);
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
    bool many = is_many(a->spans, a->n_span) && a->d_k <= SCAN_ROWS;
    if (many) convolve_many(c, b, a->state, j);
    else convolve(c, b, a->state, j);
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
    if (many) {
        cuda_wrote(c, a->out, (size_t)a->n_tok * (size_t)(a->n_v_head * a->d_v) * 4);
        gdn_many(c, b, g);
        return;
    }
    dim3 grid((unsigned)a->n_v_head, (unsigned)b.n_span);
    dim3 block((unsigned)((a->d_v * N_PART + 31) / 32 * 32));
    size_t room = (size_t)(4 * a->d_k + 32 + a->d_v) * 4;
    int64_t n_out = (int64_t)a->n_v_head * a->d_v;
    cuda_wrote(c, a->out, (size_t)(a->n_tok * n_out) * 4);
    if (a->d_v % 32 == 0) g.out8 = cuda_shadow_new(c, a->out, a->n_tok, n_out);
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
    cuda_wrote(c, a->out, (size_t)(a->n_tok * n) * 4);
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
