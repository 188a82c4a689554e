/* ahead.h: reads parts of mapped files before a program uses them, in order.
 *
 * A program that works through a mapping waits for the disk every few pages, with one or two reads in progress; a disk
 * needs many for its full rate. Here a thread asks the system for the parts, so that as many reads are in progress as
 * it allows, at most AHEAD_BYTES beyond the part in use. That is only a hint: where the system does not support it,
 * pages are read on access.
 *
 * Parts that the program uses once may instead be read into memory of this module, without the page cache: then the
 * system need not fill it, and other files stay in it. Parts that are already in memory are left where they are. If
 * such a read fails, the part is used in the mapping. */
#ifndef CHIMERE_BASE_AHEAD_H
#define CHIMERE_BASE_AHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { AHEAD_BYTES = 256 << 20 };

struct ahead;
struct ahead_part {
    const void *at; /* view: in a mapping */
    size_t n;       /* bytes */
    bool is_once;   /* not used after the next part: may be read without the page cache */
    uint32_t file;  /* with is_once: where it is */
    uint64_t offset;
};
struct ahead_file {
    const char *path;
    uint64_t n_bytes; /* in the mapping */
};
struct ahead_params {
    const struct ahead_part *part; /* [n], borrowed until ahead_free */
    size_t n;
    const struct ahead_file *file; /* [n_file], of parts with is_once */
    uint32_t n_file;
    size_t
        room_bytes; /* memory for parts with is_once; larger parts are used in the mapping. 0: all are */
};

/* CHIMERE_ENOMEM: no memory or no thread. */
int ahead_new(struct ahead **out, const struct ahead_params *p, struct err *e);
/* Part i < n is in use from now on; i does not decrease. Returns its bytes, valid until the next call. */
const void *ahead_use(struct ahead *a, size_t i);
uint64_t
ahead_direct_bytes(const struct ahead *a); /* of the parts in use so far, without the page cache */
void ahead_free(struct ahead *a);          /* before the parts are unmapped; NULL is allowed */

#endif
