/* forward_impl.h: the activations that blocks share. */
#ifndef CHIMERE_MODEL_FORWARD_IMPL_H
#define CHIMERE_MODEL_FORWARD_IMPL_H

#include "model/forward.h"
#include "model/seq/seq_impl.h"
#include "model/taps.h"

enum { FORWARD_MAX_RUNS = 512 };

struct forward {
    struct model *m;    /* borrowed */
    struct seq_pool *p; /* borrowed; NULL for encoders */
    struct dev *d;      /* borrowed */
    int32_t n_tok_max, n_out_max;
    struct experts *experts; /* owned */
    struct link *link;       /* borrowed; NULL: no other device has a part of each layer */
    int32_t rank;            /* in the link */
    float *join;             /* borrowed, on any device: where logits of all slices meet; or NULL */
    int64_t join_stride;

    /* activations, all owned, on the device */
    float *x;             /* [n_tok, n_embd] residual stream */
    float *stream;        /* view: x, also while a block adds to branch instead */
    float *ple, *ple_row; /* [n_tok, n_layer * n_ple] per-layer embeddings; scratch of that size */
    float *h;             /* [n_tok, n_embd] normalized */
    float *proj;          /* [n_tok, proj_stride] q|k|v or conv input */
    float *z;             /* [n_tok, z_stride] gate of recurrent mixers, queries of attention */
    float
        *ab; /* [2, n_tok, n_v_head]; Mamba-1: [dt_rank + 2 d_state, n_tok] and [n_tok, n_inner] */
    float *mix;         /* [n_tok, mix_stride] mixer output before its last projection */
    float *embd;        /* [n_tok, n_embd] token embeddings, if shared blocks read them */
    float *other;       /* [n_tok, n_inner] the first mixer's result, if a mean is computed */
    float *branch;      /* [n_tok, n_embd] a block's result, if the family scales it */
    float *ff;          /* [2, n_tok, ff_stride] hidden rows, if an adapter changes a dense FFN */
    float *hidden;      /* [n_tok, n_embd] post-norm rows */
    float *pair;        /* [n_tok, 2 n_embd] input of prediction blocks */
    float *picked;      /* [n_out, n_embd] */
    float *logits;      /* [n_out, n_vocab] */
    float *low;         /* [n_tok, LORA_MAX_RANK] */
    float *host_logits; /* owned, host; NULL if device memory is host memory */
    float *taps;        /* [n_tap, n_tok_max, n_embd] residual rows after layers; NULL: not kept */
    int32_t tap_layer[TAPS_MAX], n_tap;
    int32_t *rows;   /* owned, host [n_out] */
    int32_t *ids;    /* owned, host [n_tok] */
    int32_t *ple_at; /* owned, host [n_tok] */
    int64_t proj_stride, z_stride, mix_stride, ff_stride;

    /* the current batch */
    struct span spans[FORWARD_MAX_RUNS];
    struct moe_keep keep[FORWARD_MAX_RUNS]; /* for each span's rows */
    const struct batch_item *runs;
    bool has_zeros; /* branch is zeros */
    int32_t n_span, n_tok;
    int32_t n_out, n_logit; /* of the last run: rows of logits, and their length */
};

enum { LORA_MAX_RANK = 512 };

/* Rows of x times several matrices, then the adapters of each run. x: [n_tok, x_stride]. */
void fwd_linear(struct forward *f, const struct linear_out *o, int32_t n_o, const float *x,
                int64_t x_stride);
static inline struct linear_out fwd_out(const struct weight *w, const float *bias, float *dst,
                                        int64_t stride) {
    return (struct linear_out){
        .w = w, .bias = bias, .dst = dst, .dst_stride = stride, .scale = 1, .add = false};
}
static inline struct linear_out fwd_add(const struct weight *w, const float *bias, float *dst,
                                        int64_t stride) {
    return (struct linear_out){
        .w = w, .bias = bias, .dst = dst, .dst_stride = stride, .scale = 1, .add = true};
}
bool fwd_has_lora(const struct forward *f, const struct weight *w);

/* Adapter matrices of a base weight; false if the adapter does not change it. */
bool lora_find(const struct lora *l, const struct model *m, const struct weight *base,
               const struct weight **a, const struct weight **b, float *scale);

/* Runs the blocks of a table that layer il has, except those that another block of the layer runs. */
struct block;
void fwd_blocks(struct forward *f, const struct block *const *table, int32_t il);
/* Computes the learned rows that precede every sequence, once per pool. */
int forward_run_meta(struct forward *f, struct err *e);
/* One layer: norms, mixers, feed-forward. */
void layer_forward(struct forward *f, int32_t il);

#endif
