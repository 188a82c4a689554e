/* ops.h: THE list of operations; one table of function pointers per device.
 *
 * Every op has a scalar reference in ref/ref_*.c that defines it; a device's version agrees with the
 * reference within the tolerance named at the op (relative to the largest |reference| of the output).
 * Ops return void. A device fails stickily: after a failure every op is a no-op and status() tells;
 * the caller asks once per step. Outputs never overlap inputs unless the op says so. Rows of a batch
 * are independent: what one row holds, NaN included, changes no bit of another row's result, and the
 * result of a row does not depend on how many rows the call has (n_tok <= STEP_MAX_TOK; beyond that
 * only scans may differ, within their tolerance).
 * One thread at a time per device. No op allocates: scratch is sized by reserve(). */
#ifndef CHIMERE_KERNELS_OPS_H
#define CHIMERE_KERNELS_OPS_H

#include "base/err.h"
#include "kernels/tensor.h"

struct ops;
struct dev_need;
struct dev { /* first member of every device's own context */
    const struct ops *ops;
};

/* ---- arguments ---- */

enum act {
    ACT_SILU,
    ACT_GELU,
    ACT_GELU_ERF,
    ACT_RELU,
    ACT_RELU2,
    ACT_SIGMOID,
    ACT_NONE,
    ACT_CLAMPED /* of a mixture's gate alone: g logistic(1.702 g) (1 + u), g <= 7, |u| <= 7 */
};

/* One result of a linear op: dst[t, 0..n_out) = w x[t] + bias, or += when add is set. */
struct linear_out {
    const struct weight *w; /* n_mat 1 */
    const float *bias;      /* [n_out] or NULL */
    float *dst;             /* [n_tok, dst_stride] */
    int64_t dst_stride;
    float scale; /* multiplies w x before bias and addition; 1 usually */
    bool add;
};

enum rope_mode {
    ROPE_NONE,
    ROPE_NORM /* pairs (2i, 2i+1) */,
    ROPE_NEOX /* pairs (i, i + n_rot/2) */
};
struct rope {
    enum rope_mode mode;
    int32_t n_rot;         /* leading elements of a head that rotate */
    const float *inv_freq; /* [n_rot / 2] */
    float magnitude;       /* multiplies sine and cosine (YaRN); 1 usually */
};

/* Per-head RMS norm (where weights are given) and RoPE of queries and keys, then keys and values into
 * their pages at positions span.pos + i. Head h of token t starts at src + t * tok_stride +
 * h * head_stride. */
struct qkv_store_args {
    const struct span *spans;
    int32_t n_span, n_tok, n_head;
    const float *q, *k, *v; /* k NULL: queries alone, the cache is another layer's */
    int64_t q_tok_stride, q_head_stride, k_tok_stride, v_tok_stride; /* k, v heads are dense */
    const float *q_norm, *k_norm;                                    /* [d_k] or NULL */
    float eps;
    struct rope rope;
    struct kv_view kv;
    float *q_out; /* for attn(): [n_tok, n_head, d_k], rotated if kv.rotate; may be q where dense */
};

/* out[t, h] = softmax(scale * q k^T over positions <= own) v, times sigmoid(gate) where given. Query
 * head h uses kv head h / (n_head / n_kv_head). */
struct attn_args {
    const struct span *spans;
    int32_t n_span, n_tok, n_head;
    const float *q; /* [n_tok, n_head, d_k] from qkv_store */
    struct kv_view kv;
    float scale, softcap; /* softcap 0: none; else s = softcap * tanh(s / softcap) */
    int32_t window;       /* 0: all; else positions > own - window */
    int32_t n_keep;       /* positions below it are seen whatever the window */
    const float *sinks;   /* [n_head] or NULL: an extra logit without value */
    const float *gate;    /* or NULL */
    int64_t gate_tok_stride, gate_head_stride;
    float *out; /* [n_tok, n_head, d_v] */
};

/* Attention inside the batch, every token of a span sees the whole span (encoders). Dense heads. */
struct attn_full_args {
    const struct span *spans;
    int32_t n_span, n_tok, n_head, d_head;
    const float *q, *k, *v; /* [n_tok, n_head, d_head] */
    float scale;
    float *out;
};

