/* drafter.h: drafters with weights propose the next tokens of several sequences, one sequence per row. Drafts from text
 * are in spec.h.
 *
 * A drafter is opened over a loaded model. It observes runs of the sequences that it follows, and reads the hidden rows
 * (taps) of each run from the forward pass that it was opened with. Tokens of runs that it does not observe are missing
 * from its context. It must have observed the last run of a sequence for which it drafts. The target model verifies all
 * proposals, so a drafter changes the speed but never the text; its cost is measured. A new drafter is one file and one
 * row of drafter.c. Only the engine's thread calls this interface. */
#ifndef CHIMERE_ENGINE_DRAFTER_H
#define CHIMERE_ENGINE_DRAFTER_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/tensor.h"

struct batch_item;
struct drafter_ops;
struct engine_params;
struct err;
struct forward;
struct select_row;
struct model;
struct seq;

struct drafter {
    const struct drafter_ops *ops;
    int32_t n_max; /* default length of a draft, used if the user gives no number */
};

struct drafter_params {
    struct model *m;   /* borrowed */
    struct forward *f; /* borrowed; must outlive the drafter */
    int32_t n_seq;     /* slots */
    bool select;       /* logits are read through forward_select, not in place */
    int32_t n_head;    /* rows of draft_head.h; 0: choose */
    int32_t
        n_rank; /* above 1: m is one of so many slices, each with a drafter (lm_parts_draft.c) */
    /* borrowed for the call; NULL: only the model's own drafters */
    const struct engine_params *engine;
};

struct drafter_request { /* of one sequence */
    struct seq *seq;
    int32_t next;    /* the token sampled last; the target has not evaluated it yet */
    int32_t n_draft; /* in: tokens wanted; out: tokens proposed */
    float min_p;     /* the draft ends before the first token less likely than this */
    int32_t tokens[STEP_MAX_TOK];
};

struct drafter_ops {
    const char *name;
    bool (*fits)(const struct model *m); /* whether m has the parts that this drafter needs */
    int (*open)(struct drafter **out, const struct drafter_params *p, struct err *e);
    /* Called after a run. The first n_kept[i] tokens of runs[i] stay; the others were dropped. Only runs with follow[i]
     * are observed; the sequences of the other runs may have been freed already. */
    int (*observe)(struct drafter *d, const struct batch_item *runs, const int32_t *n_kept,
                   const bool *follow, int32_t n_run, struct err *e);
    /* Drafts for n sequences in one batch; returns 0 or CHIMERE_E*. */
    int (*draft)(struct drafter *d, struct drafter_request *r, int32_t n, struct err *e);
    void (*rewind)(struct drafter *d, const struct seq *s); /* called if s is new or was restored */
    void (*close)(struct drafter *d);
};

extern const struct drafter_ops drafter_mtp, drafter_dflash;

/* Probability of the largest logit; 0 if a logit is not finite. *best is its token. */
float drafter_top(const float *logits, int32_t n, int32_t *best);
float drafter_top_selected(const struct select_row *r, int32_t *best);

/* Opens the drafter of the file in engine_params.draft, else the first drafter that fits the model. *out is NULL if
 * none fits. */
int drafter_open(struct drafter **out, const struct drafter_params *p, struct err *e);

#endif
