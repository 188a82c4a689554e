/* block.h: the kinds of block that layers consist of; one row of a table each.
 *
 * A layer has one or two mixer blocks and at most one feed-forward block. A row states what its block needs
 * (activations, device scratch, state per sequence, weights) and how it runs. Planning, state pools and the loop over
 * layers use only these rows, never a block by name. A new block is one file and one row in block_impl.h. Rows are constant
 * data; any thread. */
#ifndef CHIMERE_MODEL_BLOCK_H
#define CHIMERE_MODEL_BLOCK_H

#include "model/arch/arch.h"

struct forward;
struct layer_state;
struct layer_weights;
struct seq_pool_params;

/* Floats per token of the activations that blocks share (struct forward); maxima over all layers. */
struct block_rows {
    int64_t proj, z, ab, mix, ff, other, ple;
    bool embd; /* later layers read the token embeddings */
};

struct block {
    const char *name;
    bool (*is_in)(const struct layer_shape *l);
    uint8_t
        within; /* 1 << enum mixer_join: joins in which another block's forward runs this block */
    void (*rows)(const struct hparams *hp, int32_t il, struct block_rows *r); /* raises maxima */
    void (*need)(const struct hparams *hp, int32_t il, struct dev_need *n);   /* NULL: no scratch */
    void (*state)(const struct hparams *hp, int32_t il, const struct seq_pool_params *p,
                  struct layer_state *s); /* NULL: no state */
    int (*matrices)(struct layer_weights *l,
                    /* matrices to multiply by; returns their number */
                    struct weight **out);
    void (*forward)(struct forward *f,
                    int32_t il); /* reads f->h (normalized rows) or f->stream, adds to f->x */
};

/* NULL-terminated, in the order in which a layer runs them. */
extern const struct block *const mixer_blocks[], *const ffn_blocks[], *const last_blocks[];

/* What all blocks of layer il need together. */
void block_rows_of(const struct hparams *hp, int32_t il, struct block_rows *r);
void block_need_of(const struct hparams *hp, int32_t il, struct dev_need *n);
void block_state_of(const struct hparams *hp, int32_t il, const struct seq_pool_params *p,
                    struct layer_state *s);
int block_matrices_of(const struct hparams *hp, int32_t il, struct layer_weights *l,
                      struct weight **out);

#endif
