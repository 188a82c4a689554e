/* features.h: what the processor and the system support, by the names of Linux' /proc/cpuinfo. Any thread. */
#ifndef CHIMERE_BASE_OS_FEATURES_H
#define CHIMERE_BASE_OS_FEATURES_H

#include <stdbool.h>

/* False for names that features.c does not list, and for those of other architectures. */
bool features_has(const char *name);

/* The known names of this architecture, present or not; NULL after the last. */
const char *features_name(int i);

#endif
