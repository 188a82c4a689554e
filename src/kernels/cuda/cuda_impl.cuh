/* cuda_impl.cuh: the device's context, its list of recorded launches, and declarations that the op files share. */
#ifndef CHIMERE_KERNELS_CUDA_CUDA_IMPL_CUH
#define CHIMERE_KERNELS_CUDA_CUDA_IMPL_CUH

#include <string.h>
#include <type_traits>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/repack.h"
#include "kernels/cuda/portable.cuh"
#include "kernels/cuda/gemv_int8.cuh"
#include "kernels/cuda/dequant.cuh"

enum {
    CUDA_MAX_ARGS = 24,
    CUDA_MAX_LAUNCHES = 4096, /* per list; a longer list is sent in parts */
    CUDA_MAX_GRAPHS = 96,     /* kept at most; the least recently used is evicted */
    CUDA_GRAPH_LAUNCHES = 8,  /* shorter lists are launched one by one */
    CUDA_N_ARRIVED = 16384,   /* arrival counters of blocks that work together */
    BATCH_TOKS = 64,          /* up to this many tokens: 8-bit activations, if the forms allow it */
};

/* The ops that compute, in the order of the op table; launch times are summed per op. */
#define CUDA_OPS(X)                                                                                \
    X(copy)                                                                                        \
    X(zero)                                                                                        \
    X(embed)                                                                                       \
    X(rms_norm)                                                                                    \
    X(layer_norm)                                                                                  \
    X(linear)                                                                                      \
    X(qkv_store)                                                                                   \
    X(attn)                                                                                        \
    X(attn_full)                                                                                   \
    X(gdn)                                                                                         \
    X(conv)                                                                                        \
    X(ssm)                                                                                         \
    X(ssd)                                                                                         \
    X(ffn)                                                                                         \
    X(moe)                                                                                         \
    X(act_mul)                                                                                     \
    X(axpby)                                                                                       \
    X(gather_rows)                                                                                 \
    X(select)                                                                                      \
    X(peer_sum)                                                                                    \
    X(peer_rows)
enum cuda_op {
    OP_other,
#define X(name) OP_##name,
    CUDA_OPS(X)
#undef X
        N_OP
};

enum { CARVE_ANY = -1, CARVE_ALL = 100 };
struct launch {
    const void *kernel;
    void (*invoke)(const void *kernel, void **args); /* emulator: calls the kernel */
    dim3 grid, block;
    uint32_t shared_bytes, args_at; /* offset in the list's argument bytes */
    uint16_t op, n_arg, arg_at[CUDA_MAX_ARGS];
    int16_t carve;  /* as in struct cuda */
    uint64_t bytes; /* of weights and states that it reads; 0 unless launches are timed */
};

struct list {                /* launches not yet sent */
    struct launch *launches; /* owned; the first copies the staged bytes to the device */
    uint8_t *args;           /* owned */
    uint32_t n_launch, n_args_bytes, cap_args;
    uint32_t from;  /* first launch to send; 1: no staging launch needed (send_staged) */
    bool has_first; /* the staging launch is recorded */
};

struct graph {
    cudaGraphExec_t exec;
    uint64_t key, used; /* key: hash of the recorded list; used: time of the last use */
    uint32_t n_launch;
};

/* A span as kernels see it; its pages are at pages[page_at ...]. */
struct dspan {
    int32_t row, n_tok, slot, n_replay, n_commit, page_at;
    int64_t pos;
};
struct dspans {
    const struct dspan *spans; /* device */
    const int32_t *of_row;     /* device [n_tok]: span of each row */
    const int32_t *pages;      /* device */
    int32_t n_span, n_tok;
    int64_t n_ctx; /* longest context after this step, rounded up to a power of two pages */
};

/* An activation that also exists in 8 bits, because the kernel that wrote the floats also quantized them. */
struct shadow {
    const float *x; /* [n_row, n], dense; NULL: none */
    int64_t n;
    int32_t n_row;
    bool is_valid;
    act8 a;
};
enum { N_SHADOW = 3 };

