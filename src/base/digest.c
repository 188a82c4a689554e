/* digest.c: the parts of digest.h that need no library. */
#include "base/digest.h"

#include <stdio.h>

bool digest_of(const void *p, size_t n, unsigned char out[DIGEST_BYTES]) {
    struct digest *d = digest_new();
    bool ok = d && digest_add(d, p, n) && digest_end(d, out);
    digest_free(d);
    return ok;
}

void digest_hex(const unsigned char digest[DIGEST_BYTES], char out[DIGEST_HEX_BYTES]) {
    for (int i = 0; i < DIGEST_BYTES; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
}
