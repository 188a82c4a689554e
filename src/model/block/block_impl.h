/* block_impl.h: the rows of the block table, and parts of blocks that other blocks run. */
#ifndef CHIMERE_MODEL_BLOCK_IMPL_H
#define CHIMERE_MODEL_BLOCK_IMPL_H

#include "model/block/block.h"
#include "model/forward_impl.h"

/* All blocks, in the order in which a layer runs them; each is block_NAME in block_NAME.c. */
#define MIXER_BLOCKS(X) X(mean) X(shared) X(attn) X(gdn) X(mamba1) X(mamba2) X(conv) X(mla)
#define FFN_BLOCKS(X) X(dense) X(moe) X(beside)
#define LAST_BLOCKS(X) X(ple)

#define DECLARE(name) extern const struct block block_##name;
MIXER_BLOCKS(DECLARE)
FFN_BLOCKS(DECLARE)
LAST_BLOCKS(DECLARE)
#undef DECLARE

static inline void block_raise(int64_t *maximum, int64_t n) {
    if (n > *maximum) *maximum = n;
}

static inline const struct weight *block_or_null(const struct weight *w) {
    return w->data ? w : NULL;
}

static inline int block_list(struct weight **out, struct weight *const *all, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = all[i];
    return (int)n;
}

/* The parts of attention. Project: multiplies the rows x into f->proj. Store: writes the rotated queries to f->z, and
 * keys and values to their pages. Heads: reads these and writes the result of attention to f->mix. */
struct rope block_rope(const struct model *m, int32_t il);
void block_attn_project(struct forward *f, int32_t il, const float *x, int64_t x_stride);
void block_attn_store(struct forward *f, int32_t il);
void block_attn_heads(struct forward *f, int32_t il);
/* All of attention in an encoder, from `from` [n_tok, n_embd]: adds to f->x. */
void block_attn_encode(struct forward *f, int32_t il, const float *from);
void block_mamba1_heads(struct forward *f, int32_t il); /* from f->h to f->mix */

/* Shared by Mamba-1 and Mamba-2: [x | z] projection, convolution, one state per channel. */
void block_ssm_rows(const struct hparams *hp, int32_t il, struct block_rows *r);
void block_ssm_state(const struct hparams *hp, int32_t il, const struct seq_pool_params *p,
                     size_t log_row, int32_t d_head, struct layer_state *s);

/* Attention and feed-forward weights; if the layer uses a shared block, those of the layer that holds it. */
static inline const struct layer_weights *block_weights(const struct forward *f, int32_t il) {
    return &f->m->weights.layer[il - f->m->hp.layer[il].share_back];
}

/* Computes f->ple for the batch, from its tokens and their embeddings f->x. */
void block_ple_begin(struct forward *f);
/* The mixture of layer il, from the rows f->h into f->x. */
struct moe_args block_moe_args(struct forward *f, int32_t il);

#endif
