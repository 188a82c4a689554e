/* ramp_judge.h: mean divergence of a model as it is now from the same model as its file is.
 *
 * The reference keeps the likeliest tokens of each row and the mass of the rest, so that memory does not
 * depend on the vocabulary: the divergence over these bins is a lower bound, within a percent or two of
 * the full one at the sizes that matter here. */
#ifndef CHIMERE_RAMP_RAMP_JUDGE_H
#define CHIMERE_RAMP_RAMP_JUDGE_H

#include "eval/windows.h"

struct ramp_judge;

/* Runs the reference over the windows; t must stay valid. m: with the file's own weights. */
int ramp_judge_open(struct ramp_judge **out, struct model *m, const struct windows_text *t,
                    int n_thread, struct err *e);
void ramp_judge_close(struct ramp_judge *j);
/* Mean divergence in nats per token over n windows spread evenly over the text (0: all). */
int ramp_judge_run(struct ramp_judge *j, size_t n_window, double *kl, struct err *e);

#endif
