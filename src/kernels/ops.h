/* ops.h: THE list of operations; one table of function pointers per device.
 *
 * Every op has a scalar reference in ref/ref_*.c that defines it. A device's version agrees with the reference within
 * the tolerance stated at the op (relative to the largest |reference| of the output). Ops return void and failures are
 * sticky: after a failure every op is a no-op and status() reports it; the caller checks once per step. Outputs never
 * overlap inputs unless the op says so. Rows of a batch are independent: the contents of a row, NaN included, change no
 * bit of another row's result, and a row's result does not depend on how many rows the call has (n_tok <= STEP_MAX_TOK;
 * above, only recurrences may differ, within their tolerance). One thread at a time per device. Ops do not allocate:
 * reserve() allocates scratch. */
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
    ACT_CLAMPED, /* mixture of experts only: g logistic(1.702 g) (1 + u), g <= 7, |u| <= 7 */
    ACT_TANH     /* act_mul only */
};

/* One result of a linear op: dst[t, 0..n_out) = w x[t] + bias, or += if add is set. */
struct linear_out {
    const struct weight *w; /* n_mat 1 */
    const float *bias;      /* [n_out] or NULL */
    float *dst;             /* [n_tok, dst_stride] */
    int64_t dst_stride;
    float scale; /* multiplies w x before bias and addition; usually 1 */
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
    float magnitude;       /* multiplies sine and cosine (YaRN); usually 1 */
};

/* Per-head RMS norm (if weights are given), RoPE of queries and keys; then keys and values are stored in their pages at
 * positions span.pos + i. Head h of token t starts at src + t * tok_stride + h * head_stride. With leads, the first n_rot
 * elements of a head are there, and q and k have only the others, which norms cover; this needs kv.v_in_k. */
struct qkv_store_args {
    const struct span *spans;
    int32_t n_span, n_tok, n_head;
    /* k NULL: queries only; the cache is that of another layer. v NULL: kv.v_in_k */
    const float *q, *k, *v;
    int64_t q_tok_stride, q_head_stride, k_tok_stride, v_tok_stride; /* k, v heads are dense */
    const float *q_norm, *k_norm, *v_norm; /* [d_k], [d_v] or NULL; v may be k */
    float eps;
    struct rope rope;
    struct kv_view kv;
    float *q_out; /* for attn(): [n_tok, n_head, d_k], rotated if kv.rotate; may be a dense q */
    const float *q_lead, *k_lead; /* or NULL; keys have k_tok_stride */
    int64_t q_lead_tok_stride, q_lead_head_stride;
};

/* out[t, h] = softmax(scale * q k^T over positions <= own) v, times sigmoid(gate) if a gate is given. Query head h
 * uses kv head h / (n_head / n_kv_head). */
struct attn_args {
    const struct span *spans;
    int32_t n_span, n_tok, n_head;
    const float *q; /* [n_tok, n_head, d_k] from qkv_store */
    struct kv_view kv;
    float scale, softcap; /* softcap 0: none; else s = softcap * tanh(s / softcap) */
    int32_t window;       /* 0: all; else positions > own - window */
    int32_t n_keep;       /* positions below it are visible regardless of the window */
    const float *sinks;   /* [n_head] or NULL: an extra logit without a value */
    const float *gate;    /* NULL: none */
    int64_t gate_tok_stride, gate_head_stride;
    float *out; /* [n_tok, n_head, d_v] */
};

/* Attention inside the batch: every token of a span sees the whole span, or the tokens at a distance of at most
 * `window` (encoders). Dense heads. To the score of a key at distance n = key - query, head h adds
 * bias[h][n + n_bias], n limited to -n_bias .. n_bias. */
struct attn_full_args {
    const struct span *spans;
    int32_t n_span, n_tok, n_head, d_head;
    const float *q, *k, *v; /* [n_tok, n_head, d_head] */
    float scale;
    float *out;
    int32_t window;    /* 0: all */
    const float *bias; /* [n_head, 2 n_bias + 1] or NULL */
    int32_t n_bias;
};

