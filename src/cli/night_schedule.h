/* night_schedule.h: chimere night schedule: sets when each step of a night runs. */
#ifndef CHIMERE_CLI_NIGHT_SCHEDULE_H
#define CHIMERE_CLI_NIGHT_SCHEDULE_H

#include "base/config.h"
#include "base/err.h"

/* Sets the times given as arguments (STEP=TIME) and prints all. With --systemd, prints a timer per step for users
 * who do not run `serve --night`; with --install, writes the timers to the user's systemd folder. */
int night_schedule(const struct cfg *c, struct err *e);

#endif
