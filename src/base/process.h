/* process.h: names processes, so that a record of one can tell later whether it still runs. Any thread. */
#ifndef CHIMERE_BASE_PROCESS_H
#define CHIMERE_BASE_PROCESS_H

#include <stdbool.h>

enum { PROCESS_MAX_NAME = 48 };

/* "PID/START", START as the kernel counts it since boot (proc(5), stat, field 22): no other process of this
 * boot has this name. "PID/0" without /proc. */
void process_self(char out[PROCESS_MAX_NAME]);
/* False for a name that process_self never returned. */
bool process_is_alive(const char *name);

#endif
