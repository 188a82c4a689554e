/* library.h: shared objects that are loaded while the program runs.
 *
 * A library stays loaded until the process ends: C++ libraries leave threads and destructors that outlive an
 * unloading. Errors name the file and what the loader reports. Any thread. */
#ifndef CHIMERE_BASE_LIBRARY_H
#define CHIMERE_BASE_LIBRARY_H

#include "base/err.h"

struct library;

/* CHIMERE_ENOENT: no such file. CHIMERE_EUNSUPPORTED: the loader refuses it (not a library, one that it needs is
 * missing or lacks a symbol). The result belongs to the process. */
int library_open(struct library **out, const char *path, struct err *e);
/* The same by a name such as "libpq.so.5", where the loader looks. */
int library_open_system(struct library **out, const char *name, struct err *e);
/* Address of a function or datum; NULL: there is none. */
void *library_symbol(struct library *l, const char *name);

#endif
