/* ramp_process.h: makes a file in a process of its own, which reports its progress and can be stopped at any time.
 *
 * What it has finished stays in the work folder: the same options resume it. Without a GPU. */
#ifndef CHIMERE_RAMP_RAMP_PROCESS_H
#define CHIMERE_RAMP_RAMP_PROCESS_H

#include "ramp/ramp.h"

/* The hidden command of the child. */
#define RAMP_PROCESS_COMMAND "ramp-worker"
int ramp_process_child(void);

/* Called about twice a second, also without progress. Returns false to stop. total 0: unknown. */
typedef bool ramp_process_show(void *ud, const char *step, uint64_t done, uint64_t total);
/* Analyses, searches, builds and draws: o->out, and in o->work plan.json, pareto.svg and heat.svg. dev and quiet are not
 * used. CHIMERE_ECANCELLED: show returned false. */
int ramp_process_run(const struct ramp_options *o, ramp_process_show *show, void *ud,
                     struct err *e);

#endif