struct conv_job {
    const float *x, *w, *b;
    int64_t x_stride, n_conv, out_stride;
    int32_t d_conv, silu;
    float *out;
};
struct pending_conv {  /* a convolution that the next scan fuses; one token per span */
    struct conv_job j; /* x NULL: none */
    struct dspans b;
    const struct span *spans;
    struct rec_view rec;
};

struct cache { /* of the keys or of the values */
    const uint8_t *data;
    size_t page_bytes, row_bytes;
    uint32_t type;
    int32_t d;
};

struct store_job {
    const float *src, *norm;
    int64_t tok_stride, head_stride;
    float eps;
    int32_t n_rot, mode; /* mode ROPE_NONE: values */
    const float *inv_freq;
    float magnitude;
    int32_t rotate, n_head; /* rotate: elements at once; 0: none */
    float *out;             /* queries: [n_tok, n_head, d]; else NULL */
    cache to;
    const float *lead; /* NULL, or the first n_rot elements of a head; then src has the others */
    int64_t lead_tok_stride, lead_head_stride;
};

/* One new token per sequence: what page_kernel computes itself before attention (queries,
 * keys and values of its heads). */
struct fresh_job {
    store_job q, k, v;
};

struct pending_store { /* a store that the next attention op fuses */
    fresh_job f;       /* q.src NULL: none */
    struct dspans b;
    const struct span *spans;
    struct kv_view kv;
    const float *q_out;
    int32_t n_tok, n_head;
};

/* Rows of x converted to f16 for the tensor cores (gemm.cuh). */
struct halves {
    const float *x;
    uint16_t *row;
    float *scale; /* per row */
};

/* Fewer multiprocessors than the card has (measure.cu). */
struct limit {
    void *context; /* owned: a green context; NULL: none */
    cudaStream_t stream;
};

struct cuda {
    struct dev dev; /* must be first: its ops */
    struct cuda_params params;
    cudaStream_t stream; /* view: `whole`, or the limited context's */
    cudaStream_t whole;  /* owned */
    struct limit limit;
    struct list list;
    struct graph graphs[CUDA_MAX_GRAPHS];
    uint64_t seen[128]; /* hashes of lists that were sent once */
    uint32_t n_seen;
    uint64_t clock;
    bool dependent;            /* sm_90 and newer: programmatic dependent launch */
    int16_t carve;             /* shared memory carve-out in percent, or CARVE_ANY */
    int n_sm, all_sm, compute; /* n_sm: multiprocessors that kernels may use */
    uint64_t reads;            /* bytes of the next launch */
    bool has_group_mma;        /* the kernels were built with HAS_GROUP_MMA */
    uint32_t layout;           /* of weights */
    struct loader *loader;     /* owned; NULL: nothing is loaded */
    enum cuda_op op;           /* the op being recorded */
    struct timing *timing;     /* owned; NULL: ops are not timed */

    uint8_t *stage_host, *stage; /* owned: pinned, device: [stage_cap] */
    size_t stage_used, stage_cap, stage_sent;
    bool busy;                     /* something was sent since the last full wait */
    cudaEvent_t fetched;           /* event of the last fetch() */
    const struct span *last_spans; /* deduplication within a list */
    struct dspans last;
    uint64_t last_hash;

    struct shadow shadows[N_SHADOW];
    uint32_t n_shadow;    /* number made so far */
    uint8_t *shadow_room; /* owned, device: N_SHADOW times shadow_bytes */
    size_t shadow_bytes;

    uint32_t *arrived; /* view of table_block, device: [CUDA_N_ARRIVED], zeros between kernels */

    struct halves ready; /* f16 rows of an x that the current op multiplies again; x NULL: none */

    struct norm_row_job norm; /* not launched yet; x NULL: none */
    int64_t norm_n;
    struct pending_conv conv; /* not launched yet */
    struct pending_store store;

    uint8_t *scratch; /* owned, device */
    uint8_t *back;    /* owned, pinned: what select returns to the host */
    size_t n_scratch, scratch_used;
    struct grid_tables tables;
    uint8_t *table_block; /* owned, device */

