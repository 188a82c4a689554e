/* download.h: one large file over HTTP: in parts side by side, resumed where it stopped, checked.
 *
 *   PATH         appears when whole and checked, by rename; never before
 *   PATH.part    the bytes so far, at their places
 *   PATH.state   how far each part is, and of what (length and SHA-256); replaced by rename
 *
 * A download that was cut, killed or cancelled goes on from PATH.state when the same file is asked for
 * again; without a known SHA-256 it begins anew, since nothing would tell two versions apart. A network
 * failure is tried again, longer and longer apart, until n_try in a row brought nothing. Blocking; any
 * thread; one download of a PATH at a time (CHIMERE_EBUSY: PATH.part is locked). */
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
    const char *sha256; /* 64 hexadecimal digits, or NULL: not known */
    uint64_t length;    /* bytes that the file must have */
    int32_t n_part;     /* side by side at most; 0: 4 */
    int32_t n_try;      /* 0: 8 */
    int32_t wait_ms;    /* before the first new try, doubled up to 16 times; 0: 1000 */
    int32_t stall_ms;   /* as fetch.h */
    bool public_only;   /* as fetch.h */
    /* All optional. on_bytes: bytes in place so far; on_check: bytes hashed so far. */
    void (*on_bytes)(void *ud, uint64_t n);
    void (*on_check)(void *ud, uint64_t n);
    bool (*is_cancelled)(void *ud);
    void *ud;
};

/* CHIMERE_ECHECKSUM: the bytes are not those that were promised; they are gone. */
int download_file(const struct download *d, struct err *e);

#endif
