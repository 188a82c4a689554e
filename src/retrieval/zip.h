/* zip.h: reads the members of a ZIP archive in memory, as office files and books are. Stored and deflated members; ZIP64,
 * several disks and encryption are refused by name. All members together decompress to at most ZIP_MAX_BYTES, counted
 * each time one is read. Runs in the sandboxed child; one thread per archive. */
#ifndef CHIMERE_RETRIEVAL_ZIP_H
#define CHIMERE_RETRIEVAL_ZIP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { ZIP_MAX_BYTES = 64 << 20, ZIP_MAX_MEMBERS = 8192 };

struct zip {
    const unsigned char *data; /* view */
    size_t n, directory;       /* where the central directory begins */
    uint32_t n_member;
    size_t n_left; /* bytes that may still be decompressed */
};

int zip_open(struct zip *z, const char *data, size_t n, struct err *e);
/* *out: freed with mem_free, NUL-terminated. CHIMERE_ENOENT: there is no such member. */
int zip_read(struct zip *z, const char *name, char **out, size_t *n, struct err *e);

#endif