/* Gated delta net (Yang et al., Gated Delta Networks, arXiv:2412.06464, in the variant of Qwen3.5), from the raw
 * projections to the gated, normalized output. Per token: causal depthwise convolution of width d_conv over [q|k|v] and
 * SiLU; q, k L2-normalized per head (x / sqrt(sum x^2 + eps)), q times d_k^-1/2; g = softplus(alpha + dt_bias) * a, b =
 * beta_scale * sigmoid(beta); per value head, S in R^{d_k x d_v}:
 *   S *= exp(g);  d = b (v - S^T k);  S += k d^T;  o = S^T q
 * out = rms_norm(o; norm_w, norm_eps) * silu(z). Value head j reads key head j % n_k_head (tiled) or j / (n_v_head /
 * n_k_head) (grouped). State: s [n_v_head, d_k, d_v]; conv [d_conv - 1, n_conv], n_conv = 2 n_k_head d_k + n_v_head
 * d_v; log row [n_conv | alpha | beta]. */
struct gdn_args {
    const struct span *spans;
    int32_t n_span, n_tok;
    int32_t n_k_head, n_v_head, d_k, d_v, d_conv;
    bool is_grouped;
    float eps, norm_eps, beta_scale; /* beta_scale: usually 1 */
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

/* Causal depthwise convolution: out[t, c] = f(b[c] + sum_j w[c, j] x[t - d_conv + 1 + j, c]), f = silu or identity.
 * It precedes the recurrence of a mixer, which logs this op's output as its own input. state: conv [d_conv - 1,
 * n_conv]; log: the raw x, in the first n_conv floats of a row. */
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
    size_t log_at; /* offset of this op's part of a log row, in floats */
    float *out;    /* [n_tok, n_inner] */
};

/* Mamba-2's scan (Dao and Gu, arXiv:2405.21060), gate and norm. Head h reads group
 * g = h / (n_head / n_group); per token, S in R^{d_head x d_state}:
 *   t = clamp(softplus(dt[h] + dt_bias[h]), dt_min, dt_max)
 *   S = exp(t a[h]) S + (t x_h) B_g^T;  y_h = S C_g + d[h] x_h
 * then out = norm(y * silu(z)), or norm(y) * silu(z) if norm_first; z NULL: no gate; norm_w NULL: no norm, else RMS
 * over each of n_norm equal parts of a row, which consist of whole heads.
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

/* out += down(act(gate x) * up x), or += down(act(up x)) if gate is NULL. Biases may be NULL. row_gate: the result of
 * a row is multiplied by sigmoid(<row_gate, x>); NULL: by 1; not together with down_b or down_scale. */
struct ffn_args {
    int32_t n_tok;
    enum act act;
    const float *x; /* [n_tok, n_embd] */
    const struct weight *gate, *up, *down;
    const float *gate_b, *up_b, *down_b;
    float gate_scale, down_scale; /* usually 1 */
    const float *row_gate;        /* [n_embd] or NULL */
    float *out;
};

enum moe_gating {
    MOE_SOFTMAX,
    MOE_SIGMOID,
    MOE_SOFTMAX_CHOSEN /* softmax over the chosen logits */
};
/* If the choice is by groups: groups, and experts. */
enum { MOE_MAX_GROUP = 32, MOE_MAX_GROUPED = 1024 };

/* Mixture of experts: scores = gating(router x). The n_used experts with the largest scores + select_bias are chosen
 * (ties: the lower index). With n_group > 1 (MOE_SIGMOID alone), only experts of the n_group_used best groups can be
 * chosen; a group is n_expert / n_group adjacent experts, and its value the sum of its two largest scores + select_bias
 * (ties: the lower index). The weights of the chosen are the scores, divided by their sum if normalise, times scale and
 * expert_scale. out += sum_e weight_e * ffn_e(x) + shared, shared = ffn_shared(x) * sigmoid(<shared_gate_w, x>)
 * (factor 1 if shared_gate_w is NULL). A token whose scores are not finite gets NaN and ids of -1; other tokens are
 * not affected. `chosen` replaces the choice; the weights still come from the scores of the given experts. `keep`
 * drops an expert of a token if its greater ones together have at least the mass `mass` of the weights' sum and number
 * n_min or more. A dropped expert adds nothing; its id becomes -2 - expert. Softmax weights are divided by the sum of
 * the kept experts, sigmoid weights by the sum of all. With `place`, experts at a negative place add nothing. On the
 * processor, calls with ascending experts, the shared one in the last call, give the same bits as one call with all
 * experts. */
/* Biases of the products of a mixture of experts; NULL: none. */
struct moe_bias {
    const float *router;    /* [n_expert], to the logits */
    const float *gate, *up; /* [n_expert, n_ff] */
    const float *down;      /* [n_expert, n_embd] */
};