/* Gated delta-net mixer (Yang et al., Gated Delta Networks, arXiv:2412.06464, as Qwen3.5 has it), from
 * raw projections to the gated, normed output. Per token: causal depthwise conv of width d_conv over
 * [q|k|v] and SiLU; q, k L2-normalised per head (x / sqrt(sum x^2 + eps)), q times d_k^-1/2;
 * g = softplus(alpha + dt_bias) * a, b = sigmoid(beta); per value head, S in R^{d_k x d_v}:
 *   S *= exp(g);  d = b (v - S^T k);  S += k d^T;  o = S^T q
 * out = rms_norm(o; norm_w, eps) * silu(z). Value head j reads key head j % n_k_head (tiled) or
 * j / (n_v_head / n_k_head) (grouped).
 * state: s [n_v_head, d_k, d_v]; conv
 * [d_conv - 1, n_conv], n_conv = 2 n_k_head d_k + n_v_head d_v; log row [n_conv | alpha | beta]. */
struct gdn_args {
    const struct span *spans;
    int32_t n_span, n_tok;
    int32_t n_k_head, n_v_head, d_k, d_v, d_conv;
    bool is_grouped;
    float eps;
    const float *qkv, *z; /* [n_tok, qkv_stride] (n_conv used), [n_tok, n_v_head * d_v] */
    int64_t qkv_stride, z_stride;
    const float *alpha, *beta; /* [n_tok, n_v_head] */
    const float *conv_w;       /* [n_conv, d_conv], newest tap last */
    const float *conv_b;       /* [n_conv] or NULL */
    const float *a, *dt_bias;  /* [n_v_head] */
    const float *norm_w;       /* [d_v] */
    struct rec_view state;
    float *out; /* [n_tok, n_v_head * d_v] */
};

/* Causal depthwise convolution: out[t, c] = f(b[c] + sum_j w[c, j] x[t - d_conv + 1 + j, c]), f = silu or
 * identity. What recurrent mixers put before their scan; its output is what the scan logs for itself.
 * state: conv [d_conv - 1, n_conv]; log: the raw x, in the first n_conv floats of a row. */
struct conv_args {
    const struct span *spans;
    int32_t n_span, n_tok, d_conv;
    int64_t n_conv;
    const float *x; /* [n_tok, x_stride], n_conv used */
    int64_t x_stride;
    const float *w; /* [n_conv, d_conv], newest tap last */
    const float *b; /* [n_conv] or NULL */
    bool silu;
    struct rec_view state;
    float *out; /* [n_tok, out_stride] */
    int64_t out_stride;
};

/* Mamba-1's selective scan (Gu and Dao, arXiv:2312.00752). Per token and channel c:
 *   t = softplus(dt[c]);  S[c, n] = exp(t a[c, n]) S[c, n] + t x[c] B[n]
 *   out[c] = (sum_n C[n] S[c, n] + d[c] x[c]) * silu(z[c])
 * state: s [n_inner / lanes, d_state, lanes] (state_lanes); log from log_at: [x | dt | B | C]. */
struct ssm_args {
    const struct span *spans;
    int32_t n_span, n_tok, d_state;
    int64_t n_inner;
    const float *x, *dt, *b, *c, *z; /* x convolved, dt with its bias; z or NULL; strides below */
    int64_t x_stride, dt_stride, bc_stride, z_stride;
    const float *a; /* [n_inner, d_state], negative */
    const float *d; /* [n_inner] */
    struct rec_view state;
    size_t log_at; /* where this op's part of a log row begins, in floats */
    float *out;    /* [n_tok, n_inner] */
};

/* Mamba-2's scan (Dao and Gu, arXiv:2405.21060), gate and norm. Head h reads group
 * g = h / (n_head / n_group); per token, S in R^{d_head x d_state}:
 *   t = clamp(softplus(dt[h] + dt_bias[h]), dt_min, dt_max)
 *   S = exp(t a[h]) S + (t x_h) B_g^T;  y_h = S C_g + d[h] x_h
 * then out = norm(y * silu(z)), or norm(y) * silu(z) where norm_first; z NULL: no gate; norm_w NULL: no
 * norm, else RMS over each of n_norm equal parts of a row, whole heads each.
 * state: s [n_head * d_head / lanes, d_state, lanes] (state_lanes); log from log_at: [x | B | C | dt]. */
struct ssd_args {
    const struct span *spans;
    int32_t n_span, n_tok, n_head, n_group, d_head, d_state, n_norm;
    const float *xbc; /* convolved [n_tok, xbc_stride]: x [n_head d_head], B, C [n_group d_state] */
    const float *dt, *z;
    int64_t xbc_stride, dt_stride, z_stride;
    const float *a, *d, *dt_bias; /* [n_head] */
    float dt_min, dt_max;
    const float *norm_w; /* [n_head * d_head] */
    bool norm_first;
    float eps;
    struct rec_view state;
    size_t log_at;
    float *out; /* [n_tok, n_head * d_head] */
};