    struct piece { /* of device memory, returned by dev_alloc */
        void *p;
        size_t n;
    } * pieces; /* owned */
    uint32_t n_piece, cap_piece;
    uint64_t used_bytes;
    struct dev_stats stats;
    struct err err;
};

/* CUDA runtime calls apply to the device that the calling thread set last, and a device may be used by several
 * threads: every function that allocates, launches or records sets the device first. */
static inline void cuda_use(const struct cuda *c) { cudaSetDevice(c->params.device); }

void cuda_fail(struct cuda *c, cudaError_t rc, const char *what);
void cuda_fail_with(struct cuda *c, int code, const char *what);

/* n bytes of scratch for the op being recorded, 256-aligned. cuda_begin releases all scratch: kernels of consecutive
 * ops run in order, so they may share it. Returns NULL, with a sticky failure, if scratch is exhausted. */
void *cuda_take(struct cuda *c, size_t n);
/* Launch the pending norm, convolution or store, which waited to be fused into the product, scan or attention after
 * it. Every op starts with this, unless it can fuse the pending one. */
void cuda_norm_now(struct cuda *c);
void cuda_conv_now(struct cuda *c);
void cuda_store_now(struct cuda *c);
static inline void cuda_pending_now(struct cuda *c) {
    cuda_norm_now(c);
    cuda_conv_now(c);
    cuda_store_now(c);
}
static inline bool cuda_begin(struct cuda *c) {
    cuda_pending_now(c);
    c->scratch_used = 0;
    return c->err.code == 0;
}

/* The same for products: cuda_linear_rows may fuse the norm. */
static inline bool cuda_begin_product(struct cuda *c) {
    cuda_conv_now(c);
    cuda_store_now(c);
    c->scratch_used = 0;
    return c->err.code == 0;
}

/* Copies bytes for the kernels of this list, which may read them before pdl_wait. Returns their device address;
 * NULL if the staging buffer is full. */
void *cuda_stage(struct cuda *c, const void *data, size_t n);
/* The same in two steps: cuda_stage_room returns the host's address of the bytes, cuda_staged the device's. */
void *cuda_stage_room(struct cuda *c, size_t n);
static inline void *cuda_staged(const struct cuda *c, const void *room) {
    return c->stage + ((const uint8_t *)room - c->stage_host);
}
/* Spans of a batch, staged once per list. */
bool cuda_spans(struct cuda *c, const struct span *spans, int32_t n_span, struct dspans *out);

/* An 8-bit copy that the kernel which writes x [n_row, n] must fill too; q NULL: not
 * needed (many rows, precise mode). */
act8 cuda_shadow_new(struct cuda *c, const float *x, int32_t n_row, int64_t n);
const act8 *cuda_shadow_of(struct cuda *c, const float *x, int64_t stride, int32_t n_row,
                           int64_t n);
/* An op writes n_bytes at p: their 8-bit copies become invalid. Every op calls this for its outputs. */
void cuda_wrote(struct cuda *c, const void *p, size_t n_bytes);
/* x in 8 bits: the copy that its producer wrote, or a new one in scratch. */
act8 cuda_act8(struct cuda *c, const float *x, int64_t stride, int32_t n_row, int64_t n);

/* Must be called before a batch of n_tok tokens. */
void cuda_batch_begin(struct cuda *c, int32_t n_tok);
/* Space for one more launch whose arguments take n bytes; NULL after a failure. */
struct launch *cuda_launch_new(struct cuda *c, size_t n_bytes);
/* Sends one launch of the list, into a graph or directly. depends: it may start before the previous one ends. */
void cuda_launch_one(struct cuda *c, const struct launch *l, bool depends);
void cuda_send(struct cuda *c); /* sends the list */
/* Waits until kernels have set each of n words in host memory, or until the device fails. These kernels are the last
 * of what was sent: the host sees their result before the stream reports its end. */
