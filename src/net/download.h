/* download.h: downloads one large file over HTTP: in parallel parts, resumable, with a checksum.
 *
 *   PATH         appears by rename, only once it is complete and checked
 *   PATH.part    the bytes received so far, at their positions
 *   PATH.state   progress of each part, and the file's length and SHA-256; replaced by rename
 *
 * A download that was interrupted, killed or cancelled resumes from PATH.state if the same file is requested again.
 * Without a known SHA-256 it starts from the beginning, because two versions of the file could not be distinguished.
 * After a network error it retries with growing delays, until n_try consecutive attempts made no progress. Blocking;
 * any thread. Only one download of a PATH at a time (CHIMERE_EBUSY: PATH.part is locked). */
#ifndef CHIMERE_NET_DOWNLOAD_H
#define CHIMERE_NET_DOWNLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { DOWNLOAD_MAX_PARTS = 16 };

struct download { /* all pointers: borrowed for the call */
    const char *url;
    const char *path;
    const char *bearer; /* secret; NULL: none */
    const char *sha256; /* 64 hexadecimal digits; NULL: unknown */
    uint64_t length;    /* expected length of the file */
    int32_t n_part;     /* largest number of parallel parts; 0: 4 */
    int32_t n_try;      /* 0: 8 */
    /* delay before the first retry, doubled each time up to a factor of 16; 0: 1000 */
    int32_t wait_ms;
    int32_t stall_ms; /* as in fetch.h */
    bool public_only; /* as in fetch.h */
    /* All optional. on_bytes: bytes received so far; on_check: bytes hashed so far. */
    void (*on_bytes)(void *ud, uint64_t n);
    void (*on_check)(void *ud, uint64_t n);
    bool (*is_cancelled)(void *ud);
    void *ud;
};

/* CHIMERE_ECHECKSUM: the bytes do not match sha256; they were deleted. */
int download_file(const struct download *d, struct err *e);

#endif
