/* night_clock.h: runs the steps of nights at their scheduled times (schedule.h), on its own thread.
 *
 * Reads the schedule about once per second; a changed file takes effect without a restart. Steps that are due at
 * the same time run in one night. The time of a run is written after the night, so an interrupted one runs again
 * after the next start. */
#ifndef CHIMERE_LEARN_NIGHT_CLOCK_H
#define CHIMERE_LEARN_NIGHT_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct night_clock;

struct night_clock_params {
    const char *dir; /* folder of the nights; copied */
    /* Runs one night with these steps, separated by commas; called on the clock's thread. It must poll
     * night_clock_goes_on. CHIMERE_EBUSY: another night runs; tried again a minute later. */
    int (*run)(void *ud, const struct night_clock *c, const char *steps, struct err *e);
    void (*tick)(void *ud);     /* called about once per second while no night runs; NULL: none */
    int64_t (*now_s)(void *ud); /* NULL: the system's clock */
    void *ud;                   /* borrowed until night_clock_close */
};
int night_clock_open(struct night_clock **out, const struct night_clock_params *p, struct err *e);
/* Asks a running night to stop, and waits for it. */
void night_clock_close(struct night_clock *c);
bool night_clock_goes_on(const struct night_clock *c);

#endif
