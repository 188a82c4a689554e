/* lm_parts.h: what lm_parts.c and lm_tensor.c share; a model on several devices. */
#ifndef CHIMERE_ENGINE_LM_PARTS_H
#define CHIMERE_ENGINE_LM_PARTS_H

#include "base/thread.h"
#include "engine/gpus.h"
#include "engine/lm.h"

struct lm_turns {
    pthread_mutex_t of[GPUS_MAX]; /* held by the engine that computes on the device of that part */
    int32_t n;
};

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
    struct lm_turns *turns; /* borrowed; NULL: no other engine uses the devices */
    bool is_held;           /* the last part's turn, from a run to the select after it */
    struct tensor *tensor;  /* owned; NULL: the model is split by layers */
    struct model *whole;    /* owned: hyperparameters and hash of the whole model */
    struct seq_pool *shape; /* owned: of the whole model's states, for files */
};

struct part_seq {
    struct seq *part[GPUS_MAX]; /* owned */
};

/* Around every use of part i's device. */
void lm_parts_begin(struct parts *x, int32_t i);
void lm_parts_end(struct parts *x, int32_t i);
/* Something that is done for every part of a sequence or state; >= 0, or an error. */
typedef int lm_part_fn(struct parts *x, int32_t i, void *arg, struct err *e);

/* Fills p->items with the batch for part i. */
void lm_parts_items(struct part *p, int32_t i, const struct batch_item *runs, int32_t n_run);

/* ---- lm_parts_mark.c ---- */

extern const struct lm_mark_ops lm_parts_marks;
int lm_parts_shape(struct parts *x, const struct engine_params *p, struct err *e);

/* lm_parts_draft.c: drafts by the model's prediction block; *out is NULL if it has none. x is borrowed. */
int lm_parts_draft(struct drafter **out, struct parts *x, const struct engine_params *p,
                   struct err *e);

/* ---- lm_tensor.c: slices of every layer, one thread per device ---- */

struct tensor;
int lm_tensor_new(struct tensor **out, struct parts *x, const struct engine_params *p,
                  struct err *e);
/* Returns false if a device has not finished; then nothing that the device uses may be freed. */
bool lm_tensor_free(struct tensor *t);
/* logits NULL: the rows stay on the first device, for select and row; only if lm_tensor_selects. */
int lm_tensor_run(struct tensor *t, const struct batch_item *runs, int32_t n_run,
                  const float **logits, struct err *e);
/* Runs the task for all parts concurrently; returns the largest result, or the first error. */
int lm_tensor_each(struct tensor *t, lm_part_fn *task, void *arg, struct err *e);
bool lm_tensor_selects(const struct tensor *t);
int lm_tensor_select(struct tensor *t, struct select_args *a, struct err *e);
void lm_tensor_stats(const struct tensor *t, int32_t rank, struct link_stats *out);
const float *lm_tensor_row(struct tensor *t, int32_t i, struct err *e);

#endif
