/* ramp_measure.h: measures the divergence of choices on the engine; holds model, reference and encodings.
 *
 * Owns the open model. One thread. */
#ifndef CHIMERE_RAMP_RAMP_MEASURE_H
#define CHIMERE_RAMP_RAMP_MEASURE_H

#include "ramp/ramp_judge.h"
#include "ramp/ramp_store.h"

enum {
    RAMP_MAX_GROUPS = 192
}; /* probes around each point: single tensors if at most so many, else roles */

struct ramp_measure {
    struct model *m;            /* owned */
    struct windows_text t;      /* owned */
    struct ramp_judge *j;       /* owned */
    struct ramp_store *st;      /* owned */
    const struct ramp_set *set; /* borrowed */
    uint64_t text_hash;
};

int ramp_measure_open(struct ramp_measure *x, const struct ramp_set *s,
                      const struct ramp_options *o, struct err *e);
void ramp_measure_close(struct ramp_measure *x);
/* Over n_tok tokens of the text; 0: all. */
int ramp_measure_kl(struct ramp_measure *x, const uint8_t *choice, size_t n_tok, double *kl,
                    struct err *e);

/* Fits the gains of all genes: around the reference, and around the choice that the first gains lead to. Results of
 * single probes are kept in gains.json, so that an interrupted run resumes. If the effort (ramp_effort.h) is too small
 * for every tensor, one tensor of a group is probed; if it is too small for that, gains stay as they are. has_base: that
 * choice is encoded whole. */
int ramp_gain_fit(struct ramp_set *s, struct ramp_measure *x, const struct ramp_options *o,
                  uint64_t bytes, bool *has_base, struct err *e);
/* Guesses gains from role and position, without an engine. */
void ramp_gain_guess(struct ramp_set *s);

#endif
