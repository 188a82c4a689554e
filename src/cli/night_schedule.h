/* night_schedule.h: chimere night schedule: nights by a systemd timer of the user. */
#ifndef CHIMERE_CLI_NIGHT_SCHEDULE_H
#define CHIMERE_CLI_NIGHT_SCHEDULE_H

#include "base/config.h"
#include "base/err.h"

/* Prints the units, or with --install writes them to the user's systemd folder. The night runs at --at with the options
 * of the command; a time that was missed is made up for, since the timer is persistent. */
int night_schedule(const struct cfg *c, struct err *e);

#endif