/* out += down(act(gate x) * up x), or += down(act(up x)) where gate is NULL. Biases may be NULL. row_gate:
 * what a row adds is multiplied by sigmoid(<row_gate, x>); NULL: by 1; not with down_b or down_scale. */
struct ffn_args {
    int32_t n_tok;
    enum act act;
    const float *x; /* [n_tok, n_embd] */
    const struct weight *gate, *up, *down;
    const float *gate_b, *up_b, *down_b;
    float gate_scale, down_scale; /* 1 usually */
    const float *row_gate;        /* [n_embd] or NULL */
    float *out;
};

enum moe_gating {
    MOE_SOFTMAX,
    MOE_SIGMOID,
    MOE_SOFTMAX_CHOSEN /* softmax over the chosen logits */
};

/* Mixture of experts: scores = gating(router x); the n_used largest of scores + select_bias (ties: the
 * lower index); their weights are the scores, divided by their sum where normalise, times scale.
 * out += sum_e weight_e * ffn_e(x) + shared, shared = ffn_shared(x) * sigmoid(<shared_gate_w, x>)
 * (factor 1 where shared_gate_w is NULL). A token whose scores are not finite gets NaN and ids of -1,
 * alone. `chosen` replaces the choice and keeps the weights: they come from the scores of those experts.
 * With `keep`, of a token's chosen experts those stay whose greater ones together have less than its mass of the
 * weights' sum, n_min at least; the others add nothing and are -2 - expert in ids. Weights of a softmax are
 * divided by the sum of those that stay, of a sigmoid by that of all.
 * With `place`, experts at a negative place add nothing in this call: on the processor, calls with ascending
 * experts, the shared one in the last, add up to the bits of one call with all. */
/* Rows that a mixture adds to its products; NULL: none. */
struct moe_bias {
    const float *router;    /* [n_expert], to the logits */
    const float *gate, *up; /* [n_expert, n_ff] */
    const float *down;      /* [n_expert, n_embd] */
};

struct moe_args {
    int32_t n_tok, n_used;
    enum moe_gating gating;
    bool normalise;
    float scale;
    enum act act;
    const float *x;              /* [n_tok, n_embd] */
    const struct weight *router; /* [n_expert, n_embd] */
    const float *
        logits; /* [n_tok, n_expert] of the router, bias included, where the host's device is given them; else NULL */
    const float *select_bias;                       /* [n_expert] or NULL */
    const struct weight *gate, *up, *down;          /* stacks of n_expert; gate may be NULL */
    struct moe_bias bias;                           /* of the routed experts */
    const struct weight *sh_gate, *sh_up, *sh_down; /* NULL: no shared expert, or no gate */
    const float *shared_gate_w;                     /* [n_embd] or NULL */
    float *out;                                     /* [n_tok, n_embd] */
    int32_t *ids;                                   /* [n_tok, n_used] chosen experts, or NULL */
    const int32_t *chosen; /* [n_tok, n_used] experts in place of the router's choice, a row of -1:
                              not finite; one below counts as if it had stayed; NULL: the router chooses */
    const struct moe_keep *keep; /* [n_tok]; NULL: all stay */
    const int32_t *place; /* [n_expert] the matrix of each expert in the stacks, host devices only;
                              NULL: its own number */
};

/* What a chain of samplers needs of rows of logits, so that no whole row need cross to the host: all but
 * the logits are the host's memory. Order of ids and logits: any. */
enum {
    SELECT_TOP = 1024,
    SELECT_CAP = 2 * SELECT_TOP,
    SELECT_MAX_IDS = 4096, /* wanted of one row */
};
struct select_row {    /* over the tokens that the row's mask allows */
    double log_sum;    /* log of the sum of e^(logit - max) */
    double entropy;    /* nats */
    float max;         /* -infinity: none is allowed */
    int32_t n;         /* candidates; -1: so many are equal that only the whole row tells */
    int32_t is_finite; /* 0: the row, allowed or not, holds NaN, +infinity or nothing finite */
    int32_t n_finite;  /* allowed tokens whose logit is finite */
    int32_t ids[SELECT_CAP];
    float logits[SELECT_CAP];
};
struct select_args {
    int32_t n_row, n_vocab;
    const float *logits; /* [n_row, n_vocab] */
    const uint64_t *const
        *masks; /* [n_row] of [ceil(n_vocab / 64)]: bit set: allowed; NULL: all are */
    const int32_t *ids, *id_at; /* logits ids[id_at[r] .. id_at[r + 1]) of row r are wanted too */
    struct select_row *rows;    /* [n_row] */
    float *id_logits;           /* [id_at[n_row]], whatever the masks say */
};

