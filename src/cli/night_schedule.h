/* night_schedule.h: chimere night schedule: when each step of a night runs. */
#ifndef CHIMERE_CLI_NIGHT_SCHEDULE_H
#define CHIMERE_CLI_NIGHT_SCHEDULE_H

#include "base/config.h"
#include "base/err.h"

/* Sets the times that the arguments give (STEP=TIME) and prints all; with --systemd prints a timer per step for who
 * runs no `serve --night`, with --install writes them to the user's systemd folder. */
int night_schedule(const struct cfg *c, struct err *e);

#endif
