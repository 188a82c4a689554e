/* zip.h: reads the members of a ZIP archive in memory, for office files and books. Stored and deflated members are
 * supported; ZIP64, several disks and encryption are refused by name. Reading may decompress at most ZIP_MAX_BYTES
 * in total; a member that is read twice counts twice. Runs in the sandboxed child; one thread per archive. */
#ifndef CHIMERE_RETRIEVAL_ZIP_H
#define CHIMERE_RETRIEVAL_ZIP_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { ZIP_MAX_BYTES = 64 << 20, ZIP_MAX_MEMBERS = 8192 };

struct zip {
    const unsigned char *data; /* view */
    size_t n, directory;       /* directory: offset of the central directory */
    uint32_t n_member;
    size_t n_left; /* bytes that may still be decompressed */
};

int zip_open(struct zip *z, const char *data, size_t n, struct err *e);
/* *out: NUL-terminated; free it with mem_free. CHIMERE_ENOENT: no such member. */
int zip_read(struct zip *z, const char *name, char **out, size_t *n, struct err *e);

#endif
