/* lm_parts.h: what lm_parts.c and lm_tensor.c share; a model on several devices. */
#ifndef CHIMERE_ENGINE_LM_PARTS_H
#define CHIMERE_ENGINE_LM_PARTS_H

#include "engine/gpus.h"
#include "engine/lm.h"

struct part {
    struct model *m;          /* borrowed */
    struct seq_pool *pool;    /* owned */
    struct forward *f;        /* owned */
    struct batch_item *items; /* owned [ENGINE_MAX_SEQS]: the batch, with this part's sequences */
};

struct parts {
    struct lm lm;
    struct lm_ops ops;
    int32_t n;
    struct part part[GPUS_MAX];
    /* owned [n_batch, n_embd]: rows that pass between parts; from host_alloc of the first part's device if it has that
     * op */
    float *rows;
    struct tensor *tensor; /* owned; NULL: the model is split by layers */
};

struct part_seq {
    struct seq *part[GPUS_MAX]; /* owned */
};

/* Fills p->items with the batch for part i. */
void lm_parts_items(struct part *p, int32_t i, const struct batch_item *runs, int32_t n_run);

extern const struct lm_mark_ops lm_parts_marks; /* lm_parts_mark.c */

/* ---- lm_tensor.c: slices of every layer, one thread per device ---- */

struct tensor;
int lm_tensor_new(struct tensor **out, struct parts *x, const struct engine_params *p,
                  struct err *e);
/* Returns false if a device has not finished; then nothing that the device uses may be freed. */
bool lm_tensor_free(struct tensor *t);
int lm_tensor_run(struct tensor *t, const struct batch_item *runs, int32_t n_run,
                  const float **logits, struct err *e);

#endif
