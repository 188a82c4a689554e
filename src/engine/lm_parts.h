/* lm_parts.h: what lm_parts.c and lm_tensor.c share: a model on several devices. */
#ifndef CHIMERE_ENGINE_LM_PARTS_H
#define CHIMERE_ENGINE_LM_PARTS_H

#include "engine/gpus.h"
#include "engine/lm.h"

struct part {
    struct model *m;          /* borrowed */
    struct seq_pool *pool;    /* owned */
    struct forward *f;        /* owned */
    struct batch_item *items; /* owned [ENGINE_MAX_SEQS]: the batch with this part's sequences */
};

struct parts {
    struct lm lm;
    struct lm_ops ops;
    int32_t n;
    struct part part[GPUS_MAX];
    float *
        rows; /* owned [n_batch, n_embd]: on their way; of the first part's host_alloc where it has one */
    struct tensor *tensor; /* owned; NULL: parts of the layers */
};

struct part_seq {
    struct seq *part[GPUS_MAX]; /* owned */
};

/* The batch for part i. */
void lm_parts_items(struct part *p, int32_t i, const struct batch_item *runs, int32_t n_run);

extern const struct lm_mark_ops lm_parts_marks; /* lm_parts_mark.c */

/* ---- lm_tensor.c: slices of every layer, a thread for each device ---- */

struct tensor;
int lm_tensor_new(struct tensor **out, struct parts *x, const struct engine_params *p,
                  struct err *e);
/* False: a device still has not answered; nothing that it uses may be freed. */
bool lm_tensor_free(struct tensor *t);
int lm_tensor_run(struct tensor *t, const struct batch_item *runs, int32_t n_run,
                  const float **logits, struct err *e);

#endif
