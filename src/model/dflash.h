/* dflash.h: drafts a block of tokens at once from the hidden states of another model (Chen et al., arXiv:2602.06036).
 *
 * A drafter is a few layers that share the target's embedding and head. For each token that the target has evaluated,
 * it keeps keys and values projected from the target's residual rows (taps.h). A block is the last token followed by
 * masks. All its rows see all kept tokens and each other, and a mask's row predicts the token at its position (if
 * hparams say so, the last token's row drafts too, and each row predicts the token after it). If the
 * context of a sequence was not evaluated here (a restored state), the drafter starts after it. Keys and values of
 * windowed layers are kept as long as the others. Used by the engine's thread only; opened over a loaded model. */
#ifndef CHIMERE_MODEL_DFLASH_H
#define CHIMERE_MODEL_DFLASH_H

#include "model/forward.h"

struct dflash;

struct dflash_params {
    struct model *target; /* borrowed */
    struct forward *f;    /* the target's; borrowed; keeps taps from now on */
    int32_t n_slot;
    int64_t n_ctx, n_ctx_seq; /* of all slots, of one slot */
    uint32_t k_type, v_type;
};

/* CHIMERE_EMISMATCH: the drafter was made for another model; the message states the difference. */
int dflash_open(struct dflash **out, const char *path, const struct dflash_params *p,
                struct err *e);
void dflash_close(struct dflash *d);
int32_t dflash_n_draft(const struct dflash *d); /* tokens per block without the known first one */
int32_t dflash_n_logit(const struct dflash *d); /* only ids below this are drafted (draft_head.h) */

void dflash_reset(struct dflash *d, int32_t slot); /* for another sequence or position */
/* The tokens at rows [row, row + n) of the target's last run follow those observed before in
 * the slot. CHIMERE_ELIMIT: full. */
int dflash_observe(struct dflash *d, int32_t slot, int64_t row, int32_t n, struct err *e);
/* next follows all observed tokens. *logits: device [n, dflash_n_logit], for the n tokens after it; n <=
 * dflash_n_draft. */
int dflash_draft(struct dflash *d, int32_t slot, int32_t next, int32_t n, const float **logits,
                 struct err *e);
/* Whether the drafter has the heads of DSpark: then row i of the logits is complete after dflash_follow, which adds to
 * it what the heads expect after prev, the token before it. *sure: the drafter's own estimate that the token is right,
 * below 0 if it gives none. Rows in order, i from 0. */
bool dflash_has_heads(const struct dflash *d);
int dflash_follow(struct dflash *d, int32_t i, int32_t prev, float *sure, struct err *e);

/* Memory that opening will take, computed from the file's header. */
struct dflash_bytes {
    uint64_t weights, cache, scratch;
};
int dflash_plan(const char *path, const struct model *target, const struct dflash_params *p,
                int32_t n_batch, struct dflash_bytes *out, struct err *e);

#endif
