/* ramp_effort.h: bounds what a search encodes.
 *
 * Measuring a choice takes every tensor of it encoded whole, which for a large model takes longer than all measurements.
 * A search has an effort, in seconds of one core by the table of ramp_type.h, not by the clock, so that two runs with
 * the same options still give the same bytes. It is spent on the choices in the order in which they are tried; when it
 * is used up, solutions are restricted to forms that are encoded (ramp_set.only_encoded). The products of measuring are
 * bounded in proportion to it. */
#ifndef CHIMERE_RAMP_RAMP_EFFORT_H
#define CHIMERE_RAMP_RAMP_EFFORT_H

#include "model/model.h"
#include "ramp/ramp_set.h"

/* Reduces the candidates and the tokens of a search until its products of measuring are within the effort (by default
 * 0.2 million tokens of 10^9 active weights), or as few as make sense. Returns whether it reduced any. */
bool ramp_effort_limit(struct ramp_options *o, const struct ramp_set *s);
/* Forgets what was encoded. Forms of tensors that m never exchanges, and forms as in the file, cost nothing. */
void ramp_effort_begin(struct ramp_set *s, const struct model *m, double seconds);
/* Weights that a token is multiplied with. */
double ramp_effort_active(const struct ramp_set *s);
/* Of the forms of a choice that are not encoded yet; genes at RAMP_SOURCE cost nothing. */
double ramp_effort_of(const struct ramp_set *s, const uint8_t *choice);
/* Spends it, if it is at most `most` and at most what is left; returns whether the choice can be measured. */
bool ramp_effort_take(struct ramp_set *s, const uint8_t *choice, double most);

#endif
