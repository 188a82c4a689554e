/* experts_impl.h: the experts of one forward pass; shared by the experts*.c files. */
#ifndef CHIMERE_MODEL_EXPERTS_EXPERTS_IMPL_H
#define CHIMERE_MODEL_EXPERTS_EXPERTS_IMPL_H

#include "base/err.h"
#include "model/experts/experts.h"
#include "model/experts/routing.h"
#include "model/model.h"

struct experts {
    const struct model *m; /* borrowed */
    struct dev *d;         /* borrowed: the model's device */
    int32_t n_tok_max;
    struct routing_shape shape;
    int32_t mixture[ARCH_MAX_LAYERS]; /* index of a layer with experts among those layers */
    float *x, *y;  /* owned, pinned [n_tok_max, n_embd]: rows for the host, its results */
    float *logits; /* owned, pinned [STEP_MAX_TOK, n_expert]: the router's */

    /* the current batch */
    struct err err; /* the first failure of the disk; the layers after it are not computed */
    bool streams;
    struct weight staged[2][3]; /* gate, up, down of two consecutive layers */
    int32_t next;               /* staging buffer of the next layer */

    /* which of the chosen experts are kept */
    struct moe_keep *keep;     /* owned [n_tok_max]: for the current batch's rows */
    struct moe_keep *keep_dev; /* owned by d, the same; NULL: d reads keep */
    bool keeps;                /* the current batch has rows that drop experts */
    struct experts_kept kept;

    /* a routing stream that replaces the routers' choice */
    const struct routing *replay; /* borrowed until experts_free; NULL: none */
    int64_t *at;                  /* owned [n_slot]: position of each sequence in the stream */
    int32_t n_slot, n_tok;        /* n_tok: of the current batch */
    int32_t *chosen;              /* owned [n_mixture, n_tok_max, n_used] */
    int32_t *chosen_dev;          /* owned by d, the same; NULL: d reads chosen */

    void (*observe)(void *ud, int32_t mixture, const int32_t *ids, int32_t n_tok); /* or NULL */
    void *observe_ud;
    int32_t *
        ids; /* owned [n_tok_max, n_used]: the choice of the layer that ran last; NULL: not requested */
};

/* The choice of layer il in the current batch, in host or device memory. */
const int32_t *experts_chosen(const struct experts *x, int32_t il, bool on_host);
void experts_replay_begin(struct experts *x, const struct span *spans, int32_t n_span,
                          int32_t n_tok);
int experts_alloc_ids(struct experts *x); /* CHIMERE_ENOMEM */
void experts_replay_free(struct experts *x);

#endif
