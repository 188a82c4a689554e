/* night_clock.h: runs the steps of nights at their times (schedule.h), in a thread of its own.
 *
 * Looks at the schedule every second or so; a changed file takes effect without a restart. Steps that are due at the
 * same time are one night. When a step ran is written after its night, so that one that was cut off runs again after the
 * next start. */
#ifndef CHIMERE_LEARN_NIGHT_CLOCK_H
#define CHIMERE_LEARN_NIGHT_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct night_clock;

struct night_clock_params {
    const char *dir; /* of nights; copied */
    /* One night of these steps, comma-separated; on the clock's thread. It polls night_clock_goes_on. CHIMERE_EBUSY:
     * another night runs, tried again a minute later. */
    int (*run)(void *ud, const struct night_clock *c, const char *steps, struct err *e);
    int64_t (*now_s)(void *ud); /* NULL: the system's clock */
    void *ud;                   /* borrowed until night_clock_close */
};
int night_clock_open(struct night_clock **out, const struct night_clock_params *p, struct err *e);
/* Asks a night that runs to stop, and waits for it. */
void night_clock_close(struct night_clock *c);
bool night_clock_goes_on(const struct night_clock *c);

#endif
