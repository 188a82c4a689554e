/* ramp_impl.h: shared by the steps in this folder. */
#ifndef CHIMERE_RAMP_RAMP_IMPL_H
#define CHIMERE_RAMP_RAMP_IMPL_H

#include "ramp/ramp_hull.h"

/* The set with moments and errors; measure: missing errors are measured and saved. */
int ramp_open_analysed(struct ramp_set **out, const struct ramp_options *o, bool measure,
                       struct err *e);
int ramp_limit_of(struct ramp_limit *l, const struct ramp_set *s, const struct ramp_options *o,
                  struct err *e);

#endif
