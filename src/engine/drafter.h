/* drafter.h: drafters with weights propose the next tokens of sequences, one row each. (Drafts from text: spec.h.)
 *
 * A drafter is opened over a loaded model, observes every run of the sequences that it follows, and reads the hidden rows
 * (taps) of that run from the forward pass it was opened with. Proposals are verified by the target, so a drafter affects
 * speed, never text; what it costs is measured. A new drafter is one file and one row of drafter.c. The engine's thread
 * only. */
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
    int32_t n_max; /* tokens of a draft that are worth asking for if the user names no number */
};

struct drafter_params {
    struct model *m;   /* borrowed */
    struct forward *f; /* borrowed; must outlive the drafter */
    int32_t n_seq;     /* slots */
    bool select;       /* logits are read by forward_select, not in place */
    const struct engine_params
        *engine; /* borrowed for the call; NULL: the model's own drafters alone */
};

struct drafter_request { /* for one sequence */
    struct seq *seq;
    int32_t next;    /* the token sampled last; it has not been evaluated yet */
    int32_t n_draft; /* wanted; on return, proposed */
    float min_p;     /* stop at a token that is less likely */
    int32_t tokens[STEP_MAX_TOK];
};

struct drafter_ops {
    const char *name;
    bool (*fits)(const struct model *m); /* whether m has what it needs */
    int (*open)(struct drafter **out, const struct drafter_params *p, struct err *e);
    /* After a run: the first n_kept[i] tokens of runs[i] stay, the rest was dropped. Only runs with follow[i]
     * are observed; sequences of the others may be gone. */
    int (*observe)(struct drafter *d, const struct batch_item *runs, const int32_t *n_kept,
                   const bool *follow, int32_t n_run, struct err *e);
    /* For n sequences in one batch; returns 0 or CHIMERE_E*. */
    int (*draft)(struct drafter *d, struct drafter_request *r, int32_t n, struct err *e);
    void (*rewind)(struct drafter *d, const struct seq *s); /* s is new, or restored */
    void (*close)(struct drafter *d);
};

extern const struct drafter_ops drafter_mtp, drafter_dflash;

/* Probability of the largest logit; 0 if one is not finite. The same for a row that only select reads. */
float drafter_top(const float *logits, int32_t n, int32_t *best);
float drafter_top_selected(const struct select_row *r, int32_t *best);

/* Opens the drafter of the file that the engine names, else the first one that fits; *out is NULL if none does. */
int drafter_open(struct drafter **out, const struct drafter_params *p, struct err *e);

#endif