enum { STATE_BLOCK = 8192 }; /* floats of lanes * d_state at most, where lanes > 1 */

/* ---- measuring ---- */

enum { DEV_MAX_OPS = 32 }; /* rows of the table that compute */
struct dev_stats {
    uint64_t n_launch, n_graph, n_list; /* kernels run; lists of them sent, of which as graphs */
    uint64_t bytes_used, bytes_total;   /* of the device's memory */
    struct load_stats {                 /* prepare() and stage() */
        int32_t n_thread;               /* that rearrange */
        uint64_t packed_bytes, copied_bytes; /* as the file has them; in the device's form */
        double pack_us, copy_us;             /* the processor's and the bus's, beside each other */
    } load;
};
struct op_time {
    const char *op; /* static: the row's name; "other" for what no op asked for */
    uint64_t n_launch;
    double us;
};

/* ---- the table ---- */

struct ops {
    const char *name;
    bool is_host; /* device memory can be read by the host directly */

    /* Memory of the device. alloc zeroes; NULL when short. */
    void *(*alloc)(struct dev *d, size_t n);
    void (*free)(struct dev *d, void *p);
    void (*upload)(struct dev *d, void *dst, const void *src, size_t n);
    void (*download)(struct dev *d, void *dst, const void *src, size_t n); /* waits */
    /* download in two steps, into memory of host_alloc, at a multiple of 16. Ops recorded between them begin
     * before download_wait, which waits for the bytes alone. NULL if device memory is the host's. */
    void (*download_async)(struct dev *d, void *dst, const void *src, size_t n);
    void (*download_wait)(struct dev *d);
    void (*copy)(struct dev *d, void *dst, const void *src, size_t n); /* may overlap: no */
    void (*zero)(struct dev *d, void *dst, size_t n);
    /* Flush: submits the recorded ops asynchronously. */
    void (*flush)(struct dev *d);
    uint64_t (*free_bytes)(struct dev *d); /* that alloc may still give; 0: they are the host's */
    size_t (*scratch_bytes)(struct dev *d,
                            const struct dev_need *need); /* that reserve will take */
    /* Host memory that the device copies to and from at the full speed of the bus, that axpby may read as
     * its x and linear write as its dst, in place; NULL rows where device memory is the host's. */
    void *(*host_alloc)(struct dev *d, size_t n);
    void (*host_free)(struct dev *d, void *p);
    /* Scratch for batches of n_tok with rows and expert hidden sizes as given by the model. */
    int (*reserve)(struct dev *d, const struct dev_need *need, struct err *e);
    /* 0, or the first failure since open with its sentence. Waits for the device. */
    int (*status)(struct dev *d, struct err *e);
    void (*close)(struct dev *d);

    /* Bytes a second that a plain sum over memory larger than the caches reads, best of a few; 0: no room
     * for it. NULL: the reference. */
    double (*read_bandwidth)(struct dev *d);
    /* Since the device was opened. NULL where nothing is launched. */
    void (*stats)(const struct dev *d, struct dev_stats *s);
    /* out NULL: times every op from here on. Else ends it, fills out [DEV_MAX_OPS] with what ran since,
     * the longest first, and returns how many. Waits. NULL where ops are not timed. */
    int32_t (*time_ops)(struct dev *d, struct op_time *out);

    /* Device form of a weight: the bytes it needs (0: multiplies as the file has it), then the lossless
     * rearrangement of w (layout 0, host memory) into dst; w2 describes the result. CHIMERE_ENUMERIC: w
     * holds NaN or infinity, seen on the way. */
    size_t (*prepared_bytes)(struct dev *d, const struct weight *w);
    int (*prepare)(struct dev *d, const struct weight *w, void *dst, struct weight *w2);
    /* prepare, asynchronous, for weights of one pass: copies into dst begin when the ops recorded before the
     * last stage_fence are done. Ops recorded after stage_fence see all that was staged so far. The form may
     * differ from prepare's, and is no longer. NULL if device memory is the host's. */
    int (*stage)(struct dev *d, const struct weight *w, void *dst, struct weight *w2);
    void (*stage_fence)(struct dev *d);

