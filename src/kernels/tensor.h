/* tensor.h: what ops work on: weights, sequence spans, key/value pages, recurrent state.
 *
 * Plain structs that callers place; they own nothing. All pointers are addresses of the device whose
 * op table is called. Activations are dense row-major f32: [n_tok, n] means n_tok rows of n. */
#ifndef CHIMERE_KERNELS_TENSOR_H
#define CHIMERE_KERNELS_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    STEP_MAX_TOK = 16, /* forwards up to here use step kernels, bit-identical to one at a time */
    SCAN_GRID = 64, /* longer scans are chunked at absolute positions that are multiples of this */
    KV_PAGE = 64,   /* positions of one page of keys and values */
};

/* A matrix [n_out, n_in] (file order: ne = {n_in, n_out, n_mat}) or a stack of n_mat of them. */
struct weight {
    const void *data; /* borrowed from the loader until the model is closed */
    uint32_t type;    /* quant.h id */
    uint32_t layout;  /* 0: rows as in the file; else a form private to the device (ops->prepare) */
    int64_t n_in, n_out, n_mat;
    size_t row_bytes, mat_bytes; /* of layout 0 */
    size_t stride; /* bytes from a matrix to the next in a private form; 0: they are adjacent */
};

/* Consecutive rows of a batch that belong to one sequence. */
struct span {
    int32_t row;      /* first row in the batch */
    int32_t n_tok;    /* >= 1 */
    int32_t slot;     /* index of the sequence's recurrent state */
    int32_t n_replay; /* logged tokens that recurrent ops apply to the state first */
    int32_t n_commit; /* new tokens whose update is stored (n_tok, or 0: all deferred to the log) */
    int64_t pos;      /* position of the first row */
    const int32_t *pages; /* page table: position p lies in page pages[p / KV_PAGE] */
};

/* Keys and values of one layer, in pages shared by all sequences.
 * Page layout: [n_kv_head][KV_PAGE][d] elements of the type, keys and values in arrays of their own. */
struct kv_view {
    void *k, *v;
    uint32_t k_type, v_type; /* quant.h: F32, F16, Q8_0 or Q4_0 */
    int32_t n_kv_head, d_k, d_v;
    size_t k_page_bytes, v_page_bytes;
    /* A Hadamard rotation over each head (blocks of the largest power of two that divides d) is
     * applied to keys and queries, and to values and back, because the cache is quantised. */
    bool rotate;
};

/* Recurrent state of one layer for all slots. The log holds the raw inputs of deferred tokens, so that
 * rejecting drafts is a change of n_replay and accepting them repeats the same arithmetic.
 * Deferring: a span with n_commit 0 leaves the state as it is after its n_replay logged tokens and
 * appends its own inputs to the (then empty) log; n_tok <= log_cap. */
struct rec_view {
    float *s;    /* [n_slot, s_stride] */
    float *conv; /* [n_slot, conv_stride]: the last d_conv - 1 raw inputs, oldest first */
    float *log;  /* [n_slot, log_cap, log_row] */
    size_t s_stride, conv_stride, log_row;
    int32_t log_cap;
};

/* Which of a token's chosen experts stay (moe_args of ops.h). */
struct moe_keep {
    float mass;    /* 0, or 1 and more: all */
    int32_t n_min; /* at least one stays */
};

#endif
