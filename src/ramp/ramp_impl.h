/* ramp_impl.h: what the steps share inside the folder. */
#ifndef CHIMERE_RAMP_RAMP_IMPL_H
#define CHIMERE_RAMP_RAMP_IMPL_H

#include "ramp/ramp_hull.h"

/* The set with moments and errors; measure: errors are measured and saved if they are not there. */
int ramp_open_analysed(struct ramp_set **out, const struct ramp_options *o, bool measure,
                       struct err *e);
int ramp_limit_of(struct ramp_limit *l, const struct ramp_set *s, const struct ramp_options *o,
                  struct err *e);

#endif