    /* Channels of Mamba's state that lie side by side in this device's memory, a divisor of n_channel: what
     * leaves the device has them one by one. d_head 0: Mamba-1. NULL: 1. */
    int32_t (*state_lanes)(int64_t n_channel, int32_t d_head, int32_t d_state);

    /* out[t] = scale * row ids[t] of w. w has layout 0. Exact. */
    void (*embed)(struct dev *d, float *out, const struct weight *w, const int32_t *ids,
                  int32_t n_tok, float scale);
    /* out[r] = x[r] * w / sqrt(mean(x[r]^2) + eps) over n_row rows of n; w may be NULL. out may be x.
     * Tolerance 1e-6. */
    void (*rms_norm)(struct dev *d, float *out, const float *x, const float *w, int64_t n_row,
                     int64_t n, float eps);
    /* out[r] = (x - mean) / sqrt(var + eps) * w + b. out may be x. 1e-6. */
    void (*layer_norm)(struct dev *d, float *out, const float *x, const float *w, const float *b,
                       int64_t n_row, int64_t n, float eps);
    /* n_out matrices times the same rows. float weights 1e-5; quantised weights: activations may be
     * rounded to 8 bits per block of 32 (1e-2 against the float reference; 1e-5 against ref_linear_q8,
     * which rounds the same way). */
    void (*linear)(struct dev *d, const struct linear_out *o, int32_t n_o, const float *x,
                   int64_t x_stride, int32_t n_tok);
    void (*qkv_store)(struct dev *d, const struct qkv_store_args *a); /* 1e-5 before rounding */
    void (*attn)(struct dev *d, const struct attn_args *a); /* 1e-5; q8_0, q4_0 caches 2e-3 */
    void (*attn_full)(struct dev *d, const struct attn_full_args *a); /* 1e-5 */
    void (*gdn)(struct dev *d, const struct gdn_args *a);             /* steps 1e-5; chunked 1e-4 */
    void (*conv)(struct dev *d, const struct conv_args *a);           /* 1e-5 */
    void (*ssm)(struct dev *d, const struct ssm_args *a);             /* steps 1e-5; chunked 1e-4 */
    void (*ssd)(struct dev *d, const struct ssd_args *a);             /* steps 1e-5; chunked 1e-4 */
    void (*ffn)(struct dev *d, const struct ffn_args *a);             /* as linear */
    void (*moe)(struct dev *d, const struct moe_args *a);             /* as linear */
    /* a->ids alone: the choice that moe makes. Returns the logits that it was made from, for moe's a->logits,
     * valid until the next op; NULL: moe computes them again. A NULL row if device memory is not the host's. */
    const float *(*route)(struct dev *d, const struct moe_args *a);
    /* out[i] = act(a[i]) * b[i]; b NULL: act(a). out may be a or b. 1e-6 */
    void (*act_mul)(struct dev *d, float *out, const float *a, const float *b, int64_t n,
                    enum act act);
    /* y[i] = alpha * x[i] + beta * y[i]; y may be x. Exact rounding not promised: 1e-6. */
    /* y = alpha x + beta y; y may be x. */
    void (*axpby)(struct dev *d, float *y, float alpha, const float *x, float beta, int64_t n);
    /* out[i] = row rows[i] of x, n floats each. Exact. */
    void (*gather_rows)(struct dev *d, float *out, const float *x, const int32_t *rows,
                        int32_t n_row, int64_t n);
    /* Of each row at least SELECT_TOP candidates (fewer only where fewer are finite), and every token that
     * is none of them has a smaller logit than each of them. Logits exact, sums 1e-6. Waits. */
    void (*select)(struct dev *d, const struct select_args *a);
};

/* What scratch must be able to serve. */
struct dev_need {
    int32_t n_tok;       /* rows of the largest batch */
    int64_t n_in, n_out; /* widest input row and output row of any linear op */
    int64_t n_ff;        /* widest hidden row of an ffn or one expert */
    int32_t n_expert, n_used;
    int32_t n_head, d_head;    /* widest attention */
    int32_t n_v_head, d_state; /* widest recurrent mixer: heads and per-head state elements */
    int32_t d_rec_k, d_rec_v;  /* and its two sizes; Mamba-1: a channel is a head of d_rec_v 1 */
    int64_t n_conv;
    int64_t n_ctx; /* longest sequence */
    bool stages;   /* stage() will be called */
};

#endif
