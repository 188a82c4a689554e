/* drafter.h: drafters propose the next tokens of sequences, one row each.
 *
 * A text drafter proposes from the tokens alone and has no state: its row has `draft` only. A model drafter has
 * weights and state: it is opened over a loaded model, observes every run of the sequences that it follows,
 * and reads the hidden rows (taps) of that run from the forward pass it was opened with. Proposals are
 * verified by the target, so a drafter affects speed, never text; what it costs is measured (spec.h). A new
 * drafter is one file and one row of drafter.c. The engine's thread only. */
#ifndef CHIMERE_ENGINE_DRAFTER_H
#define CHIMERE_ENGINE_DRAFTER_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/tensor.h"

struct batch_item;
struct drafter_ops;
struct engram_mixer;
struct err;
struct forward;
struct model;
struct seq;

struct drafter {
    const struct drafter_ops *ops;
};

struct drafter_params {
    struct model *m;   /* borrowed */
    struct forward *f; /* borrowed; must outlive the drafter */
    int32_t n_seq;     /* slots */
    bool select;       /* logits are read by forward_select, not in place */
};

/* What is wanted for one sequence. Text drafters read history and engram, model drafters seq and next. */
struct drafter_request {
    const int32_t *history; /* borrowed: prompt and generated tokens */
    int32_t n_history;
    struct engram_mixer *engram; /* borrowed; NULL: none */
    struct seq *seq;
    int32_t next;    /* the token sampled last; it has not been evaluated yet */
    int32_t n_draft; /* wanted; on return, proposed */
    float min_p;     /* stop at a token that is less likely */
    int32_t tokens[STEP_MAX_TOK];
};

struct drafter_ops {
    const char *name;
    bool (*fits)(const struct model *m); /* model drafters: whether m has what it needs */
    int (*open)(struct drafter **out, const struct drafter_params *p, struct err *e);
    /* After a run: the first n_kept[i] tokens of runs[i] stay, the rest was dropped. Only runs with follow[i]
     * are observed; sequences of the others may be gone. */
    int (*observe)(struct drafter *d, const struct batch_item *runs, const int32_t *n_kept,
                   const bool *follow, int32_t n_run, struct err *e);
    /* For n sequences in one batch; returns 0 or CHIMERE_E*. Text drafters: d is NULL. */
    int (*draft)(struct drafter *d, struct drafter_request *r, int32_t n, struct err *e);
    void (*rewind)(struct drafter *d, const struct seq *s); /* s is new, or restored */
    void (*close)(struct drafter *d);
};

extern const struct drafter_ops drafter_ngram, drafter_engram, drafter_mtp;

enum { N_TEXT_DRAFTER = 2 };
/* In the order in which they are asked; a model drafter is asked after them all. */
extern const struct drafter_ops *const text_drafters[N_TEXT_DRAFTER];

/* Opens the first model drafter that fits; *out is NULL if none does. */
int drafter_open(struct drafter **out, const struct drafter_params *p, struct err *e);

#endif
