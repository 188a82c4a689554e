/* odo_steps.h: runs a pipeline's steps, and the limits that a run observes. Called by the run's own thread. */
#ifndef CHIMERE_ODO_ODO_STEPS_H
#define CHIMERE_ODO_ODO_STEPS_H

#include "odo/odo_impl.h"

/* Returns 0 with the answer sent, or with the outputs so far if a step failed or the limits were reached. */
int odo_steps(struct odo_run *r, enum finish *finish, struct err *e);
/* Returns true if the tokens or the time of the request are used up. */
bool odo_is_spent(const struct odo_run *r);

#endif