enum moe_pass {
    MOE_WHOLE,
    MOE_EARLY, /* only prepares the experts that have a place, and the shared one; adds nothing */
    MOE_REST,  /* follows MOE_EARLY with the same rows and no op between: adds all experts */
};
struct moe_args {
    int32_t n_tok, n_used;
    int32_t n_group, n_group_used; /* n_group below 2: no groups */
    enum moe_gating gating;
    bool normalise;
    float scale;
    const float *expert_scale; /* [n_expert] factors of the experts' weights; NULL: 1 */
    enum act act;
    const float *x;              /* [n_tok, n_embd] */
    const struct weight *router; /* [n_expert, n_embd]; with logits, only n_expert matters */
    const float *logits; /* [n_tok, n_expert] of the router, with bias; NULL: not computed yet */
    const float *select_bias;                       /* [n_expert] or NULL */
    const struct weight *gate, *up, *down;          /* stacks of n_expert; gate may be NULL */
    struct moe_bias bias;                           /* of the routed experts */
    const struct weight *sh_gate, *sh_up, *sh_down; /* NULL: no shared expert, or no gate */
    const float *shared_gate_w;                     /* [n_embd] or NULL */
    float *out;                                     /* [n_tok, n_embd] */
    int32_t *ids;                                   /* [n_tok, n_used] chosen experts, or NULL */
    /* [n_tok, n_used] experts to use instead of the router's choice; NULL: the router chooses. -1 in a row: its
     * scores were not finite. Dropped ids count as kept. */
    const int32_t *chosen;
    const struct moe_keep *keep; /* [n_tok]; NULL: all are kept */
    /* [n_expert] each expert's index in the stacks, host only; NULL: its number */
    const int32_t *place;
    enum moe_pass pass;
    const int32_t *early; /* with MOE_REST: `place` of the MOE_EARLY call */
    /* NULL: gate, up and down are in the device's memory. Otherwise they are in host memory, and the op copies the
     * experts that it needs into the pool's slots, or for more than STEP_MAX_TOK rows into its stage. No biases of
     * experts. */
    const struct moe_pool *pool;
};

/* What a sampler chain needs from rows of logits, so that whole rows need not be copied to the host. Everything
 * except the logits is in host memory. Ids and logits are in no particular order. */
enum {
    SELECT_TOP = 1024,
    SELECT_CAP = 2 * SELECT_TOP,
    SELECT_MAX_IDS = 4096, /* listed ids per row */
};
struct select_row {    /* over the tokens that the row's mask allows */
    double log_sum;    /* log of the sum of e^(logit - max) */
    double entropy;    /* nats */
    float max;         /* -infinity: none is allowed */
    int32_t n;         /* candidates; -1: too many are equal, the whole row is needed */
    int32_t is_finite; /* 0: the row, masked or not, has NaN or +infinity or no finite value */
    int32_t n_finite;  /* allowed tokens whose logit is finite */
    int32_t ids[SELECT_CAP];
    float logits[SELECT_CAP];
};
struct select_args {
    int32_t n_row, n_vocab;
    const float *logits; /* [n_row, n_vocab] */
    const uint64_t *const
        *masks; /* [n_row] of [ceil(n_vocab / 64)]; bit set: allowed; NULL: all are allowed */
    const int32_t *ids, *id_at; /* also return logits ids[id_at[r] .. id_at[r + 1]) of row r */
    struct select_row *rows;    /* [n_row] */
    float *id_logits;           /* [id_at[n_row]], regardless of the masks */
};

/* A sum over devices that access each other's memory (link.h). */
enum { PEERS_MAX = 8, PEER_LATE = 1 << 8 };
struct peer_args {
    int32_t n_rank, rank;
    uint32_t epoch;        /* number of the sum, the same on all ranks; never 0 */
    void *room[PEERS_MAX]; /* [n_rank] of peer_bytes, each on its rank's device, zeros at first */
    int64_t n_max, n;      /* floats: of the longest sum, of this one */
    float *part;           /* [n] the summand; becomes the sum, or zeros if x is given */
    float *x; /* [n] x += scale * sum; NULL: none. Aligned as alloc aligns, like part */
    float scale;
    /* memory of host_alloc: the rank, plus one, that ends all waits of the others; a rank that missed the deadline is
     * written here plus PEER_LATE */
    uint32_t *gone;
    int64_t deadline_ns;
};

