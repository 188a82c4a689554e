/* block.h: the kinds of block that layers are made of, one row each.
 *
 * A layer is one or two mixer blocks and at most one feed-forward block. A row says what its block needs
 * (activations, device scratch, state per sequence, weights) and how it runs; planning, state pools and
 * the loop over layers know no block by name. A new block is one file and one row of block.c. Rows are
 * constant data; any thread. */
#ifndef CHIMERE_MODEL_BLOCK_H
#define CHIMERE_MODEL_BLOCK_H

#include "model/arch.h"

struct forward;
struct layer_state;
struct layer_weights;
struct seq_pool_params;

/* Floats per token of the activations that blocks share (struct forward); maxima over all layers. */
struct block_rows {
    int64_t proj, z, ab, mix, ff, other;
    bool embd; /* the token embeddings are read by later layers */
};

struct block {
    const char *name;
    bool (*is_in)(const struct layer_shape *l);
    uint8_t
        within; /* 1 << enum mixer_join: layers in which another block's forward runs this one */
    void (*rows)(const struct hparams *hp, int32_t il, struct block_rows *r); /* raises maxima */
    void (*need)(const struct hparams *hp, int32_t il, struct dev_need *n);   /* NULL: no scratch */
    void (*state)(const struct hparams *hp, int32_t il, const struct seq_pool_params *p,
                  struct layer_state *s); /* NULL: no state */
    int (*matrices)(struct layer_weights *l,
                    struct weight **out);           /* that multiply; returns how many */
    void (*forward)(struct forward *f, int32_t il); /* reads f->h (normed rows), adds to f->x */
};

enum { BLOCK_MAX_MATRICES = 12 };

/* NULL-terminated, in the order in which a layer runs them. */
extern const struct block *const mixer_blocks[], *const ffn_blocks[];

/* Sums over the blocks of layer il. */
void block_rows_of(const struct hparams *hp, int32_t il, struct block_rows *r);
void block_need_of(const struct hparams *hp, int32_t il, struct dev_need *n);
void block_state_of(const struct hparams *hp, int32_t il, const struct seq_pool_params *p,
                    struct layer_state *s);
int block_matrices_of(const struct hparams *hp, int32_t il, struct layer_weights *l,
                      struct weight **out);

#endif
