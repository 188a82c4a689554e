/* delta_net.cu: the log of drafted tokens, the convolution, the gated delta net.
 *
 * A block owns one head of one sequence. It keeps the state in registers and processes the tokens in order, logged
 * tokens first. So the result of a token does not depend, bit for bit, on how many tokens are computed with it. Prompts
 * use chunked_scan.cu instead. Roofline at decode: the state, read and written once, 4 MB per layer of a 35B model. The
 * reads are issued before pdl_wait, since no earlier kernel of the step writes the state.
 *
 * A thread must not read a log row that another thread has already overwritten. A block of the delta net reads and writes
 * elements of its own head alone, and writes them after its scan. For Mamba, whose blocks share rows, turn_kernel copies
 * the old rows out before the scan and writes the new ones, each element by one thread. */
#include <utility>

#include "kernels/cuda/chunked_scan.cuh"

enum { CONV_THREADS = 128, MAX_CONV = 8 };

__global__ void turn_kernel(dspans b, rec_view rec, turn_job j, float *replay) {
    pdl_trigger();
    pdl_wait();
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
    int32_t n_z = 1; /* a power of two, so that lists repeat whatever was accepted */
    while (n_z < n_row) n_z *= 2;
    for (int p = 0; p < j.n_part; p++) j.n_row += j.n[p];
    float *replay =
        (float *)cuda_take(c, (size_t)b.n_span * (size_t)rec->log_cap * (size_t)j.n_row * 4);
    if (!replay) return NULL;
    launch(c, turn_kernel,
           dim3((unsigned)((j.n_row + 255) / 256), (unsigned)b.n_span, (unsigned)n_z), dim3(256), 0,
           b, *rec, j, replay);
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
    pdl_trigger();
    pdl_wait();
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

/* The same without a log: a thread computes CONV_TOKS consecutive tokens of a channel with a sliding window. */
enum { CONV_TOKS = 8 };
__global__ void conv_many_kernel(dspans b, rec_view rec, conv_job j) {
    pdl_trigger();
    pdl_wait();
    int64_t ch = (int64_t)blockIdx.x * CONV_THREADS + threadIdx.x;
    int32_t t0 = (int32_t)blockIdx.y * CONV_TOKS, n = b.n_tok - t0, of = -1;
    if (ch >= j.n_conv) return;
    int keep = j.d_conv - 1;
    float old[MAX_CONV], w[MAX_CONV], bias = j.b ? j.b[ch] : 0.0f;
#pragma unroll
    for (int k = 0; k < MAX_CONV; k++) w[k] = k <= keep ? j.w[ch * j.d_conv + k] : 0.0f;
    for (int32_t t = t0; t < t0 + (n < CONV_TOKS ? n : CONV_TOKS); t++) {
        if (b.of_row[t] != of) { /* a new span: load the inputs before this token */
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
    pdl_wait();
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

/* Whether the batch is a plain decode step: one token per sequence, nothing logged, nothing deferred. */
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
    int32_t n_k_head, n_v_head, n_rep, d_k, d_v; /* n_rep: value heads per key head */
    int32_t is_grouped, d_conv;
    float eps, norm_eps, beta_scale;
    rows mixed, alpha, beta; /* mixed: [q | k | v], not yet convolved if few tokens */
    const float *z, *a, *dt_bias, *norm_w;
    int64_t z_stride;
    float *s, *out;
    int64_t s_stride;
    /* few tokens: */
    const float *conv_w, *conv_b;
    uint32_t *arrived; /* [n_span, n_k_head], zeros */
    act8 out8;         /* q NULL: none */
    divisor per_key;   /* n_rep if grouped, else n_k_head */
};

/* Few tokens: a block computes one head of one span, 128 columns of its state at a time. Thread 128 p + j has column
 * j; of every 32 rows it has rows 4 p to 4 p + 3 and 4 p + 16 to 4 p + 19. */
enum { N_PART = 4, STEP_COLS = 128, STEP_THREADS = STEP_COLS * N_PART, STEP_DIM = 128 };
enum { STEP_LINES = 8 }; /* tokens whose inputs are in shared memory at once */
static_assert(STEP_LINES < STEP_THREADS / 32, "each has a warp, and the factors have one more");

/* Input i of a channel, counted from the oldest kept input: first the kept inputs, then logged ones, then new ones. */
__device__ __forceinline__ float conv_input(const rec_view &rec, const rows &x, const dspan &s,
                                            int32_t keep, int64_t n_conv, int64_t ch, int32_t i) {
    if (i < keep) return rec.conv[s.slot * (int64_t)rec.conv_stride + i * n_conv + ch];
    i -= keep;
    if (i < s.n_replay)
        return rec.log[((int64_t)s.slot * rec.log_cap + i) * (int64_t)rec.log_row + ch];
    return x.x[(int64_t)(s.row + i - s.n_replay) * x.stride + ch];
}

/* Updates the kept inputs of a channel, and writes new inputs to the log if the tokens are deferred. */
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

/* A head's alpha in row i of a sequence's log; its beta is n_v_head elements later. */
__device__ __forceinline__ float *logged_gates(const rec_view &rec, const gdn_job &g,
                                               const dspan &s, int head, int32_t i) {
    int n_conv = 2 * g.n_k_head * g.d_k + g.n_v_head * g.d_v;
    return rec.log + ((int64_t)s.slot * rec.log_cap + i) * (int64_t)rec.log_row + n_conv + head;
}
/* Alpha and beta of a head at token i: first the logged tokens, then the new ones. */
__device__ __forceinline__ float2 step_gates(const rec_view &rec, const gdn_job &g, const dspan &s,
                                             int head, int32_t i) {
    if (i < s.n_replay) {
        const float *log = logged_gates(rec, g, s, head, i);
        return make_float2(log[0], log[g.n_v_head]);
    }
    int64_t row = s.row + i - s.n_replay;
    return make_float2(g.alpha.x[row * g.alpha.stride + head],
                       g.beta.x[row * g.beta.stride + head]);
}

/* silu(z) times the norm's weight, for four columns. */
__device__ __forceinline__ float4 norm_gate(float4 z, float4 w) {
    return make_float4(silu(z.x) * w.x, silu(z.y) * w.y, silu(z.z) * w.z, silu(z.w) * w.w);
}

/* A warp normalizes, gates and quantizes one row of up to W * 128 columns; `to` is its index in out. */
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
    float f = rsqrtf(lanes_sum(sum, 32) / (float)d_v + g.norm_eps);
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

/* The same for the new tokens of a span, whose rows are in out already; up to 256 columns, one warp per row. */
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

/* The inputs of one token in shared memory: q and k of ROWS elements each, v of 128 columns from col0 on. */
template <int ROWS> struct step_line {
    int d_k, d_v, nq, kh, head, col0;

    __device__ __forceinline__ int channel(int e) const { /* of element e; -1: none */
        if (e < 0 || e >= 2 * ROWS + STEP_COLS) return -1;
        if (e >= 2 * ROWS) {
            e -= 2 * ROWS;
            return col0 + e < d_v ? 2 * nq + head * d_v + col0 + e : -1;
        }
        int row = e < ROWS ? e : e - ROWS;
        return row < d_k ? (e < ROWS ? 0 : nq) + kh * d_k + row : -1;
    }
};

/* Row of element i of a thread, minus 4 p. The first half of the elements are rows 4 p to 4 p + 3 of each 32 rows,
 * the second half rows 4 p + 16 to 4 p + 19. */
template <int N> __device__ __forceinline__ constexpr int step_row(int i) {
    return i % (N / 2) / 4 * 32 + i / (N / 2) * 16 + i % 4;
}

/* Loads this thread's elements of the head's state: one column, rows 4 p + step_row<N>(i). */
template <int N>
__device__ __forceinline__ void step_load(float (&S)[N], const float *state, int col0, int d_k,
                                          int d_v) {
    int p = (int)threadIdx.x / STEP_COLS, col = col0 + (int)threadIdx.x % STEP_COLS;
    int own = 4 * p * d_v + col, stride = unknown(d_v),
        n_row = unknown(col < d_v ? d_k - 4 * p : 0);
#pragma unroll
    for (int i = 0; i < N; i++) {
        int at = unknown(own + step_row<N>(i) * stride);
        S[i] = step_row<N>(i) < n_row ? state[at] : 0.0f;
    }
}
template <int N>
__device__ __forceinline__ void step_store(const float (&S)[N], float *state, int col0, int d_k,
                                           int d_v) {
    int tid = unknown((int)threadIdx.x), p = tid / STEP_COLS, col = col0 + tid % STEP_COLS;
    int stride = unknown(d_v), n_row = col < d_v ? d_k - 4 * p : 0, own = 4 * p * d_v + col;
#pragma unroll
    for (int i = 0; i < N; i++) {
        int at = unknown(own + step_row<N>(i) * stride);
        if (step_row<N>(i) < n_row) state[at] = S[i];
    }
}

/* Decay and beta of one head. */
__device__ __forceinline__ float2 step_factors(float alpha, float beta, float a, float dt_bias,
                                               float beta_scale) {
    return make_float2(quick_exp(softplus(alpha + dt_bias) * a), beta_scale * logistic(beta));
}

/* Convolution of a channel at one token. kept: its previous inputs, [MAX_CONV - 1][LINE]; shifted by one. */
template <int LINE>
__device__ __forceinline__ float step_conv(const gdn_job &g, int ch, float *kept, float in) {
    int keep = g.d_conv - 1;
    float sum = g.conv_b ? g.conv_b[ch] : 0.0f, old[MAX_CONV]; /* previous inputs and the new one */
    const float *w = g.conv_w + ch * g.d_conv;
#pragma unroll
    for (int k = 0; k < MAX_CONV; k++)
        if (k <= keep) old[k] = k < keep ? kept[k % (MAX_CONV - 1) * LINE] : in;
#pragma unroll
    for (int k = 0; k < MAX_CONV; k++)
        if (k <= keep) sum = fmaf(w[k], old[k], sum);
#pragma unroll
    for (int k = 0; k < MAX_CONV - 1; k++)
        if (k < keep) kept[k * LINE] = old[k + 1];
    return silu(sum);
}

/* Scalars of one token: the factors that normalize k and q (with the scale of q), and the dot product q k. All lanes
 * of a warp compute them together; each lane gets the result. */
struct step_dots {
    float kf, qf, qk;
};
template <int ROWS>
__device__ __forceinline__ step_dots dots_of(const float *q, const float *k, float eps, int d_k) {
    int lane = (int)threadIdx.x % 32;
    float sum[4] = {}; /* q q, k k, q k */
#pragma unroll
    for (int r = 0; r < ROWS / 128; r++) {
        float4 x = ((const float4 *)q)[32 * r + lane], y = ((const float4 *)k)[32 * r + lane];
        sum[0] = fmaf(x.x, x.x, sum[0]), sum[1] = fmaf(y.x, y.x, sum[1]);
        sum[2] = fmaf(x.x, y.x, sum[2]), sum[0] = fmaf(x.y, x.y, sum[0]);
        sum[1] = fmaf(y.y, y.y, sum[1]), sum[2] = fmaf(x.y, y.y, sum[2]);
        sum[0] = fmaf(x.z, x.z, sum[0]), sum[1] = fmaf(y.z, y.z, sum[1]);
        sum[2] = fmaf(x.z, y.z, sum[2]), sum[0] = fmaf(x.w, x.w, sum[0]);
        sum[1] = fmaf(y.w, y.w, sum[1]), sum[2] = fmaf(x.w, y.w, sum[2]);
    }
    float one = lanes_share<4>(sum, lane, 32); /* lanes 8 i to 8 i + 7 have sum[i] */
    float f = rsqrtf(lane < 8 ? (one + eps) * (float)d_k : one + eps);
    return step_dots{__shfl_sync(0xffffffffu, f, 8), __shfl_sync(0xffffffffu, f, 0),
                     __shfl_sync(0xffffffffu, one, 16)};
}

/* (decay S + k delta)^T q of a column, computed before the new S is known. kept, seen: S^T k,
 * S^T q; factors: decay, beta. */
__device__ __forceinline__ float step_out(const step_dots &d, float kept, float seen,
                                          float2 factors, float v, float *delta) {
    *delta = factors.y * d.kf * fmaf(-factors.x, kept * d.kf, v);
    return fmaf(*delta, d.qk, factors.x * seen) * d.qf;
}

/* The thread's part of S^T k and S^T q. now: q and k. With up to 128 rows, the order of
 * additions is that of gdn_one_kernel. */
template <int N>
__device__ __forceinline__ float2 step_part(const float (&S)[N], const float *now, int p) {
    const float4 *q4 = (const float4 *)now + p, *k4 = q4 + N_PART * N / 4;
    float2 half[2] = {};
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        float4 k = k4[step_row<N>(i) / 4], q = q4[step_row<N>(i) / 4];
        float2 &part = half[N > 32 ? 0 : i / (N / 2)];
        part.x = fmaf(S[i], k.x, part.x), part.y = fmaf(S[i], q.x, part.y);
        part.x = fmaf(S[i + 1], k.y, part.x), part.y = fmaf(S[i + 1], q.y, part.y);
        part.x = fmaf(S[i + 2], k.z, part.x), part.y = fmaf(S[i + 2], q.z, part.y);
        part.x = fmaf(S[i + 3], k.w, part.x), part.y = fmaf(S[i + 3], q.w, part.y);
    }
    return N > 32 ? half[0] : make_float2(half[0].x + half[1].x, half[0].y + half[1].y);
}

/* S = decay S + k delta; k: all rows, of which the thread uses its own */
template <int N>
__device__ __forceinline__ void step_update(float (&S)[N], const float *k, int p, float decay,
                                            float delta) {
    const float4 *k4 = (const float4 *)k + p;
#pragma unroll
    for (int i = 0; i < N; i += 4) {
        float4 x = k4[step_row<N>(i) / 4];
        S[i] = fmaf(x.x, delta, decay * S[i]);
        S[i + 1] = fmaf(x.y, delta, decay * S[i + 1]);
        S[i + 2] = fmaf(x.z, delta, decay * S[i + 2]);
        S[i + 3] = fmaf(x.w, delta, decay * S[i + 3]);
    }
}

/* Convolution, delta rule, norm and gate of a few tokens; grid: (head, span). What does not depend on the state is
 * computed for STEP_LINES tokens at once; then each token waits at one barrier. The state and the kept convolution inputs
 * are read before pdl_wait, since only this kernel of the list writes them. Heads that share a key head each compute
 * its q and k; the last of them to arrive updates the kept inputs of q and k, once all have read them. N: rows per
 * thread. */
template <int N>
__global__ void __launch_bounds__(STEP_THREADS) gdn_step_kernel(dspans b, rec_view rec, gdn_job g) {
    constexpr int ROWS = N_PART * N,
                  LINE = 2 * ROWS + STEP_COLS; /* q, k, v; zeros beyond the head */
    constexpr int C = (LINE + STEP_THREADS - 1) / STEP_THREADS;
    enum { FACTORS = STEP_THREADS / 32 - 1 }; /* the warp that computes decay and beta */
    __shared__ __align__(16) float line[STEP_LINES][LINE];
    __shared__ __align__(16) float2 parts[2][N_PART][STEP_COLS]; /* of S^T k, S^T q */
    __shared__ float2 factors[STEP_LINES];                       /* decay, beta */
    /* kept inputs of the convolution */
    __shared__ __align__(16) float kept_line[MAX_CONV - 1][LINE];
    __shared__ step_dots dots[STEP_LINES];
    __shared__ uint32_t last;
    int tid = (int)threadIdx.x, warp = tid / 32, lane = tid % 32, mine = tid % STEP_COLS;
    int p = tid / STEP_COLS, head = (int)blockIdx.x, d_k = g.d_k, d_v = g.d_v, keep = g.d_conv - 1;
    dspan s = b.spans[blockIdx.y]; /* staged before any other kernel starts */
    int kh = g.is_grouped ? head / g.n_rep : head % g.n_k_head;
    int nq = g.n_k_head * d_k, n_conv = 2 * nq + g.n_v_head * d_v;
    int32_t n = s.n_replay + s.n_tok;
    float *kept_inputs = rec.conv + s.slot * (int64_t)rec.conv_stride;

#pragma unroll 1
    for (int col0 = 0; col0 < d_v; col0 += STEP_COLS) {
        int col = col0 + mine;
        float S[N];
        step_load<N>(S, g.s + s.slot * g.s_stride + (int64_t)head * d_k * d_v, col0, d_k, d_v);
        /* the thread's elements of the line, and their channels; -1: none */
        auto place = [&](int c) { return tid + c * STEP_THREADS; };
        step_line<ROWS> of = {d_k, d_v, nq, kh, head, col0};
        int ch[C];
#pragma unroll
        for (int c = 0; c < C; c++) {
            ch[c] = of.channel(place(c));
#pragma unroll(N > 32 ? 1 : MAX_CONV - 1)
            for (int k = 0; ch[c] >= 0 && k < keep; k++)
                kept_line[k][place(c)] = kept_inputs[k * n_conv + ch[c]];
        }
        if (col0 == 0) {
            pdl_trigger();
            pdl_wait();
        }
        int32_t stored = s.n_commit ? n : s.n_replay; /* tokens included in the stored state */
#pragma unroll 1
        for (int32_t from = 0; from < n; from += STEP_LINES) {
            int32_t m = min(n - from, (int)STEP_LINES);
            head = unknown((int)blockIdx.x);              /* recomputed, to save registers */
            constexpr int EACH = N > 32 ? 1 : STEP_LINES; /* loads in flight; saves registers */
#pragma unroll
            for (int c = 0; c < C; c++)
#pragma unroll 1
                for (int first = 0; first < m; first += EACH) {
                    float in[EACH];
#pragma unroll
                    for (int i = 0; i < EACH; i++)
                        in[i] = ch[c] < 0 || first + i >= m ? 0.0f
                                                            : conv_input(rec, g.mixed, s, 0, n_conv,
                                                                         ch[c], from + first + i);
#pragma unroll
                    for (int i = 0; i < EACH; i++)
                        if (place(c) < LINE) line[first + i][place(c)] = in[i];
                }
            if (warp == FACTORS && lane < m) {
                float2 x = step_gates(rec, g, s, head, from + lane);
                factors[lane] = step_factors(x.x, x.y, g.a[head], g.dt_bias[head], g.beta_scale);
            }
#pragma unroll
            for (int c = 0; c < C; c++)
#pragma unroll 1
                for (int i = 0; i < m && ch[c] >= 0; i++)
                    line[i][place(c)] =
                        step_conv<LINE>(g, ch[c], &kept_line[0][place(c)], line[i][place(c)]);
            __syncthreads();
            if (warp < m) { /* the others see the dots after the next barrier */
                step_dots own = dots_of<ROWS>(line[warp], line[warp] + ROWS, g.eps, d_k);
                if (lane == 0) dots[warp] = own;
            }
#pragma unroll 1
            for (int i = 0; i < m; i++) {
                const float *now = line[i];
                head = unknown((int)blockIdx.x);
                parts[i % 2][p][mine] = step_part<N>(S, now, p);
                __syncthreads();
                static_assert(N_PART == 4, "four parts are added by name");
                float2 x0 = parts[i % 2][0][mine], x1 = parts[i % 2][1][mine];
                float2 x2 = parts[i % 2][2][mine], x3 = parts[i % 2][3][mine];
                float delta, o = step_out(dots[i], (x0.x + x2.x) + (x1.x + x3.x),
                                          (x0.y + x2.y) + (x1.y + x3.y), factors[i],
                                          now[2 * ROWS + mine], &delta);
                int64_t row = s.row + from + i - s.n_replay;
                if (p == 0 && col < d_v && from + i >= s.n_replay)
                    g.out[(row * g.n_v_head + head) * d_v + col] = o;
                step_update<N>(S, now + ROWS, p, factors[i].x, delta);
                if (from + i + 1 == stored)
                    step_store<N>(S,
                                  g.s + b.spans[unknown((int)blockIdx.y)].slot * g.s_stride +
                                      (int64_t)head * d_k * d_v,
                                  col0, d_k, d_v);
            }
            __syncthreads(); /* the lines can be reused; out is complete */
        }
    }
    s = b.spans[unknown((int)blockIdx.y)]; /* reloaded, to save registers */
    /* All threads have used their inputs, so these have been read: the last block to arrive may overwrite them. */
    uint32_t *counter = &g.arrived[blockIdx.y * (unsigned)g.n_k_head + (unsigned)kh];
    if (tid == 0) last = atomicAdd(counter, 1u) + 1 == (uint32_t)g.n_rep;
    norm_rows(g, s, head);
    for (int i = tid; s.n_commit == 0 && i < s.n_tok; i += STEP_THREADS) {
        float2 x = step_gates(rec, g, s, head, s.n_replay + i);
        float *log = logged_gates(rec, g, s, head, i);
        log[0] = x.x, log[g.n_v_head] = x.y;
    }
    for (int e = tid; e < d_v; e += STEP_THREADS)
        conv_keep(rec, g.mixed, s, keep, n_conv, 2 * nq + head * d_v + e);
    __syncthreads();
    for (int e = tid; last && e < 2 * d_k; e += STEP_THREADS)
        conv_keep(rec, g.mixed, s, keep, n_conv, (e < d_k ? 0 : nq - d_k) + (int64_t)kh * d_k + e);
    if (tid == 0 && last) *counter = 0;
}

/* ---- delta net, one token per sequence ---- */

/* Heads of 128 x 128, a convolution of 4, nothing logged or deferred: the same additions in the same order as
 * gdn_step_kernel, in half the instructions. Eight warps have 16 columns each, with all rows, so that sums over rows
 * stay within a warp: lane 4 r + c has four columns and, of every 32 rows, rows 4 r to 4 r + 3. A ninth warp computes
 * v, gate, decay and beta, and normalizes the row while the other warps write the state. State, weights and kept
 * convolution inputs are read before pdl_wait. */
enum { ONE_WARPS = 8, ONE_THREADS = 32 * (ONE_WARPS + 1), ROW_MADE = 1, LAST_KNOWN = 2 };

struct one_room {                          /* in shared memory */
    float line[3 * STEP_DIM], o[STEP_DIM]; /* q, k, v */
    float kept[3][2 * STEP_DIM];           /* kept convolution inputs of q and k */
    float2 factors;                        /* decay, beta */
    uint32_t last;
};

/* The ninth warp. kept: the kept inputs of the convolution. */
__device__ __forceinline__ void one_row(one_room &room, const gdn_job &g, int row, int head,
                                        float *kept, uint32_t *counter) {
    int lane = (int)threadIdx.x % 32, place = (row * g.n_v_head + head) * (STEP_DIM / 4) + lane;
    int nq = g.n_k_head * STEP_DIM, n_conv = 2 * nq + g.n_v_head * STEP_DIM;
    int ch = 2 * nq + head * STEP_DIM + 4 * lane; /* four channels of v */
    float4 w[4], old[3];
#pragma unroll
    for (int i = 0; i < 4; i++) w[i] = ((const float4 *)g.conv_w)[ch + i];
#pragma unroll
    for (int i = 0; i < 3; i++) old[i] = *(const float4 *)(kept + i * n_conv + ch);
    float4 bias = make_float4(0, 0, 0, 0);
    if (g.conv_b)
        bias = make_float4(g.conv_b[ch], g.conv_b[ch + 1], g.conv_b[ch + 2], g.conv_b[ch + 3]);
    float a = g.a[head], dt_bias = g.dt_bias[head];
    float4 norm_w = ((const float4 *)g.norm_w)[lane];
    pdl_trigger();
    pdl_wait();
    float alpha = g.alpha.x[row * (int)g.alpha.stride + head];
    float beta = g.beta.x[row * (int)g.beta.stride + head];
    float4 in = *(const float4 *)(g.mixed.x + row * (int)g.mixed.stride + ch);
    float4 z = ((const float4 *)(g.z + row * (int)g.z_stride + head * STEP_DIM))[lane];
    float4 v = make_float4(conv_four(bias.x, w[0], old[0].x, old[1].x, old[2].x, in.x),
                           conv_four(bias.y, w[1], old[0].y, old[1].y, old[2].y, in.y),
                           conv_four(bias.z, w[2], old[0].z, old[1].z, old[2].z, in.z),
                           conv_four(bias.w, w[3], old[0].w, old[1].w, old[2].w, in.w));
    ((float4 *)room.line)[2 * STEP_DIM / 4 + lane] = v;
    if (lane == 0) room.factors = step_factors(alpha, beta, a, dt_bias, g.beta_scale);
    __syncthreads();
    /* All threads have used their inputs, so these have been read: the last block to arrive may overwrite them. */
    uint32_t arrived = lane == 0 ? atomicAdd(counter, 1u) : 0;
#pragma unroll
    for (int i = 0; i < 3; i++) *(float4 *)(kept + i * n_conv + ch) = old[i];
    float4 gate = norm_gate(z, norm_w);
    named_barrier_sync(ROW_MADE, ONE_THREADS);
    float4 o = ((const float4 *)room.o)[lane];
    float sum = 0;
    sum = fmaf(o.x, o.x, sum), sum = fmaf(o.y, o.y, sum);
    sum = fmaf(o.z, o.z, sum), sum = fmaf(o.w, o.w, sum);
    float f = rsqrtf(lanes_sum(sum, 32) / (float)STEP_DIM + g.norm_eps);
    bool last = arrived + 1 == (uint32_t)g.n_rep;
    if (lane == 0) room.last = last;
    named_barrier_arrive(LAST_KNOWN, ONE_THREADS);
    float4 y =
        make_float4(o.x * (f * gate.x), o.y * (f * gate.y), o.z * (f * gate.z), o.w * (f * gate.w));
    ((float4 *)g.out)[place] = y;
    if (g.out8.q) act8_put4(g.out8, place, y, true);
    if (lane == 0 && last) *counter = 0;
}

/* Returns S^T k and S^T q of one of the lane's four columns, 2 (lane / 8 % 2) + lane / 4 % 2. sum: the lane's partial
 * sums of S^T k for its four columns, then of S^T q. */
__device__ __forceinline__ float2 one_share(float (&sum)[8], int lane) {
#pragma unroll
    for (int n = 4, step = 16; n > 0; n /= 2, step /= 2) {
        bool upper = (lane & step) != 0;
#pragma unroll
        for (int k = 0; k < n; k++) {
            float own = upper ? sum[k + n] : sum[k], give = upper ? sum[k] : sum[k + n];
            sum[k] = own + __shfl_xor_sync(0xffffffffu, give, step);
        }
    }
    float other = __shfl_xor_sync(0xffffffffu, sum[0], 16);
    return lane < 16 ? make_float2(sum[0], other) : make_float2(other, sum[0]);
}

/* Grid: (head, span). */
__global__ void __launch_bounds__(ONE_THREADS, 2)
    gdn_one_kernel(dspans b, rec_view rec, gdn_job g) {
    __shared__ __align__(16) one_room room;
    unsigned tid = threadIdx.x;
    int warp = (int)(tid / 32), lane = (int)(tid % 32), head = (int)blockIdx.x;
    int32_t row = b.spans[blockIdx.y].row, slot = b.spans[blockIdx.y].slot;
    int kh = (int)((uint32_t)head / g.per_key);
    if (!g.is_grouped) kh = head - kh * g.n_k_head;
    float *kept = rec.conv + slot * (int64_t)rec.conv_stride;
    if (warp == ONE_WARPS) {
        one_row(room, g, row, head, kept,
                &g.arrived[blockIdx.y * (unsigned)g.n_k_head + (unsigned)kh]);
        return;
    }
    float4 S[4][4]; /* [32 rows each][row of the thread]; four columns */
    float4 *state = (float4 *)(g.s + slot * g.s_stride) + head * (STEP_DIM * STEP_DIM / 4);
    int own = lane / 4 * STEP_DIM + warp * 4 + lane % 4;
#pragma unroll
    for (int i = 0; i < 16; i++)
        S[i / 4][i % 4] = (state + own)[(i / 4 * 32 + i % 4) * (STEP_DIM / 4)];
    int nq = g.n_k_head * STEP_DIM, n_conv = 2 * nq + g.n_v_head * STEP_DIM;
    /* each thread computes one channel of q or k */
    int ch = kh * STEP_DIM + (int)tid % STEP_DIM + (warp < 4 ? 0 : nq);
    float4 w = ((const float4 *)g.conv_w)[ch];
    float old[3], bias = g.conv_b ? g.conv_b[ch] : 0.0f;
#pragma unroll
    for (int i = 0; i < 3; i++) old[i] = (kept + i * n_conv)[ch];
    pdl_trigger();
    pdl_wait();
    float in = g.mixed.x[row * (int)g.mixed.stride + ch];
    room.line[tid] = conv_four(bias, w, old[0], old[1], old[2], in);
#pragma unroll
    for (int i = 0; i < 3; i++) room.kept[i][tid] = old[i];
    __syncthreads();

    const float4 *q4 = (const float4 *)room.line + lane / 4, *k4 = q4 + STEP_DIM / 4;
    float sum[8] = {};
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float4 k = k4[8 * j], q = q4[8 * j];
        const float ks[4] = {k.x, k.y, k.z, k.w}, qs[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int e = 0; e < 4; e++) {
            sum[0] = fmaf(S[j][e].x, ks[e], sum[0]), sum[4] = fmaf(S[j][e].x, qs[e], sum[4]);
            sum[1] = fmaf(S[j][e].y, ks[e], sum[1]), sum[5] = fmaf(S[j][e].y, qs[e], sum[5]);
            sum[2] = fmaf(S[j][e].z, ks[e], sum[2]), sum[6] = fmaf(S[j][e].z, qs[e], sum[6]);
            sum[3] = fmaf(S[j][e].w, ks[e], sum[3]), sum[7] = fmaf(S[j][e].w, qs[e], sum[7]);
        }
    }
    step_dots dots = dots_of<STEP_DIM>(room.line, room.line + STEP_DIM, g.eps, STEP_DIM);
    float2 both = one_share(sum, lane);
    int col = warp * 16 + lane % 4 * 4 + (lane / 8 % 2 * 2 + lane / 4 % 2);
    float delta, decay = room.factors.x;
    float o = step_out(dots, both.x, both.y, room.factors, room.line[2 * STEP_DIM + col], &delta);
    if (lane < 16) room.o[col] = o;
    named_barrier_sync(ROW_MADE, ONE_THREADS);
    float d[4];
#pragma unroll
    for (int m = 0; m < 4; m++) /* the deltas of columns 0 to 3 are 4 lanes apart */
        d[m] = __shfl_sync(0xffffffffu, delta, lane % 4 + 4 * m);
    float4 *to = state + unknown(own);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float4 k = k4[8 * j];
        const float ks[4] = {k.x, k.y, k.z, k.w};
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float4 old = S[j][e];
            to[(j * 32 + e) * (STEP_DIM / 4)] =
                make_float4(fmaf(ks[e], d[0], decay * old.x), fmaf(ks[e], d[1], decay * old.y),
                            fmaf(ks[e], d[2], decay * old.z), fmaf(ks[e], d[3], decay * old.w));
        }
    }
    named_barrier_sync(LAST_KNOWN, ONE_THREADS);
    if (!room.last) return;