enum { STATE_BLOCK = 8192 }; /* maximum of lanes * d_state in floats, if lanes > 1 */

/* ---- measurement ---- */

enum { DEV_MAX_TIMES = 128, DEV_TIME_NAME = 64 };
enum time_by { TIME_BY_OP, TIME_BY_KERNEL };
struct dev_stats {
    uint64_t n_launch, n_graph, n_list;      /* kernels run; lists sent; of these, as graphs */
    uint64_t bytes_used, bytes_total;        /* of the device's memory */
    struct load_stats {                      /* prepare() and stage() */
        int32_t n_thread;                    /* threads that repack */
        uint64_t packed_bytes, copied_bytes; /* in the file's form; in the device's form */
        double pack_us, copy_us;             /* processor, bus; concurrent */
    } load;
};
struct op_time {
    char name[DEV_TIME_NAME]; /* of the op, "other" for launches outside an op; or of the kernel */
    uint64_t n_launch, bytes; /* bytes: read by each launch, as far as known */
    double us;
};

/* ---- the table ---- */

struct ops {
    const char *name;
    bool is_host; /* device memory can be read by the host directly */

    /* Device memory. alloc clears it and returns NULL if there is not enough. */
    void *(*alloc)(struct dev *d, size_t n);
    void (*free)(struct dev *d, void *p);
    void (*upload)(struct dev *d, void *dst, const void *src, size_t n);
    void (*download)(struct dev *d, void *dst, const void *src, size_t n); /* waits */
    /* download in two steps, to memory of host_alloc, at a multiple of 16. Ops recorded in between may start before
     * download_wait, which waits only for the bytes. NULL if device memory is host memory. */
    void (*download_async)(struct dev *d, void *dst, const void *src, size_t n);
    void (*download_wait)(struct dev *d);
    void (*copy)(struct dev *d, void *dst, const void *src, size_t n); /* ranges must not overlap */
    void (*zero)(struct dev *d, void *dst, size_t n);
    /* Submits the recorded ops asynchronously. */
    void (*flush)(struct dev *d);
    uint64_t (*free_bytes)(struct dev *d); /* that alloc can still return; 0: host memory */
    size_t (*scratch_bytes)(struct dev *d,
                            const struct dev_need *need); /* that reserve will allocate */
    /* Host memory that the device copies to and from at full bus speed; axpby may read it as x and linear may write
     * it as dst, in place. Both NULL if device memory is host memory. */
    void *(*host_alloc)(struct dev *d, size_t n);
    void (*host_free)(struct dev *d, void *p);
    /* Allocates scratch for batches up to `need`. */
    int (*reserve)(struct dev *d, const struct dev_need *need, struct err *e);
    /* 0, or the first failure since open, with its message. Waits for the device. */
    int (*status)(struct dev *d, struct err *e);
    void (*close)(struct dev *d);

    /* Bytes per second that a plain sum over memory larger than the caches reads, best of a few runs; 0: not
     * enough memory. NULL in the reference. */
    double (*read_bandwidth)(struct dev *d);
    /* Since the device was opened. NULL if nothing is launched. */
    void (*stats)(const struct dev *d, struct dev_stats *s);
    /* out NULL: starts timing every op, or every kernel. Otherwise ends timing, fills out [DEV_MAX_TIMES] with those
     * that ran, longest first, and returns their number. Waits. NULL if ops cannot be timed. */
    int32_t (*time_ops)(struct dev *d, enum time_by by, struct op_time *out);
    /* For measurements: uses about n_sm multiprocessors, 0: all. Returns the number obtained, at least n_sm; 0 with e if
     * the device cannot separate so many. Waits. NULL if the device has no multiprocessors. */
    int32_t (*limit)(struct dev *d, int32_t n_sm, struct err *e);

    /* Device form of a weight: the bytes it needs (0: used as stored in the file), then the lossless repacking of w
     * (layout 0, host memory) into dst; w2 describes the result. CHIMERE_ENUMERIC: w contains NaN or infinity. */
    size_t (*prepared_bytes)(struct dev *d, const struct weight *w);
    int (*prepare)(struct dev *d, const struct weight *w, void *dst, struct weight *w2);
    /* prepare, asynchronous, for weights used in one pass: copies to dst start when the ops recorded before the last
     * stage_fence are done. Ops recorded after stage_fence see everything staged before it. The form may differ from
     * prepare's but is not larger. NULL if device memory is host memory. */
    int (*stage)(struct dev *d, const struct weight *w, void *dst, struct weight *w2);
    void (*stage_fence)(struct dev *d);

