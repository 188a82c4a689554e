/* recurrent.cu: the log of drafted tokens, convolution, delta net.
 *
 * A block owns 32 columns of one head of one sequence, keeps their state in registers and takes the tokens one after
 * the other, logged ones first. So a token's bits do not depend on how many come with it.
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

struct conv_job {
    const float *x, *w, *b;
    int64_t x_stride, n_conv, out_stride;
    int32_t d_conv, silu;
    float *out;
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
    cuda_wrote(c, a->out, (size_t)a->n_tok * (size_t)a->out_stride * 4);
    if (cuda_is_many(a->spans, a->n_span) && a->d_conv <= MAX_CONV)
        convolve_many(c, b, a->state, j);
    else convolve(c, b, a->state, j);
}

/* ---- delta net ---- */

struct gdn_job {
    int32_t n_k_head, n_v_head, d_k, d_v;
    int32_t is_grouped, log_cap;
    float eps;
    int32_t d_conv;
    rows mixed, alpha, beta; /* [q | k | v]: convolved (many tokens), or to be (few) */
    const float *z, *a, *dt_bias, *norm_w;
    int64_t z_stride;
    float *s, *out;
    int64_t s_stride;
    /* few tokens: */
    const float *conv_w, *conv_b;
    uint32_t *arrived; /* [n_span, n_k_head], zeros */
    float *raw;        /* [n_tok, n_v_head, d_v]: out before its norm */
    act8 out8;         /* q NULL: none */
};

enum { STEP_COLS = 32, STEP_THREADS = STEP_COLS * N_PART };

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

/* Norm, gate and rounding of the new tokens' rows of the heads that share a key head, a warp each. */
__device__ __forceinline__ void norm_heads(const gdn_job &g, const dspan &s, int kh, int rep) {
    int d_v = g.d_v;
    for (int at = (int)threadIdx.x / 32; at < rep * s.n_tok; at += STEP_THREADS / 32) {
        int h = g.is_grouped ? kh * rep + at % rep : kh + at % rep * g.n_k_head,
            lane = (int)threadIdx.x % 32;
        int64_t t = s.row + at / rep, to = (t * g.n_v_head + h) * d_v;
        const float *z = g.z + t * g.z_stride + (int64_t)h * d_v;
        constexpr int WIDE = 2; /* fours of a lane: heads of up to 256 */
        float y[WIDE][4], gate[WIDE][4], sum = 0;
#pragma unroll
        for (int k = 0; k < WIDE; k++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int c = 4 * (lane + 32 * k) + i;
                y[k][i] = c < d_v ? __ldcg(g.raw + to + c) : 0.0f;
                gate[k][i] = c < d_v ? silu(z[c]) * g.norm_w[c] : 0.0f;
                sum += y[k][i] * y[k][i];
            }
        float f = 1.0f / sqrtf(lanes_sum(sum, 32) / (float)d_v + g.eps);
#pragma unroll
        for (int k = 0; k < WIDE; k++) {
            int quad = lane + 32 * k;
            if (128 * k >= d_v) break;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                y[k][i] *= f * gate[k][i];
                if (4 * quad + i < d_v) g.out[to + 4 * quad + i] = y[k][i];
            }
            if (g.out8.q)
                act8_put4(g.out8, to / 4 + quad, make_float4(y[k][0], y[k][1], y[k][2], y[k][3]),
                          4 * quad < d_v);
        }
    }
}

/* Convolution, delta rule, norm and gate of a few tokens. Block (part of the columns, head, span); thread
 * 4 j + p has column j, rows N p + i. Blocks of heads that share a key head make its q and k each by itself; the
 * last of them to arrive writes down what the convolution keeps, and norms their rows. State and weights are read
 * before the wait: no kernel of the list writes them but this one. N: rows of a thread; C: channels. */
