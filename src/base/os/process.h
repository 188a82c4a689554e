/* process.h: names for processes, so that a later reader of a record can check whether that process still runs. Any
 * thread may call this. */
#ifndef CHIMERE_BASE_PROCESS_H
#define CHIMERE_BASE_PROCESS_H

#include <stdbool.h>

enum { PROCESS_MAX_NAME = 48 };

/* Writes "PID/START". START is the kernel's start time since boot (proc(5), stat, field 22), so no other process of
 * this boot has this name. "PID/0" without /proc. */
void process_self(char out[PROCESS_MAX_NAME]);
/* Returns false for a name that is not from process_self. */
bool process_is_alive(const char *name);

#endif
