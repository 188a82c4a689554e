/* recurrent.cu: the log of drafted tokens, convolution, delta net.
 *
 * A block owns a head of one sequence (at prefill 32 of its columns), keeps their state in registers and takes the
 * tokens one after the other, logged ones first. So a token's bits do not depend on how many come with it.
 * Roofline at decode: the state, read and written once, 4 MB a layer of a 35B model; the reads
 * are in flight before the wait, since no kernel of the step writes them. At prefill a token costs about
 * 300 cycles a layer, all heads at once.
 *
 * Threads of a block must not see a log row that another has already replaced: turn_kernel reads the old
 * rows out and writes the new ones, thread by thread, before the scan. */
#include <utility>

#include "kernels/cuda/recurrent.cuh"

enum { CONV_THREADS = 128, MAX_CONV = 8 };

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

float *cuda_turn(struct cuda *c, const struct span *spans, const dspans &b,
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

__global__ void conv_kernel(dspans b, rec_view rec, conv_job j) {
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
    launch_next();
    wait_previous();
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
            if (k < keep) sum = fmaf(w[k], old[k], sum);
#pragma unroll
        for (int k = 0; k < MAX_CONV; k++)
            if (k == keep) sum = fmaf(w[k], in, sum);
        float y = j.silu ? silu(sum) : sum;
        if (!logged) j.out[t * j.out_stride + ch] = y;
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

static void convolve(struct cuda *c, const dspans &b, const struct rec_view &rec,
                     const conv_job &j) {
    launch(c, conv_kernel,
           dim3((unsigned)((j.n_conv + CONV_THREADS - 1) / CONV_THREADS), (unsigned)b.n_span),
           dim3(CONV_THREADS), 0, b, rec, j);
}

/* The same without a log: a thread has CONV_TOKS tokens of a channel and slides over them. */
enum { CONV_TOKS = 8 };
__global__ void conv_many_kernel(dspans b, rec_view rec, conv_job j) {
    launch_next();
    wait_previous();
    int64_t ch = (int64_t)blockIdx.x * CONV_THREADS + threadIdx.x;
    int32_t t0 = (int32_t)blockIdx.y * CONV_TOKS, n = b.n_tok - t0, of = -1;
    if (ch >= j.n_conv) return;
    int keep = j.d_conv - 1;
    float old[MAX_CONV], w[MAX_CONV], bias = j.b ? j.b[ch] : 0.0f;
#pragma unroll
    for (int k = 0; k < MAX_CONV; k++) w[k] = k <= keep ? j.w[ch * j.d_conv + k] : 0.0f;
    for (int32_t t = t0; t < t0 + (n < CONV_TOKS ? n : CONV_TOKS); t++) {
        if (b.of_row[t] != of) { /* another span: what lies before this token in it */
            of = b.of_row[t];
            dspan s = b.spans[of];
            const float *state = rec.conv + (int64_t)s.slot * (int64_t)rec.conv_stride;
#pragma unroll
            for (int k = 0; k < MAX_CONV; k++) {
                int32_t i = t - s.row - keep + k; /* position in the span */
                old[k] = 0.0f;
                if (k < keep)
                    old[k] = i < 0 ? state[(i + keep) * j.n_conv + ch]
                                   : j.x[(int64_t)(s.row + i) * j.x_stride + ch];
            }
        }
        float in = j.x[t * j.x_stride + ch], sum = bias;
#pragma unroll
        for (int k = 0; k < MAX_CONV; k++)
            if (k <= keep) sum += w[k] * (k < keep ? old[k] : in);
        j.out[t * j.out_stride + ch] = j.silu ? silu(sum) : sum;
#pragma unroll
        for (int k = 0; k + 1 < MAX_CONV; k++)
            if (k < keep) old[k] = k + 1 < keep ? old[k + 1] : in;
    }
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

/* One token of each sequence, nothing logged, nothing deferred: what decoding is. */
static bool is_single(const struct span *spans, int32_t n_span) {
    bool single = true;
    for (int32_t i = 0; i < n_span; i++)
        single &= spans[i].n_tok == 1 && spans[i].n_replay == 0 && spans[i].n_commit != 0;
    return single;
}

bool cuda_is_many(const struct span *spans, int32_t n_span) {
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
    launch(c, conv_many_kernel, dim3(n, (unsigned)((b.n_tok + CONV_TOKS - 1) / CONV_TOKS)),
           dim3(CONV_THREADS), 0, b, rec, j);
    launch(c, conv_state_kernel, dim3(n, (unsigned)b.n_span), dim3(CONV_THREADS), 0, b, rec, j);
}

void cuda_conv(struct dev *d, const struct conv_args *a) {
    struct cuda *c = (struct cuda *)d;
    dspans b;
    if (!cuda_begin(c) || !cuda_spans(c, a->spans, a->n_span, &b)) return;
    conv_job j = {a->x,      a->w,          a->b,      a->x_stride,
                  a->n_conv, a->out_stride, a->d_conv, (int32_t)a->silu,
                  a->out};
    if (a->d_conv > MAX_CONV) {
        cuda_fail_with(c, CHIMERE_EUNSUPPORTED, "convolution wider than 8");
        return;
    }
    cuda_wrote(c, a->out, (size_t)a->n_tok * (size_t)a->out_stride * 4);
    if (cuda_is_many(a->spans, a->n_span)) convolve_many(c, b, a->state, j);
    else if (is_single(a->spans, a->n_span)) c->conv = pending_conv{j, b, a->spans, a->state};
    else convolve(c, b, a->state, j);
}

void cuda_conv_now(struct cuda *c) {
    pending_conv v = c->conv;
    c->conv.j.x = NULL;
    if (!v.j.x || c->err.code) return;
    enum cuda_op op = c->op;
    c->op = OP_conv;
    convolve(c, v.b, v.rec, v.j);
    c->op = op;
}

/* ---- delta net ---- */

struct gdn_job {
    int32_t n_k_head, n_v_head, n_rep, d_k, d_v; /* n_rep: value heads of a key head */
    int32_t is_grouped, log_cap;
    float eps;
    int32_t d_conv, unused;
    rows mixed, alpha, beta; /* [q | k | v]: convolved (many tokens), or to be (few) */
    const float *z, *a, *dt_bias, *norm_w;
    int64_t z_stride;
    float *s, *out;
    int64_t s_stride;
    /* few tokens: */
    const float *conv_w, *conv_b;
    uint32_t *arrived; /* [n_span, n_k_head], zeros */
    act8 out8;         /* q NULL: none */
};

/* Few tokens: a block has a head of a span, 128 of its columns at a time. Thread 128 p + j has column j, rows N p + i:
 * its warp shares its rows, so that k and q are read by all lanes at once. */
enum { STEP_COLS = 128, STEP_THREADS = STEP_COLS * N_PART, STEP_DIM = 128 };

/* Input i of a channel, counted from the state's first: kept ones, then logged ones, then new ones. */
__device__ __forceinline__ float conv_input(const rec_view &rec, const rows &x, const dspan &s,
                                            int32_t keep, int64_t n_conv, int64_t ch, int32_t i) {
    if (i < keep) return rec.conv[s.slot * (int64_t)rec.conv_stride + i * n_conv + ch];
    i -= keep;
    if (i < s.n_replay)
        return rec.log[((int64_t)s.slot * rec.log_cap + i) * (int64_t)rec.log_row + ch];
    return x.x[(int64_t)(s.row + i - s.n_replay) * x.stride + ch];
}

/* What the convolution of a channel keeps, and new inputs where they are deferred to the log. */
__device__ __forceinline__ void conv_keep(const rec_view &rec, const rows &x, const dspan &s,
                                          int32_t keep, int64_t n_conv, int64_t ch) {
    int32_t from = s.n_replay + (s.n_commit ? s.n_tok : 0);
    float now[MAX_CONV];
#pragma unroll
    for (int k = 0; k < MAX_CONV; k++)
        if (k < keep) now[k] = conv_input(rec, x, s, keep, n_conv, ch, from + k);
#pragma unroll
    for (int k = 0; k < MAX_CONV; k++)
        if (k < keep) rec.conv[s.slot * (int64_t)rec.conv_stride + k * n_conv + ch] = now[k];
    for (int32_t i = 0; s.n_commit == 0 && i < s.n_tok; i++)
        rec.log[((int64_t)s.slot * rec.log_cap + i) * (int64_t)rec.log_row + ch] =
            x.x[(int64_t)(s.row + i) * x.stride + ch];
}

/* silu(z) times the norm's weight, of four columns. */
__device__ __forceinline__ float4 norm_gate(float4 z, float4 w) {
    return make_float4(silu(z.x) * w.x, silu(z.y) * w.y, silu(z.z) * w.z, silu(z.w) * w.w);
}

/* A warp norms and gates a row of W times 128 columns, and rounds it; `to` is its place in out. */
template <int W>
__device__ __forceinline__ void norm_row(const gdn_job &g, int64_t to, int d_v, const float4 *o,
                                         const float4 *gate) {
    int lane = (int)threadIdx.x % 32;
    float sum = 0;
#pragma unroll
    for (int k = 0; k < W; k++) {
        sum = fmaf(o[k].x, o[k].x, sum), sum = fmaf(o[k].y, o[k].y, sum);
        sum = fmaf(o[k].z, o[k].z, sum), sum = fmaf(o[k].w, o[k].w, sum);
    }
    float f = rsqrtf(lanes_sum(sum, 32) / (float)d_v + g.eps);
#pragma unroll
    for (int k = 0; k < W; k++) {
        int quad = lane + 32 * k;
        if (128 * k >= d_v) break;
        float4 y = make_float4(o[k].x * (f * gate[k].x), o[k].y * (f * gate[k].y),
                               o[k].z * (f * gate[k].z), o[k].w * (f * gate[k].w));
        four_put(g.out + to, 4 * quad, d_v, y);
        if (g.out8.q) act8_put4(g.out8, to / 4 + quad, y, 4 * quad < d_v);
    }
}

/* The same of the new tokens of a span, written down before: up to 256 columns, a warp a row. */
__device__ __forceinline__ void norm_rows(const gdn_job &g, const dspan &s, int head) {
    constexpr int W = 2;
    int lane = (int)threadIdx.x % 32, d_v = g.d_v;
    for (int32_t i = (int)threadIdx.x / 32; i < s.n_tok; i += STEP_THREADS / 32) {
        int64_t to = ((int64_t)(s.row + i) * g.n_v_head + head) * d_v;
        const float *z = g.z + (s.row + i) * g.z_stride + (int64_t)head * d_v;
        float4 o[W], gates[W];
#pragma unroll
        for (int k = 0; k < W; k++) {
            int at = 4 * (lane + 32 * k);
            o[k] = four_at(g.out + to, at, d_v);
            gates[k] = norm_gate(four_at(z, at, d_v), four_at(g.norm_w, at, d_v));
        }
        norm_row<W>(g, to, d_v, o, gates);
    }
}

/* A line: q, k of ROWS rows, v of the columns from col0 on. */
template <int ROWS, bool QUICK> struct step_line {
    int d_k, d_v, nq, kh, head, col0;

    __device__ __forceinline__ int channel(int e) const { /* of place e; -1: none */
        if (e < 0 || e >= 2 * ROWS + STEP_COLS) return -1;
        if (e >= 2 * ROWS) {
            e -= 2 * ROWS;
            return QUICK || col0 + e < d_v ? 2 * nq + head * d_v + col0 + e : -1;
        }
        int row = e < ROWS ? e : e - ROWS;
        return QUICK || row < d_k ? (e < ROWS ? 0 : nq) + kh * d_k + row : -1;
    }
};

/* Asks for what a step reads beside its state: w_line, kept_line, the norm's weights into gates. */
template <class Line, int L>
__device__ __forceinline__ void step_copies(const gdn_job &g, const Line &of, const float *kept,
                                            int n_conv, float4 *w_line, float (*kept_line)[L],
                                            float4 *gates) {
    int tid = (int)threadIdx.x;
    if (tid < L) copy_async16(&w_line[tid], g.conv_w + of.channel(tid) * 4, true);
    if (tid < 3 * (L / 4)) {
        int k = tid / (L / 4), e = tid % (L / 4) * 4;
        copy_async16(&kept_line[k][e], kept + k * n_conv + of.channel(e), true);
    }
    int q = tid - (STEP_THREADS - 32);
    if (q >= 0) copy_async16(&gates[q], g.norm_w + 4 * q, true);
    copy_commit();
}

/* A thread's rows of its column, of the head's state. */
template <int N, bool QUICK>
__device__ __forceinline__ void step_load(float (&S)[N], const float *state, int col0, int d_k,
                                          int d_v) {
    int p = (int)threadIdx.x / STEP_COLS, col = col0 + (int)threadIdx.x % STEP_COLS;
    int own = N * p * d_v + col, stride = QUICK ? d_v : unknown(d_v);
    int n_row = QUICK ? N : unknown(col < d_v ? d_k - N * p : 0);
#pragma unroll
    for (int i = 0; i < N; i++) {
        int at = QUICK ? own + i * stride : unknown(own + i * stride);
        S[i] = QUICK || i < n_row ? state[at] : 0.0f;
    }
}
template <int N, bool QUICK>
__device__ __forceinline__ void step_store(const float (&S)[N], float *state, int col0, int d_k,
                                           int d_v) {
    int tid = unknown((int)threadIdx.x), p = tid / STEP_COLS, col = col0 + tid % STEP_COLS;
    int stride = QUICK ? d_v : unknown(d_v), n_row = QUICK ? N : col < d_v ? d_k - N * p : 0;
    int own = N * p * d_v + col;
#pragma unroll
    for (int i = 0; i < N; i++) {
        int at = QUICK ? own + i * stride : unknown(own + i * stride);
        if (QUICK || i < n_row) state[at] = S[i];
    }
}

/* Decay and beta of a token; a, dt_bias: the head's, if QUICK. */
template <bool QUICK>
__device__ __forceinline__ float2 step_factors(const gdn_job &g, const dspan &s, int head,
                                               int32_t i, float a, float dt_bias) {
    float alpha, beta;
    if constexpr (QUICK) {
        alpha = g.alpha.x[s.row * (int)g.alpha.stride + head];
        beta = g.beta.x[s.row * (int)g.beta.stride + head];
    } else {
        a = g.a[head], dt_bias = g.dt_bias[head];
        alpha = row_at(g.alpha, s, (int)blockIdx.y, g.log_cap, i)[head];
        beta = row_at(g.beta, s, (int)blockIdx.y, g.log_cap, i)[head];
    }
    return make_float2(quick_exp(softplus(alpha + dt_bias) * a), logistic(beta));
}

/* Convolution of a channel at one token. kept: its inputs before, [TAPS - 1][LINE], which move on by one. w4: its
 * weights, if QUICK. */
template <bool QUICK, int TAPS, int LINE>
__device__ __forceinline__ float step_conv(const gdn_job &g, int ch, float4 w4, float *kept,
                                           float in) {
    int keep = QUICK ? TAPS - 1 : g.d_conv - 1;
    float sum = g.conv_b ? g.conv_b[ch] : 0.0f, old[TAPS]; /* and the new one */
    const float w[4] = {w4.x, w4.y, w4.z, w4.w}, *more = g.conv_w + ch * g.d_conv;
#pragma unroll
    for (int k = 0; k < TAPS; k++)
        if (k <= keep) old[k] = k < keep ? kept[k % (TAPS - 1) * LINE] : in;
#pragma unroll
    for (int k = 0; k < TAPS; k++)
        if (k <= keep) sum = fmaf(QUICK ? w[k % 4] : more[k], old[k], sum);
#pragma unroll
    for (int k = 0; k < TAPS - 1; k++)
        if (k < keep) kept[k * LINE] = old[k + 1];
    return silu(sum);
}

/* A thread's parts of S^T k and S^T q, and its warp's part of one of the dots q q, k k, q k. now: q and k. */
template <int N>
__device__ __forceinline__ void step_parts(const float (&S)[N], const float *now, int p, int which,
                                           float2 *parts, float *dots) {
    constexpr int ROWS = N_PART * N;
    const float4 *q4 = (const float4 *)(now + N * p), *k4 = q4 + ROWS / 4;
    int lane = (int)threadIdx.x % 32;
    float2 part = make_float2(0, 0);
    float dot = 0;
#pragma unroll
    for (int r = 0; r < N / 32; r++) {
        int at = N * p + 32 * r + lane;
        dot = fmaf(now[at + (which == 1 ? ROWS : 0)], now[at + (which == 0 ? 0 : ROWS)], dot);
    }
    dot = lanes_sum(dot, 32);
#pragma unroll
    for (int r = 0; r < N / 4; r++) {
        float4 k = k4[r], q = q4[r];
        part.x = fmaf(S[4 * r], k.x, part.x), part.y = fmaf(S[4 * r], q.x, part.y);
        part.x = fmaf(S[4 * r + 1], k.y, part.x), part.y = fmaf(S[4 * r + 1], q.y, part.y);
        part.x = fmaf(S[4 * r + 2], k.z, part.x), part.y = fmaf(S[4 * r + 2], q.z, part.y);
        part.x = fmaf(S[4 * r + 3], k.w, part.x), part.y = fmaf(S[4 * r + 3], q.w, part.y);
    }
    *parts = part;
    if (lane == 0) dots[which] = dot;
}

/* (decay S + k delta)^T q of a column, without waiting for the new S; factors: decay, beta. */
__device__ __forceinline__ float step_out(float eps, int d_k, const float2 (*parts)[STEP_COLS],
                                          const float (*dots)[4], float2 factors, int col, float v,
                                          float *delta) {
    static_assert(N_PART == 4, "four parts are added by name");
    float2 x0 = parts[0][col], x1 = parts[1][col], x2 = parts[2][col], x3 = parts[3][col];
    const float4 *d4 = (const float4 *)&dots[0][0];
    float4 d0 = d4[0], d1 = d4[1], d2 = d4[2], d3 = d4[3];
    float qq = (d0.x + d1.x) + (d2.x + d3.x), kk = (d0.y + d1.y) + (d2.y + d3.y);
    float qk = (d0.z + d1.z) + (d2.z + d3.z);
    float kept = (x0.x + x1.x) + (x2.x + x3.x), seen = (x0.y + x1.y) + (x2.y + x3.y);
    float kf = rsqrtf(kk + eps), qf = rsqrtf((qq + eps) * (float)d_k);
    *delta = factors.y * kf * fmaf(-factors.x, kept * kf, v);
    return fmaf(*delta, qk, factors.x * seen) * qf;
}

/* S = decay S + k delta; k: of the thread's rows */
template <int N>
__device__ __forceinline__ void step_update(float (&S)[N], const float *k, float decay,
                                            float delta) {
    const float4 *k4 = (const float4 *)k;
#pragma unroll
    for (int r = 0; r < N / 4; r++) {
        float4 x = k4[r];
        S[4 * r] = fmaf(x.x, delta, decay * S[4 * r]);
        S[4 * r + 1] = fmaf(x.y, delta, decay * S[4 * r + 1]);
        S[4 * r + 2] = fmaf(x.z, delta, decay * S[4 * r + 2]);
        S[4 * r + 3] = fmaf(x.w, delta, decay * S[4 * r + 3]);
    }
}

/* Convolution, delta rule, norm and gate of a few tokens; block (head, span). State, weights and what the
 * convolution kept are read before the wait: no kernel of the list writes them but this one. Heads that share a
 * key head each make its q and k, so what is kept of those is written by the last of them that has read it.
 * QUICK: heads of 128 x 128, a convolution of 4, spans of one token, none logged or deferred. Both kinds add in
 * the same order. N: rows of a thread. */
template <int N, bool QUICK>
__global__ void __launch_bounds__(STEP_THREADS, QUICK ? 2 : 1)
    gdn_step_kernel(dspans b, rec_view rec, gdn_job g) {
    constexpr int ROWS = N_PART * N,
                  LINE = 2 * ROWS + STEP_COLS; /* q, k, v: zeros beyond the head */
    constexpr int TAPS = QUICK ? 4 : MAX_CONV, C = (LINE + STEP_THREADS - 1) / STEP_THREADS;
    /* warps that convolve nothing make gates and factors, where there are any */
    constexpr int FIRST = STEP_THREADS * C - LINE < 128 ? STEP_THREADS * C - LINE : 128;
    constexpr int FACTORS = 1; /* the warp that makes decay and beta */
    __shared__ __align__(16) float line[2][LINE], o_line[STEP_COLS];
    __shared__ __align__(16) float2 parts[N_PART][STEP_COLS]; /* of S^T k, S^T q */
    __shared__ __align__(16) float dots[N_PART][4];           /* parts of q q, k k, q k */
    __shared__ float2 factors[2][32];                         /* decay, beta */
    /* Not in registers: the gate of QUICK's row, what the convolution keeps, its weights. */
    __shared__ __align__(16) float4 gates[32];
    __shared__ __align__(16) float kept_line[TAPS - 1][LINE];
    __shared__ __align__(16) float4 w_line[QUICK ? LINE : 1];
    __shared__ uint32_t last;
    int tid = (int)threadIdx.x, warp = tid / 32, lane = tid % 32, mine = tid % STEP_COLS;
    int p = tid / STEP_COLS, head = (int)blockIdx.x;
    int d_k = QUICK ? STEP_DIM : g.d_k, d_v = QUICK ? STEP_DIM : g.d_v;
    int keep = QUICK ? TAPS - 1 : g.d_conv - 1;
    dspan s = b.spans[blockIdx.y]; /* staged before the list: no kernel writes it */
    if (QUICK) s.n_replay = 0, s.n_tok = s.n_commit = 1;
    int kh = g.is_grouped ? head / g.n_rep : head % g.n_k_head;
    int nq = g.n_k_head * d_k, n_conv = 2 * nq + g.n_v_head * d_v;
    int32_t n = s.n_replay + s.n_tok;
    float *kept_inputs = rec.conv + s.slot * (int64_t)rec.conv_stride;
    float a = QUICK ? g.a[head] : 0.0f, dt_bias = QUICK ? g.dt_bias[head] : 0.0f;

#pragma unroll 1
    for (int col0 = 0; col0 < d_v; col0 += STEP_COLS) {
        int col = col0 + mine;
        bool has = QUICK || col < d_v;
        float S[N];
        step_load<N, QUICK>(S, g.s + s.slot * g.s_stride + (int64_t)head * d_k * d_v, col0, d_k,
                            d_v);
        /* this thread's places of the line, and their channels; -1: none */
        auto place = [&](int c) { return tid - FIRST + c * STEP_THREADS; };
        step_line<ROWS, QUICK> of = {d_k, d_v, nq, kh, head, col0};
        float in[C];
        int ch[C];
#pragma unroll
        for (int c = 0; c < C; c++) {
            ch[c] = of.channel(place(c));
#pragma unroll(N > 32 ? 1 : TAPS - 1)
            for (int k = 0; !QUICK && ch[c] >= 0 && k < keep; k++)
                kept_line[k][place(c)] = kept_inputs[k * n_conv + ch[c]];
        }
        if constexpr (QUICK) step_copies(g, of, kept_inputs, n_conv, w_line, kept_line, gates);
        auto fetch = [&](int32_t i) {
#pragma unroll
            for (int c = 0; c < C; c++)
                if (ch[c] >= 0)
                    in[c] = QUICK ? g.mixed.x[s.row * (int)g.mixed.stride + ch[c]]
                                  : conv_input(rec, g.mixed, s, 0, n_conv, ch[c], i);
        };
        if (col0 == 0) {
            launch_next();
            if constexpr (QUICK) {
                copy_wait<0>();
                __syncthreads();
            }
            wait_previous();
        }
        if (N == 32) fetch(0);
        if (QUICK && warp == 0)
            gates[lane] = norm_gate(
                ((const float4 *)(g.z + s.row * (int)g.z_stride + head * d_v))[lane], gates[lane]);

        float delta = 0, decay = 0;
        uint32_t arrived = 0;
        bool is_counter = tid == STEP_THREADS - 1;
        int32_t stored = s.n_commit ? n : s.n_replay; /* tokens that the stored state has seen */
#pragma unroll(QUICK ? 2 : 1)
        for (int32_t i = 0; i <= n; i++) {
            if (i == n) {
                /* All inputs have been used, so they have been read: whoever comes last may write. */
                if (is_counter && col0 + STEP_COLS >= d_v)
                    arrived =
                        atomicAdd(&g.arrived[blockIdx.y * (unsigned)g.n_k_head + (unsigned)kh], 1u);
                __syncthreads();
                if (QUICK && warp == 0) {
                    float4 o = ((const float4 *)o_line)[lane];
                    int row = unknown(s.row * g.n_v_head + head);
                    norm_row<1>(g, (int64_t)row * d_v, d_v, &o, &gates[lane]);
                }
            }
            if (i > 0) /* the token before this one */
                step_update<N>(S, line[(i + 1) % 2] + ROWS + N * p, decay, delta);
            if (i == stored) {
                step_store<N, QUICK>(S,
                                     g.s + unknown(s.slot) * g.s_stride + (int64_t)head * d_k * d_v,
                                     col0, d_k, d_v);
            }
            if (i == n) break;
            float *now = line[i % 2];
            if (N > 32) fetch(i); /* registers are short */
            if (warp == FACTORS && i % 32 == 0 && i + lane < n)
                factors[i / 32 % 2][lane] = step_factors<QUICK>(g, s, head, i + lane, a, dt_bias);
#pragma unroll
            for (int c = 0; c < C; c++) {
                float sum = 0;
                if (ch[c] >= 0)
                    sum = step_conv<QUICK, TAPS, LINE>(g, ch[c], w_line[QUICK ? place(c) : 0],
                                                       &kept_line[0][place(c)], in[c]);
                if (place(c) >= 0 && place(c) < LINE) now[place(c)] = sum;
            }
            __syncthreads();
            step_parts<N>(S, now, p, warp % (STEP_COLS / 32), &parts[p][mine], dots[p]);
            if (N == 32 && i + 1 < n) fetch(i + 1);
            __syncthreads();
            float2 f = factors[i / 32 % 2][i % 32];
            decay = f.x;
            float o = step_out(g.eps, d_k, parts, dots, f, mine, now[2 * ROWS + mine], &delta);
            if (p != 0 || !has || i < s.n_replay) continue;
            if (QUICK) o_line[mine] = o;
            else g.out[((int64_t)(s.row + i - s.n_replay) * g.n_v_head + head) * d_v + col] = o;
        }
        if (is_counter) last = unknown((int)arrived) + 1 == g.n_rep;
        if constexpr (QUICK) {
            __syncthreads();
#pragma unroll
            for (int c = 0; c < C; c++) {
                ch[c] = of.channel(unknown(place(c)));
                if (ch[c] < 0 || (ch[c] < 2 * nq && !last)) continue;
#pragma unroll
                for (int k = 0; k < TAPS - 1; k++)
                    kept_inputs[k * n_conv + ch[c]] = kept_line[k][place(c)];
            }
        } else {
            __syncthreads(); /* the lines are free for the next columns; out is whole */
        }
    }
    if constexpr (!QUICK) {
        norm_rows(g, s, head);
        for (int e = tid; e < d_v; e += STEP_THREADS)
            conv_keep(rec, g.mixed, s, keep, n_conv, 2 * nq + head * d_v + e);
        for (int e = tid; last && e < 2 * d_k; e += STEP_THREADS)
            conv_keep(rec, g.mixed, s, keep, n_conv,
                      (e < d_k ? 0 : nq - d_k) + (int64_t)kh * d_k + e);
    }
    if (tid == 0 && last) g.arrived[blockIdx.y * (unsigned)g.n_k_head + (unsigned)kh] = 0;
}

/* ---- delta net, many tokens ---- */

/* Columns of the state do not meet: a block has COLS of a head, so that all multiprocessors work, and
 * nothing waits for anything but the state itself. What depends on a token alone is made first, for all
 * tokens at once: convolution, norms of q and k, decay and beta. A token is one dependent chain from state to
 * state: sums over rows go in four chains, and the next token's k is read while they end. */

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
        float4 x[R / 4];
#pragma unroll
        for (int r = 0; r < R / 4; r++) x[r] = ((const float4 *)&k[at][0][p * STRIDE])[r];
        for (int32_t i = 0; i < SCAN_TILE && first + i < s.n_tok; i++) {
            const float4 *next_k = (const float4 *)&k[at][(i + 1) % SCAN_TILE][p * STRIDE];
            const float4 *qr = (const float4 *)&q[at][i][p * STRIDE];
            float4 factor = f[at][i], kept4 = make_float4(0, 0, 0, 0), o4 = kept4;
#pragma unroll
            for (int r = 0; r < R / 4; r++) {
                kept4.x += S[4 * r] * x[r].x;
                kept4.y += S[4 * r + 1] * x[r].y;
                kept4.z += S[4 * r + 2] * x[r].z;
                kept4.w += S[4 * r + 3] * x[r].w;
            }
            float kept = lanes_sum((kept4.x + kept4.y) + (kept4.z + kept4.w), N_PART);
            float decay = factor.z;
            float delta = factor.w * (v[at][i][mine] - decay * (kept * factor.x)) * factor.x;
#pragma unroll
            for (int r = 0; r < R / 4; r++) {
                float4 y = qr[r];
                S[4 * r] = decay * S[4 * r] + x[r].x * delta;
                S[4 * r + 1] = decay * S[4 * r + 1] + x[r].y * delta;
                S[4 * r + 2] = decay * S[4 * r + 2] + x[r].z * delta;
                S[4 * r + 3] = decay * S[4 * r + 3] + x[r].w * delta;
                o4.x += S[4 * r] * y.x;
                o4.y += S[4 * r + 1] * y.y;
                o4.z += S[4 * r + 2] * y.z;
                o4.w += S[4 * r + 3] * y.w;
                x[r] = next_k[r];
            }
            float o = (o4.x + o4.y) + (o4.z + o4.w);
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

/* out = rms_norm(out) * silu(z), block (head, token). */
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
    bool many = cuda_is_many(a->spans, a->n_span) && a->d_k <= SCAN_ROWS;
    int64_t n_out = (int64_t)a->n_v_head * a->d_v;
    float *mixed = NULL, *ab = NULL;
    if (many) mixed = (float *)cuda_take(c, (size_t)(a->n_tok * n_conv) * 4);
    else ab = cuda_turn(c, a->spans, b, &a->state, turned);
    if (c->err.code) return;
    gdn_job g = {};
    g.n_k_head = a->n_k_head, g.n_v_head = a->n_v_head, g.d_k = a->d_k, g.d_v = a->d_v;
    g.n_rep = a->n_v_head / a->n_k_head;
    g.is_grouped = a->is_grouped;
    g.log_cap = a->state.log_cap;
    g.eps = a->eps;
    g.d_conv = a->d_conv;
    g.alpha = rows{a->alpha, ab, a->n_v_head, 2 * a->n_v_head};
    g.beta = rows{a->beta, ab ? ab + a->n_v_head : NULL, a->n_v_head, 2 * a->n_v_head};
    g.z = a->z, g.a = a->a, g.dt_bias = a->dt_bias, g.norm_w = a->norm_w;
    g.z_stride = a->z_stride;
    g.s = a->state.s, g.s_stride = (int64_t)a->state.s_stride;
    g.out = a->out;
    cuda_wrote(c, a->out, (size_t)(a->n_tok * n_out) * 4);
    if (many) {
        conv_job j = {a->qkv, a->conv_w, a->conv_b, a->qkv_stride, n_conv,
                      n_conv, a->d_conv, 1,         mixed};
        convolve_many(c, b, a->state, j);
        g.mixed = rows{mixed, NULL, n_conv, 0};
        gdn_many(c, b, g);
        return;
    }
    g.mixed = rows{a->qkv, NULL, a->qkv_stride, 0};
    g.conv_w = a->conv_w, g.conv_b = a->conv_b;
    g.arrived = c->arrived;
    if (a->d_v % 32 == 0) g.out8 = cuda_shadow_new(c, a->out, a->n_tok, n_out);
    if (a->d_conv > MAX_CONV || a->n_k_head * a->n_span > CUDA_N_ARRIVED) {
        cuda_fail_with(c, CHIMERE_EUNSUPPORTED,
                       "delta net with a convolution wider than 8, or too many heads");
        return;
    }
    bool quick = a->d_k == STEP_DIM && a->d_v == STEP_DIM && a->d_conv == 4 &&
                 a->z_stride % 4 == 0 && is_aligned(a->z) && is_aligned(a->norm_w) &&
                 is_aligned(a->conv_w) && is_aligned(a->state.conv) &&
                 a->state.conv_stride % 4 == 0 && is_single(a->spans, a->n_span);
    dim3 grid((unsigned)a->n_v_head, (unsigned)b.n_span), block(STEP_THREADS);
    if (quick) launch(c, gdn_step_kernel<32, true>, grid, block, 0, b, a->state, g);
    else if (a->d_k <= 128) launch(c, gdn_step_kernel<32, false>, grid, block, 0, b, a->state, g);
    else launch(c, gdn_step_kernel<64, false>, grid, block, 0, b, a->state, g);
}

/* Rows of logged tokens of every sequence that can be drafted for, and of a batch. */
size_t cuda_recurrent_scratch(const struct dev_need *n) {
    size_t row =
        (size_t)n->n_conv + (size_t)n->n_v_head * 2 + 2 * (size_t)n->n_v_head * (size_t)n->d_rec_v;
    size_t n_log = (size_t)(n->n_tok < 64 ? n->n_tok : 64) * STEP_MAX_TOK;
    return ((size_t)n->n_tok + 2 * n_log) * row * 4 + 16 * 256;
}