template <int N>
__global__ void __launch_bounds__(STEP_THREADS, N == 64 ? 1 : 2)
    gdn_step_kernel(dspans b, rec_view rec, gdn_job g) {
    constexpr int C = (2 * N_PART * N + STEP_COLS + STEP_THREADS - 1) / STEP_THREADS, TAPS = 4;
    constexpr int STRIDE = N + 4; /* of a thread's rows: the four parts then lie in other banks */
    /* q, k, v, in turn; rows beyond the head stay zero */
    __shared__ __align__(16) float line[2][2 * N_PART * STRIDE + STEP_COLS];
    __shared__ uint32_t arrived;
    int tid = (int)threadIdx.x, p = tid % N_PART, mine = tid / N_PART, head = (int)blockIdx.y;
    int col = (int)blockIdx.x * STEP_COLS + mine, d_k = g.d_k, d_v = g.d_v, keep = g.d_conv - 1;
    dspan s = b.spans[blockIdx.z]; /* staged before the list: no kernel writes it */
    bool has = col < d_v, quick = g.d_conv == TAPS;
    int rep = g.n_v_head / g.n_k_head, kh = g.is_grouped ? head / rep : head % g.n_k_head;
    int64_t nq = (int64_t)g.n_k_head * d_k, n_conv = 2 * nq + (int64_t)g.n_v_head * d_v;
    float *state = g.s + s.slot * g.s_stride + (int64_t)head * d_k * d_v, S[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        S[i] = has && N * p + i < d_k ? state[(N * p + i) * d_v + col] : 0.0f;
    for (int i = tid; i < 2 * (2 * N_PART * STRIDE + STEP_COLS); i += STEP_THREADS)
        (&line[0][0])[i] = 0;
    auto place = [&](int e) { /* of channel e in a line */
                              if (e >= 2 * d_k) return 2 * N_PART * STRIDE + e - 2 * d_k;
                              int row = e < d_k ? e : e - d_k;
                              return (e < d_k ? 0 : N_PART * STRIDE) + row / N * STRIDE + row % N;
    };
    /* channel e of the line: q, k of the key head, then the part's columns of v */
    int n_line =
        2 * d_k + (d_v - (int)blockIdx.x * STEP_COLS < STEP_COLS ? d_v - (int)blockIdx.x * STEP_COLS
                                                                 : STEP_COLS);
    auto channel = [&](int e) {
        if (e < d_k) return (int64_t)kh * d_k + e;
        if (e < 2 * d_k) return nq + (int64_t)kh * d_k + e - d_k;
        return 2 * nq + (int64_t)head * d_v + blockIdx.x * STEP_COLS + e - 2 * d_k;
    };
    float old[C][TAPS - 1], bias[C];
    float4 w[C];
#pragma unroll
    for (int c = 0; c < C; c++) {
        int e = tid + c * STEP_THREADS;
        if (e >= n_line || !quick) continue;
        int64_t ch = channel(e);
        bias[c] = g.conv_b ? g.conv_b[ch] : 0.0f;
        w[c] = ((const float4 *)g.conv_w)[ch];
#pragma unroll
        for (int k = 0; k < TAPS - 1; k++)
            old[c][k] = rec.conv[s.slot * (int64_t)rec.conv_stride + k * n_conv + ch];
    }
    float a = g.a[head], dt_bias = g.dt_bias[head];
    launch_next();
    wait_previous();
    __syncthreads();
    int32_t n = s.n_replay + s.n_tok;
    for (int32_t i = 0; i < n; i++) {
        float *now = line[i % 2];
        float decay = row_at(g.alpha, s, (int32_t)blockIdx.z, g.log_cap, i)[head] + dt_bias;
        float beta = row_at(g.beta, s, (int32_t)blockIdx.z, g.log_cap, i)[head];
#pragma unroll
        for (int c = 0; c < C; c++) {
            int e = tid + c * STEP_THREADS;
            if (e >= n_line) continue;
            int64_t ch = channel(e);
            float sum, in = conv_input(rec, g.mixed, s, keep, n_conv, ch, keep + i);
            if (quick) {
                sum = bias[c] + w[c].x * old[c][0] + w[c].y * old[c][1] + w[c].z * old[c][2] +
                      w[c].w * in;
                old[c][0] = old[c][1], old[c][1] = old[c][2], old[c][2] = in;
            } else {
                sum = g.conv_b ? g.conv_b[ch] : 0.0f;
                for (int k = 0; k < keep; k++)
                    sum += g.conv_w[ch * g.d_conv + k] *
                           conv_input(rec, g.mixed, s, keep, n_conv, ch, i + k);
                sum += g.conv_w[ch * g.d_conv + keep] * in;
            }
            now[place(e)] = silu(sum);
        }
        decay = quick_exp(softplus(decay) * a);
        beta = logistic(beta);
        if (i == s.n_replay && s.n_commit == 0) {
#pragma unroll
            for (int r = 0; r < N; r++)
                if (has && N * p + r < d_k) state[(N * p + r) * d_v + col] = S[r];
        }
        __syncthreads();
        const float4 *q4 = (const float4 *)(now + p * STRIDE), *k4 = q4 + N_PART * STRIDE / 4;
        float v = now[2 * N_PART * STRIDE + mine], qq = 0, kk = 0, kept = 0, o = 0;
#pragma unroll
        for (int r = 0; r < N / 4; r++) {
            float4 q = q4[r], k = k4[r];
            qq += q.x * q.x + q.y * q.y + q.z * q.z + q.w * q.w;
            kk += k.x * k.x + k.y * k.y + k.z * k.z + k.w * k.w;
            kept += S[4 * r] * k.x + S[4 * r + 1] * k.y + S[4 * r + 2] * k.z + S[4 * r + 3] * k.w;
        }
        qq = lanes_sum(qq, N_PART);
        kk = lanes_sum(kk, N_PART);
        kept = lanes_sum(kept, N_PART);
        float kf = rsqrtf(kk + g.eps), qf = rsqrtf((qq + g.eps) * (float)d_k);
        float delta = beta * (v - decay * (kept * kf)) * kf;
#pragma unroll
        for (int r = 0; r < N / 4; r++) {
            float4 q = q4[r], k = k4[r];
            S[4 * r] = decay * S[4 * r] + k.x * delta;
            S[4 * r + 1] = decay * S[4 * r + 1] + k.y * delta;
            S[4 * r + 2] = decay * S[4 * r + 2] + k.z * delta;
            S[4 * r + 3] = decay * S[4 * r + 3] + k.w * delta;
            o += S[4 * r] * q.x + S[4 * r + 1] * q.y + S[4 * r + 2] * q.z + S[4 * r + 3] * q.w;
        }
        o = lanes_sum(o, N_PART) * qf;
        int64_t t = s.row + i - s.n_replay;
        if (i >= s.n_replay && has && p == 0) g.raw[(t * g.n_v_head + head) * d_v + col] = o;
    }
    /* the norm wants whole heads, and what is kept of q and k must not change under another block */
    __syncthreads();
    if (tid == 0) {
        __threadfence();
        arrived = atomicAdd(&g.arrived[blockIdx.z * g.n_k_head + (unsigned)kh], 1u) + 1u;
    }
    if (s.n_commit) {
#pragma unroll
        for (int r = 0; r < N; r++)
            if (has && N * p + r < d_k) state[(N * p + r) * d_v + col] = S[r];
    }
    auto keep_channels = [&](int first, int last) {
#pragma unroll
        for (int c = 0; c < C; c++) {
            int e = tid + c * STEP_THREADS;
            if (e < first || e >= last) continue;
            int64_t ch = channel(e);
            if (!quick || s.n_commit == 0) {
                conv_keep(rec, g.mixed, s, keep, n_conv, ch);
                continue;
            }
#pragma unroll
            for (int k = 0; k < TAPS - 1; k++)
                rec.conv[s.slot * (int64_t)rec.conv_stride + k * n_conv + ch] = old[c][k];
        }
    };
    keep_channels(2 * d_k, n_line);
    __syncthreads();
    if (arrived < gridDim.x * (unsigned)rep) return;
    __threadfence();
    norm_heads(g, s, kh, rep);
    keep_channels(0, 2 * d_k);
    if (tid == 0) g.arrived[blockIdx.z * g.n_k_head + (unsigned)kh] = 0;
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
    float *mixed = NULL, *raw = NULL, *ab = NULL;
    if (many) mixed = (float *)cuda_take(c, (size_t)(a->n_tok * n_conv) * 4);
    else {
        raw = (float *)cuda_take(c, (size_t)(a->n_tok * n_out) * 4);
        ab = cuda_turn(c, a->spans, b, &a->state, turned);
    }
    if (c->err.code) return;
    gdn_job g = {};
    g.n_k_head = a->n_k_head, g.n_v_head = a->n_v_head, g.d_k = a->d_k, g.d_v = a->d_v;
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
    g.raw = raw;
    g.arrived = c->arrived;
    if (a->d_v % 32 == 0) g.out8 = cuda_shadow_new(c, a->out, a->n_tok, n_out);
    if (a->d_conv > MAX_CONV || a->n_k_head * a->n_span > CUDA_N_ARRIVED) {
        cuda_fail_with(c, CHIMERE_EUNSUPPORTED,
                       "delta net with a convolution wider than 8, or too many heads");
        return;
    }
    dim3 grid((unsigned)((a->d_v + STEP_COLS - 1) / STEP_COLS), (unsigned)a->n_v_head,
              (unsigned)b.n_span);
    if (a->d_k <= 64) launch(c, gdn_step_kernel<16>, grid, dim3(STEP_THREADS), 0, b, a->state, g);
    else if (a->d_k <= 128)
        launch(c, gdn_step_kernel<32>, grid, dim3(STEP_THREADS), 0, b, a->state, g);
    else launch(c, gdn_step_kernel<64>, grid, dim3(STEP_THREADS), 0, b, a->state, g);
}

/* Rows of logged tokens of every sequence that can be drafted for, and of a batch. */
size_t cuda_recurrent_scratch(const struct dev_need *n) {
    size_t row =
        (size_t)n->n_conv + (size_t)n->n_v_head * 2 + 2 * (size_t)n->n_v_head * (size_t)n->d_rec_v;
    size_t n_log = (size_t)(n->n_tok < 64 ? n->n_tok : 64) * STEP_MAX_TOK;
    return ((size_t)n->n_tok + 2 * n_log) * row * 4 + 16 * 256;
}