void cuda_wait_done(struct cuda *c, const uint32_t *done, int32_t n);

template <class... P> struct launcher {
    template <size_t... I>
    static void call(const void *kernel, void **args, std::index_sequence<I...>) {
        ((void (*)(P...))kernel)(*(P *)args[I]...);
    }
    static void invoke(const void *kernel, void **args) {
        call(kernel, args, std::index_sequence_for<P...>{});
    }
};

/* Whether the name of a kernel with this parameter is the same on all systems (i64 in portable.cuh). */
template <class P> constexpr bool is_named_alike(void) {
    using T = std::remove_cv_t<std::remove_pointer_t<P>>;
    return !std::is_same_v<T, long> && !std::is_same_v<T, unsigned long>;
}

template <class P> static inline size_t arg_end(size_t at) {
    return ((at + alignof(P) - 1) & ~(alignof(P) - 1)) + sizeof(P);
}

/* Records kernel<<<grid, block, shared_bytes>>>(args...). */
template <class... P, class... A>
static void launch(struct cuda *c, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
                   A... args) {
    static_assert(sizeof...(P) == sizeof...(A), "as many arguments as parameters");
    static_assert(sizeof...(P) <= CUDA_MAX_ARGS, "too many arguments");
    static_assert((is_named_alike<P>() && ...), "i64 or u64 instead of int64_t, uint64_t, size_t");
    size_t n = 0;
    ((n = arg_end<P>(n)), ...);
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    struct launch *l = cuda_launch_new(c, n);
    if (!l) return;
    l->kernel = (const void *)kernel;
    l->invoke = launcher<P...>::invoke;
    l->grid = grid;
    l->block = block;
    l->shared_bytes = (uint32_t)shared_bytes;
    uint8_t *blob = c->list.args + l->args_at;
    size_t at = 0;
    auto put = [&](auto value) {
        at = (at + alignof(decltype(value)) - 1) & ~(alignof(decltype(value)) - 1);
        l->arg_at[l->n_arg++] = (uint16_t)at;
        memcpy(blob + at, &value, sizeof value);
        at += sizeof value;
    };
    (put((P)args), ...);
}

/* ---- weights (upload.cu) ---- */

size_t cuda_prepared_bytes(struct dev *d, const struct weight *w);
int cuda_prepare(struct dev *d, const struct weight *w, void *dst, struct weight *w2);
int cuda_stage(struct dev *d, const struct weight *w, void *dst, struct weight *w2);
void cuda_stage_fence(struct dev *d);
int cuda_pack(struct dev *d, const struct weight *w, void *dst, struct weight *w2);
size_t cuda_pool_bytes(int32_t n_expert, int32_t n_slot); /* expert_pool.cu */
void cuda_pool_fill(struct dev *d, const struct moe_args *a);
void cuda_pool_lend(struct dev *d, const struct moe_args *a, uint32_t lent);
bool cuda_loader_open(struct cuda *c); /* succeeds too if it is open already */
void cuda_loader_free(struct cuda *c); /* waits for uploads in flight */

/* ---- measurement (measure.cu) ---- */

double cuda_read_bandwidth(struct dev *d);
int32_t cuda_limit(struct dev *d, int32_t n_sm, struct err *e);
void cuda_limit_end(struct cuda *c);
int32_t cuda_time_ops(struct dev *d, enum time_by by, struct op_time *out);
/* While launches are timed: the next launch reads n bytes; n_mat matrices of w. */
static inline void cuda_reads(struct cuda *c, double n) {
    if (c->timing) c->reads += (uint64_t)n;
}
static inline void cuda_reads_planes(struct cuda *c, const planes &w, double n_mat) {
    if (!c->timing || w.form == FORM_NONE) return;
    struct plane_sizes s = cuda_repack_sizes((enum plane_form)w.form);
    double unit = s.codes + s.more + s.sub + (double)s.top / s.top_units;
    bool is_number = s.codes >= 64; /* a unit of unquantized elements may be incomplete */
    cuda_reads(c, n_mat * (double)w.n_row * (is_number ? unit / 32 * w.n_in : unit * w.n_unit));
}
void cuda_time_list(struct cuda *c); /* launches the list and waits */
void cuda_timing_free(struct cuda *c);

