/* ahead.h: asks the system to read parts of mapped files before a program uses them.
 *
 * A program that works through a mapping waits for the disk every few pages, with one or two reads in progress; a disk
 * needs many for its full rate. Here a thread asks for the parts in order, so that as many reads are in progress as the
 * system allows. It goes at most AHEAD_BYTES beyond the part in use, so that pages are not evicted before they are
 * used. Only a hint: where the system does not support it, pages are read on access. */
#ifndef CHIMERE_BASE_AHEAD_H
#define CHIMERE_BASE_AHEAD_H

#include <stddef.h>

#include "base/err.h"

enum { AHEAD_BYTES = 256 << 20 };

struct ahead;
struct ahead_part {
    const void *at; /* view: in a mapping */
    size_t n;       /* bytes */
};

/* part: borrowed until ahead_free; part 0 is in use. CHIMERE_ENOMEM: no memory or no thread. */
int ahead_new(struct ahead **out, const struct ahead_part *part, size_t n, struct err *e);
void ahead_use(struct ahead *a,
               size_t i);         /* part i < n is in use from now on; i does not decrease */
void ahead_free(struct ahead *a); /* before the parts are unmapped; NULL is allowed */

#endif