    /* prepare into memory of host_alloc, for moe_args.pool. NULL: the device has no such pools. */
    int (*pack)(struct dev *d, const struct weight *w, void *dst, struct weight *w2);
    size_t (*pool_bytes)(int32_t n_expert, int32_t n_slot); /* of moe_pool.directory */
    /* Copies the experts a->chosen [n_tok, n_used] in device memory, which are distinct or -1 and at most as many as
     * slots, into slots; later rows stay longer. n_tok is at most STEP_MAX_TOK. Reads nothing else of a but the
     * number of experts in router, gate, up, down and pool. */
    void (*pool_fill)(struct dev *d, const struct moe_args *a);
    /* From now on only the records of a->pool->spare whose parts are all in `lent` are used; others are empty. Reads of a
     * what pool_fill reads. */
    void (*pool_lend)(struct dev *d, const struct moe_args *a, uint32_t lent);

    /* Channels of Mamba's state that are adjacent in this device's memory, a divisor of n_channel. A state that
     * leaves the device has one channel after another. d_head 0: Mamba-1. NULL: 1. */
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
    /* n_out matrices times the same rows. Float weights 1e-5. Quantized weights: activations may be rounded to 8 bits
     * per block of 32 (1e-2 against the float reference; 1e-5 against ref_linear_q8, which rounds in the same way). */
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
    /* With a->ids only: the choice that moe makes. Returns the logits it is based on (a->logits, if given), for moe's
     * a->logits, valid until the next op; NULL: moe computes them again. The entry is NULL if device memory is not host memory. */
    const float *(*route)(struct dev *d, const struct moe_args *a);
    /* out[i] = act(a[i]) * b[i]; b NULL: act(a). out may be a or b. 1e-6 */
    void (*act_mul)(struct dev *d, float *out, const float *a, const float *b, int64_t n,
                    enum act act);
    /* y[i] = alpha * x[i] + beta * y[i]; y may be x. Rounding may differ: 1e-6. */
    void (*axpby)(struct dev *d, float *y, float alpha, const float *x, float beta, int64_t n);
    /* out[i] = row rows[i] of x, n floats each. Exact. */
    void (*gather_rows)(struct dev *d, float *out, const float *x, const int32_t *rows,
                        int32_t n_row, int64_t n);
    /* Returns at least SELECT_TOP candidates per row (fewer only if fewer are finite); every other token has a
     * smaller logit than each candidate. Logits exact, sums 1e-6. Waits. */
    void (*select)(struct dev *d, const struct select_args *a);

    /* Lets d access the memory of all devs [n]; returns false if it cannot. The entry is NULL, like those below, if
     * devices of this kind never can. */
    bool (*peer_open)(struct dev *d, struct dev *const *devs, int32_t n);
    size_t (*peer_bytes)(int32_t n_rank, int64_t n_max);
    /* Adds in the order of ranks, so all ranks get the same bits. All ranks call it equally often, with the same n. */
    void (*peer_sum)(struct dev *d, const struct peer_args *a);
    /* Copies rows [n_row, n] to dst [n_row, dst_stride] on another device, and to *host_ns the time that this rank has
     * spent in sums. */
    void (*peer_rows)(struct dev *d, const struct peer_args *a, float *dst, int64_t dst_stride,
                      const float *src, int32_t n_row, int64_t n, uint64_t *host_ns);
};

/* Sizes for which reserve() allocates scratch. */
struct dev_need {
    int32_t n_tok;       /* rows of the largest batch */
    int64_t n_in, n_out; /* widest input row and output row of any linear op */
    int64_t n_ff;        /* widest hidden row of an ffn or one expert */
    int32_t n_expert, n_used;
    int32_t n_head, d_head;    /* widest attention */
    int32_t n_v_head, d_state; /* widest recurrent mixer: heads and per-head state elements */
    /* state of one head of that mixer: [d_rec_k, d_rec_v]; Mamba-1: one head per channel, d_rec_v 1 */
    int32_t d_rec_k, d_rec_v;
    int64_t n_conv;
    int64_t n_ctx; /* longest sequence */
    bool stages;   /* stage() will be called */
};

#endif
