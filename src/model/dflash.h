/* dflash.h: drafts a block of tokens at once from the hidden states of another model (Chen et al., arXiv:2602.06036).
 *
 * A drafter is a few layers that share the target's embedding and head. For each token that the target has evaluated it
 * keeps keys and values that are projected from the target's residual rows (taps.h). A block is the last token and
 * masks behind it: all its rows see all kept tokens and each other, and a mask's row says which token stands there.
 * Where the context of a sequence came from elsewhere (a restored state), the drafter begins behind it. The keys and
 * values of windowed layers are kept as long as the others. The engine's thread only; opened over a loaded model. */
#ifndef CHIMERE_MODEL_DFLASH_H
#define CHIMERE_MODEL_DFLASH_H

#include "model/forward.h"

struct dflash;

struct dflash_params {
    struct model *target; /* borrowed */
    struct forward *f;    /* of the target; borrowed; keeps taps from here on */
    int32_t n_slot;
    int64_t n_ctx, n_ctx_seq; /* of all slots, of one */
    uint32_t k_type, v_type;
};

/* CHIMERE_EMISMATCH, with what differs: the drafter is another model's. */
int dflash_open(struct dflash **out, const char *path, const struct dflash_params *p,
                struct err *e);
void dflash_close(struct dflash *d);
int32_t dflash_n_draft(const struct dflash *d); /* tokens of a block, the known one apart */

void dflash_reset(struct dflash *d, int32_t slot); /* another sequence, or another place in it */
/* The tokens at rows [row, row + n) of the target's last run follow those before in the slot. CHIMERE_ELIMIT: no room. */
int dflash_observe(struct dflash *d, int32_t slot, int64_t row, int32_t n, struct err *e);
/* next stands behind all observed tokens. *logits: device [n, n_vocab] of the n tokens behind it, n <= dflash_n_draft. */
int dflash_draft(struct dflash *d, int32_t slot, int32_t next, int32_t n, const float **logits,
                 struct err *e);

/* What opening will take, from the file's header. */
struct dflash_bytes {
    uint64_t weights, cache, scratch;
};
int dflash_plan(const char *path, const struct model *target, const struct dflash_params *p,
                int32_t n_batch, struct dflash_bytes *out, struct err *e);

#endif
