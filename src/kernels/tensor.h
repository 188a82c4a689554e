/* tensor.h: the operands of ops: weights, spans of sequences, key/value pages, recurrent state.
 *
 * Plain structs, allocated by the caller; they own nothing. All pointers are addresses of the device whose ops table is
 * called. Activations are dense row-major f32: [n_tok, n] means n_tok rows of n. */
#ifndef CHIMERE_KERNELS_TENSOR_H
#define CHIMERE_KERNELS_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    STEP_MAX_TOK = 16, /* up to here, forwards are bit-identical to one token at a time */
    SCAN_GRID = 64,    /* longer recurrences are cut into chunks at its multiples */
    KV_PAGE = 64,      /* positions per page of keys and values */
};

/* A matrix [n_out, n_in] (file order: ne = {n_in, n_out, n_mat}) or a stack of n_mat of them. If rows are stored in two
 * parts, n_in is the number of columns of the first, and tail the matrix of the others. */
struct weight {
    const void *data; /* borrowed from the loader until the model is closed */
    uint32_t type;    /* quant.h id */
    uint32_t layout;  /* 0: rows as in the file; else a private form of the device (ops->prepare) */
    int64_t n_in, n_out, n_mat;
    size_t row_bytes, mat_bytes; /* of layout 0 */
    size_t stride;               /* bytes between matrices in a private form; 0: adjacent */
    const struct weight *tail;   /* NULL: none; has no tail itself */
};
/* Length of the rows that w multiplies. */
static inline int64_t tensor_n_in(const struct weight *w) {
    return w->n_in + (w->tail ? w->tail->n_in : 0);
}

/* Consecutive rows of a batch that belong to one sequence. */
struct span {
    int32_t row;      /* first row in the batch */
    int32_t n_tok;    /* >= 1 */
    int32_t slot;     /* index of the sequence's recurrent state */
    int32_t n_replay; /* logged tokens that recurrent ops apply to the state first */
    int32_t n_commit; /* new tokens whose update is stored (n_tok, or 0: all deferred to the log) */
    int64_t pos;      /* position of the first row */
    const int32_t *pages; /* page table: position p is in page pages[p / KV_PAGE] */
};

/* Keys and values of one layer, in pages shared by all sequences. Page layout: [n_kv_head][KV_PAGE][d] elements of
 * the type; keys and values are in separate arrays. */
struct kv_view {
    void *k, *v;
    uint32_t k_type, v_type; /* quant.h: F32, F16, Q8_0 or Q4_0 */
    int32_t n_kv_head, d_k, d_v;
    size_t k_page_bytes, v_page_bytes;
    /* Values are the last d_v elements of keys: v is the address of those of the first key. One head; the same types. */
    bool v_in_k;
    /* Because the cache is quantized, a Hadamard rotation is applied to keys, queries and values, and reversed in the
     * result. It covers each head, in blocks of the largest power of two that divides d. */
    bool rotate;
};
/* Elements of a head of d that the rotation covers at once. */
static inline int32_t tensor_rotation(const struct kv_view *kv, int32_t d) {
    int32_t n = kv->v_in_k ? kv->d_k | kv->d_v : d;
    return n & -n;
}

/* Recurrent state of one layer for all slots. The log holds the raw inputs of deferred tokens: to reject drafts, only
 * n_replay changes; to accept them, the same arithmetic is repeated. A span with n_commit 0 is deferred: the state is
 * left as it is after the n_replay logged tokens, and the span's own inputs are appended to the (then empty) log; n_tok
 * <= log_cap. */
struct rec_view {
    float *s;    /* [n_slot, s_stride] */
    float *conv; /* [n_slot, conv_stride]: the last d_conv - 1 raw inputs, oldest first */
    float *log;  /* [n_slot, log_cap, log_row] */
    size_t s_stride, conv_stride, log_row;
    int32_t log_cap;
};

/* The routed experts of a layer, if a device holds only some of them, in slots. All of them are in memory of
 * ops->host_alloc, in the device's form (ops->pack). */
struct moe_counts {           /* since the pool was made */
    uint64_t n_hit, n_miss;   /* distinct experts per batch: in a slot, or not */
    uint64_t n_pass, n_bytes; /* batches; bytes copied from host memory */
    uint64_t copy_ns;         /* time of these copies, during which nothing is computed */
};
/* A record of an expert in device memory that other data needs at times. */
struct moe_spare {
    void *at;
    uint32_t parts,
        unused; /* parts: bits of the parts of that memory that it touches (ops->pool_lend) */
};
struct moe_pool {
    int32_t n_slot;        /* at least n_used */
    struct weight slot[3]; /* gate, up, down: stacks of n_slot; without data: none */
    struct weight
        stage[3];    /* stacks of n_expert that all layers share: for batches longer than a step */
    void *directory; /* device memory of ops->pool_bytes, zero at first */
    struct moe_counts *counts; /* memory of ops->host_alloc that the device writes, zero at first */
    uint32_t *uses;            /* the same, [n_expert]: tokens that used the expert */
    /* [n_spare], device memory: records for experts that leave their slots, at most n_expert. A batch finds an expert
     * there as in a slot, but copies it. */
    const struct moe_spare *spare;
    int32_t n_spare;
};

/* Which of a token's chosen experts are kept (moe_args in ops.h). */
struct moe_keep {
    float mass;    /* 0, or at least 1: all are kept */
    int32_t n_min; /* at least one is kept */
    /* For callers of ops: the entropy, in nats, of the distribution of the token before from which on all are kept
     * (experts_keep_after); 0: the mass alone decides. */
    float all_at;
};

#endif
