/* block.c: the table of blocks, and what all blocks of a layer need together. */
#include "model/block/block.h"

#include "model/block/block_impl.h"

#define ROW(name) &block_##name,
const struct block *const mixer_blocks[] = {MIXER_BLOCKS(ROW) NULL};
const struct block *const ffn_blocks[] = {FFN_BLOCKS(ROW) NULL};
const struct block *const last_blocks[] = {LAST_BLOCKS(ROW) NULL};
#undef ROW

static const struct block *const *const tables[] = {mixer_blocks, ffn_blocks, last_blocks};
enum { N_TABLE = sizeof tables / sizeof *tables };

#define FOR_EACH_BLOCK_OF(hp, il, b)                                                               \
    for (int t_ = 0; t_ < N_TABLE; t_++)                                                           \
        for (const struct block *const *at_ = tables[t_], *b; (b = *at_) != NULL; at_++)           \
            if (b->is_in(&(hp)->layer[il]))

void block_rows_of(const struct hparams *hp, int32_t il, struct block_rows *r) {
    FOR_EACH_BLOCK_OF(hp, il, b) b->rows(hp, il, r);
}

void block_need_of(const struct hparams *hp, int32_t il, struct dev_need *n) {
    FOR_EACH_BLOCK_OF(hp, il, b) {
        if (b->need) b->need(hp, il, n);
    }
}

void block_state_of(const struct hparams *hp, int32_t il, const struct seq_pool_params *p,
                    struct layer_state *s) {
    *s = (struct layer_state){.kv = {.k = NULL}};
    FOR_EACH_BLOCK_OF(hp, il, b) {
        if (b->state) b->state(hp, il, p, s);
    }
}

int block_matrices_of(const struct hparams *hp, int32_t il, struct layer_weights *l,
                      struct weight **out) {
    int n = 0;
    FOR_EACH_BLOCK_OF(hp, il, b) n += b->matrices(l, out + n);
    return n;
}