#pragma unroll
    for (int i = 0; i < 3; i++) (kept + i * n_conv)[unknown(ch)] = room.kept[i][tid];
}

/* ---- delta net, many tokens ---- */

enum { NORM_THREADS = 128 };

/* out = rms_norm(out) * silu(z); one warp per head and token. */
__global__ void __launch_bounds__(NORM_THREADS) gdn_norm_kernel(gdn_job g, i64 n_row) {
    pdl_trigger();
    pdl_wait();
    int64_t at = (int64_t)blockIdx.x * (NORM_THREADS / 32) + threadIdx.x / 32;
    if (at >= n_row) return;
    int lane = (int)threadIdx.x % 32, d_v = g.d_v;
    int64_t t = at / g.n_v_head, head = at % g.n_v_head;
    float *out = g.out + at * d_v, sum = 0;
    const float *z = g.z + t * g.z_stride + head * d_v;
    float4 o[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        o[i] = four_at(out, 128 * i + 4 * lane, d_v);
        sum = fmaf(o[i].x, o[i].x, sum), sum = fmaf(o[i].y, o[i].y, sum);
        sum = fmaf(o[i].z, o[i].z, sum), sum = fmaf(o[i].w, o[i].w, sum);
    }
    float f = 1.0f / sqrtf(lanes_sum(sum, 32) / (float)d_v + g.norm_eps);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int e = 128 * i + 4 * lane;
        float4 w = four_at(g.norm_w, e, d_v), gate = four_at(z, e, d_v);
        four_put(out, e, d_v,
                 make_float4(o[i].x * f * w.x * silu(gate.x), o[i].y * f * w.y * silu(gate.y),
                             o[i].z * f * w.z * silu(gate.z), o[i].w * f * w.w * silu(gate.w)));
    }
}

