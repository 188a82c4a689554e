/* forward_impl.h: the activations that blocks share. */
#ifndef CHIMERE_MODEL_FORWARD_IMPL_H
#define CHIMERE_MODEL_FORWARD_IMPL_H

#include "model/forward.h"
#include "model/seq_impl.h"

enum { FORWARD_MAX_RUNS = 512 };

struct forward {
    struct model *m;    /* borrowed */
    struct seq_pool *p; /* borrowed; NULL for encoders */
    struct dev *d;      /* borrowed */
    int32_t n_tok_max, n_out_max;
    bool has_host; /* experts of some layers are the host's */

    /* activations, all owned, on the device */
    float *x;    /* [n_tok, n_embd] residual stream */
    float *h;    /* [n_tok, n_embd] normed */
    float *proj; /* [n_tok, proj_stride] q|k|v or conv input */
    float *z;    /* [n_tok, z_stride] gate of recurrent mixers, queries of attention */
    float
        *ab; /* [2, n_tok, n_v_head]; Mamba-1: [dt_rank + 2 d_state, n_tok] and [n_tok, n_inner] */
    float *mix;         /* [n_tok, mix_stride] mixer output before its last projection */
    float *embd;        /* [n_tok, n_embd] token embeddings, where shared blocks read them */
    float *other;       /* [n_tok, n_inner] the first mixer's result, where a mean is taken */
    float *branch;      /* [n_tok, n_embd] a block's result, where the family scales it */
    float *ff;          /* [2, n_tok, ff_stride] hidden rows where an adapter touches a dense FFN */
    float *hidden;      /* [n_tok, n_embd] post-norm rows */
    float *pair;        /* [n_tok, 2 n_embd] input of prediction blocks */
    float *picked;      /* [n_out, n_embd] */
    float *logits;      /* [n_out, n_vocab] */
    float *low;         /* [n_tok, LORA_MAX_RANK] */
    float *host_x;      /* owned, pinned [n_tok, n_embd]: rows for experts on the host; or NULL */
    float *host_y;      /* the same: what these give */
    float *host_route;  /* the same, [STEP_MAX_TOK, n_expert]: logits of their routers */
    float *host_logits; /* owned, host; NULL where the device is host-visible */
    int32_t *rows;      /* owned, host [n_out] */
    int32_t *ids;       /* owned, host [n_tok] */
    int64_t proj_stride, z_stride, mix_stride, ff_stride;
    /* the host's experts while they are brought to the device: gate, up and down of the layers in turn */
    struct weight brought[2][3];
    int32_t place; /* where the next layer's will go */
    bool brings;   /* for the present batch */

    /* the present batch */
    struct span spans[FORWARD_MAX_RUNS];
    const struct run *runs;
    int32_t n_span, n_tok, n_out; /* n_out: rows of logits of the last run */
};

enum { LORA_MAX_RANK = 512 };

/* Rows of x times several matrices, then each run's adapters. x: [n_tok, x_stride]. */
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

/* Adapter matrices of a base weight; false if the adapter leaves it alone. */
bool lora_find(const struct lora *l, const struct weight *base, const struct weight **a,
               const struct weight **b, float *scale);

/* Blocks: each reads f->h (normed rows) and adds its result to f->x. */
void attn_forward(struct forward *f, int32_t il);
/* Its parts: projections of rows x to f->proj; heads from there to f->mix. */
void attn_project(struct forward *f, int32_t il, const float *x, int64_t x_stride);
void attn_store(struct forward *f,
                int32_t il); /* rotated queries to f->z, keys and values to their pages */
void attn_heads(struct forward *f, int32_t il);
void mamba1_heads(struct forward *f, int32_t il); /* f->h to f->mix */
void gdn_forward(struct forward *f, int32_t il);
void mamba1_forward(struct forward *f, int32_t il);
void mamba2_forward(struct forward *f, int32_t il);
void ffn_forward(struct forward *f, int32_t il);
void ffn_bring_first(struct forward *f); /* before the first layer, where experts are brought */
/* Two mixers joined otherwise than by a sum (enum mixer_join). */
void layer_shared(struct forward *f, int32_t il); /* leaves the other mixer's input in f->h */
void layer_mean(struct forward *f, int32_t il);
/* Attention and feed-forward weights: those of the layer that holds the shared block. */
static inline const struct layer_weights *fwd_block(const struct forward *f, int32_t il) {
    return &f->m->weights.layer[il - f->m->hp.layer[il].share_back];
}
/* One layer: norms, mixer, feed-forward. */
void layer_forward(struct forward *f, int32_t il);

#endif
