/* reward.h: a process reward model in a GGUF file: scores each step of a solution without writing text.
 *
 * Such a model is a decoder that was trained to put the probability of "good" against "bad" after a mark that ends
 * each step (Math-Shepherd, Wang et al., 2024). The file names the three texts in the keys chimere.prm.mark,
 * chimere.prm.good and chimere.prm.bad. Files of Math-Shepherd are known by name. One evaluation of problem and steps
 * scores all steps, so no token is generated. Any thread; concurrent calls wait for each other. */
#ifndef CHIMERE_STRATEGY_REWARD_H
#define CHIMERE_STRATEGY_REWARD_H

#include <stdatomic.h>

#include "base/str.h"
#include "model/model.h"
#include "text/tok/tok.h"

struct reward;

/* Returns true if the file names the texts, or is known. */
bool reward_is_named(const struct gguf *g);
/* m and tok are borrowed until close. CHIMERE_EUNSUPPORTED: the model is no process reward model. */
int reward_open(struct reward **out, struct model *m, const struct tok *tok, struct err *e);
void reward_close(struct reward *r);
struct reward_call {
    struct slice problem;      /* borrowed */
    const struct slice *steps; /* borrowed [n_step] */
    int32_t n_step;
    const _Atomic bool *cancelled; /* borrowed; may be NULL */
    int64_t deadline_ns;           /* 0: none */
    /* results */
    double *scores;          /* borrowed [n_step]: 0..1; the first n_scored are written */
    int32_t n_scored, n_tok; /* n_tok: tokens evaluated */
    bool was_late;           /* cancelled or past the deadline before the last step */
};
/* Scores the steps, as far as they fit in the context. Whether the call is late is checked after every 128 tokens.
 * Returns CHIMERE_E* if the model fails, a score is not finite or memory is short. */
int reward_score(struct reward *r, struct reward_call *c, struct err *e);

#endif