static void gdn_many(struct cuda *c, const struct span *spans, const dspans &b, const gdn_job &g) {
    int64_t nq = (int64_t)g.n_k_head * g.d_k, n_row = (int64_t)b.n_tok * g.n_v_head;
    chunk_job j = {};
    j.n_k_head = g.n_k_head, j.n_head = g.n_v_head, j.d_k = g.d_k, j.d_v = g.d_v;
    j.is_grouped = g.is_grouped, j.is_delta = 1;
    j.eps = g.eps, j.beta_scale = g.beta_scale;
    j.q = g.mixed.x, j.k = g.mixed.x + nq, j.v = g.mixed.x + 2 * nq;
    j.stride = g.mixed.stride;
    j.gate = g.alpha.x, j.beta = g.beta.x;
    j.gate_stride = g.alpha.stride;
    j.a = g.a, j.bias = g.dt_bias;
    j.s = g.s, j.s_stride = g.s_stride;
    j.s_k = g.d_v, j.s_v = 1;
    j.out = g.out;
    cuda_chunks(c, spans, b, j);
    launch(c, gdn_norm_kernel,
           dim3((unsigned)((n_row + NORM_THREADS / 32 - 1) / (NORM_THREADS / 32))),
           dim3(NORM_THREADS), 0, g, n_row);
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
    bool many = cuda_is_many(a->spans, a->n_span) && cuda_has_chunks(c, a->d_k, true);
    int64_t n_out = (int64_t)a->n_v_head * a->d_v;
    float *mixed = NULL;
    if (many) mixed = (float *)cuda_take(c, (size_t)(a->n_tok * n_conv) * 4);
    if (c->err.code) return;
    gdn_job g = {};
    g.n_k_head = a->n_k_head, g.n_v_head = a->n_v_head, g.d_k = a->d_k, g.d_v = a->d_v;
    g.n_rep = a->n_v_head / a->n_k_head;
    g.is_grouped = a->is_grouped;
    g.eps = a->eps, g.norm_eps = a->norm_eps, g.beta_scale = a->beta_scale;
    g.d_conv = a->d_conv;
    g.alpha = rows{a->alpha, NULL, a->n_v_head, 0};
    g.beta = rows{a->beta, NULL, a->n_v_head, 0};
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
        gdn_many(c, a->spans, b, g);
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
    g.per_key = divisor_of(a->is_grouped ? g.n_rep : g.n_k_head);
    bool one = a->d_k == STEP_DIM && a->d_v == STEP_DIM && a->d_conv == 4 && a->z_stride % 4 == 0 &&
               is_aligned(a->z) && is_aligned(a->norm_w) && is_aligned(a->conv_w) &&
               is_aligned(a->out) && is_aligned(a->state.s) && a->state.s_stride % 4 == 0 &&
               is_aligned(a->qkv) && a->qkv_stride % 4 == 0 && is_aligned(a->state.conv) &&
               a->state.conv_stride % 4 == 0 && is_single(a->spans, a->n_span);
    dim3 grid((unsigned)a->n_v_head, (unsigned)b.n_span), block(STEP_THREADS);
    cuda_reads(c, 8.0 * (double)(b.n_span * n_out * a->d_k)); /* states, read and written */
    if (one) launch(c, gdn_one_kernel, grid, dim3(ONE_THREADS), 0, b, a->state, g);
    else if (a->d_k <= 128) launch(c, gdn_step_kernel<32>, grid, block, 0, b, a->state, g);
    else launch(c, gdn_step_kernel<64>, grid, block, 0, b, a->state, g);
}

/* Scratch for the logged rows of every sequence that can be drafted for, for the convolved
 * rows of a batch, and for chunks. */
size_t cuda_recurrent_scratch(const struct dev_need *n) {
    int64_t n_v = n->n_v_head, d_v = n->d_rec_v, inner = n_v * d_v;
    size_t row = (size_t)n->n_conv + 2 * (size_t)n_v + 2 * (size_t)inner;
    size_t n_log = (size_t)(n->n_tok < 64 ? n->n_tok : 64) * STEP_MAX_TOK;
    size_t chunks = d_v > 1 /* Mamba-1 has none */ && n->n_conv > inner
                        ? cuda_chunk_scratch(n->n_tok, (n->n_conv - inner) / (2 * n->d_rec_k), n_v)
                        : 0;
    return (size_t)n->n_tok * (size_t)n->n_conv * 4 + chunks + 2 * n_log * row * 4 + 16 * 256;
}