/* ---- ops ---- */

void cuda_embed(struct dev *d, float *out, const struct weight *w, const int32_t *ids,
                int32_t n_tok, float scale);
void cuda_rms_norm(struct dev *d, float *out, const float *x, const float *w, int64_t n_row,
                   int64_t n, float eps);
void cuda_layer_norm(struct dev *d, float *out, const float *x, const float *w, const float *b,
                     int64_t n_row, int64_t n, float eps);
void cuda_act_mul(struct dev *d, float *out, const float *a, const float *b, int64_t n,
                  enum act act);
void cuda_axpby(struct dev *d, float *y, float alpha, const float *x, float beta, int64_t n);
bool cuda_peer_open(struct dev *d, struct dev *const *devs, int32_t n);
size_t cuda_peer_bytes(int32_t n_rank, int64_t n_max);
void cuda_peer_sum(struct dev *d, const struct peer_args *a);
void cuda_peer_rows(struct dev *d, const struct peer_args *a, float *dst, int64_t dst_stride,
                    const float *src, int32_t n_row, int64_t n, uint64_t *host_ns);
void cuda_gather_rows(struct dev *d, float *out, const float *x, const int32_t *rows, int32_t n_row,
                      int64_t n);
void cuda_copy(struct dev *d, void *dst, const void *src, size_t n);
void cuda_zero(struct dev *d, void *dst, size_t n);
void cuda_linear(struct dev *d, const struct linear_out *o, int32_t n_o, const float *x,
                 int64_t x_stride, int32_t n_tok);
void cuda_ffn(struct dev *d, const struct ffn_args *a);
void cuda_moe(struct dev *d, const struct moe_args *a);
void cuda_qkv_store(struct dev *d, const struct qkv_store_args *a);
void cuda_attn(struct dev *d, const struct attn_args *a);
void cuda_attn_full(struct dev *d, const struct attn_full_args *a);
void cuda_gdn(struct dev *d, const struct gdn_args *a);
void cuda_conv(struct dev *d, const struct conv_args *a);
void cuda_ssm(struct dev *d, const struct ssm_args *a);
void cuda_ssd(struct dev *d, const struct ssd_args *a);
void cuda_select(struct dev *d, const struct select_args *a);

/* Shared memory for the grid table of a weight form (grid_load). */
static inline size_t grid_bytes(const struct cuda *c, int form) {
    return (size_t)grid_words(form, c->compute >= 80) * sizeof(uint32_t);
}

/* A linear op as a part of another op; does not release that op's scratch. factor: [n_tok] or NULL; a row's result is
 * multiplied by its logistic function. exact: never computes in f16 (routers). */
void cuda_linear_rows(struct cuda *c, const struct linear_out *o, int32_t n_o, const float *x,
                      int64_t x_stride, int32_t n_tok, const float *factor, bool exact);

/* Whether these matrices are multiplied with 8-bit activations: few rows, or forms of gemv_batch.cu. */
bool cuda_is_batch(const struct cuda *c, const struct linear_out *o, int32_t n_o, int32_t n_tok);

/* One quantized matrix times at most BATCH_TOKS rows of act(gate) * up, stored dense. */
void cuda_linear_glu(struct cuda *c, const struct linear_out *o, const glu_job &g, int32_t n_tok,
                     const float *factor);

/* Scratch that each group of ops needs for the batch described by `need`. */
size_t cuda_linear_scratch(const struct dev_need *n);
size_t cuda_moe_scratch(const struct dev_need *n);
size_t cuda_attn_scratch(const struct dev_need *n);
size_t cuda_recurrent_scratch(const struct dev_need *n);
size_t cuda_select_scratch(const struct dev_need *n);
size_t cuda_select_stage(const struct dev_need *n); /* bytes of staging; bytes of results */
size_t cuda_select_back(void);

#endif
