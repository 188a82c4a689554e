/* ramp_speed.h: the decoding speed of a model here. */
#ifndef CHIMERE_RAMP_RAMP_SPEED_H
#define CHIMERE_RAMP_RAMP_SPEED_H

#include "eval/windows.h"
#include "model/model.h"

/* Tokens per second of one sequence that decodes the first window of t: the median over its steps, at most 64 and few
 * seconds. */
int ramp_speed(double *tok_s, struct model *m, const struct windows_text *t, struct err *e);

#endif
