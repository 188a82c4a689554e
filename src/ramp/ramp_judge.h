/* ramp_judge.h: mean divergence of a model with its current weights from the same model with the weights of its file.
 *
 * The reference keeps the most likely tokens of each row and the total probability of the others, so that memory does
 * not depend on the vocabulary. The divergence over these bins is a lower bound, within one or two percent of the full
 * divergence at the sizes that matter here. */
#ifndef CHIMERE_RAMP_RAMP_JUDGE_H
#define CHIMERE_RAMP_RAMP_JUDGE_H

#include "eval/windows.h"

struct ramp_judge;

/* Runs the reference over the windows; t must stay valid. m has the file's own weights. */
int ramp_judge_open(struct ramp_judge **out, struct model *m, const struct windows_text *t,
                    int n_thread, struct err *e);
void ramp_judge_close(struct ramp_judge *j);
/* Mean divergence in nats per token over n windows spread evenly over the text (0: all). */
int ramp_judge_run(struct ramp_judge *j, size_t n_window, double *kl, struct err *e);

#endif
