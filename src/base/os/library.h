/* library.h: shared libraries that are loaded at run time.
 *
 * A library stays loaded until the process ends, because C++ libraries leave threads and destructors that would run
 * after unloading. Errors name the file and contain the loader's message. Any thread may call this. */
#ifndef CHIMERE_BASE_LIBRARY_H
#define CHIMERE_BASE_LIBRARY_H

#include "base/err.h"

struct library;

/* CHIMERE_ENOENT: no such file. CHIMERE_EUNSUPPORTED: the loader refuses it (it is not a library, or a library or
 * symbol that it needs is missing). The result is never freed. */
int library_open(struct library **out, const char *path, struct err *e);
/* Like library_open, for a name such as "libpq.so.5", which the loader searches for. */
int library_open_system(struct library **out, const char *name, struct err *e);
/* Returns the address of a function or variable; NULL: not found. */
void *library_symbol(struct library *l, const char *name);

#endif
