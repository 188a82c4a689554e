/* digest.h: SHA-256, and handling of secrets. Any thread. */
#ifndef CHIMERE_BASE_DIGEST_H
#define CHIMERE_BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>

enum { DIGEST_BYTES = 32, DIGEST_HEX_BYTES = 65 };

struct digest; /* of bytes that arrive in parts */
struct digest *digest_new(void);
bool digest_add(struct digest *d, const void *p, size_t n);
/* Writes the digest of all bytes; returns false if the library failed. The object cannot be used any more. */
bool digest_end(struct digest *d, unsigned char out[DIGEST_BYTES]);
void digest_free(struct digest *d);

bool digest_of(const void *p, size_t n, unsigned char out[DIGEST_BYTES]);
void digest_hex(const unsigned char digest[DIGEST_BYTES], char out[DIGEST_HEX_BYTES]);
/* In a time that does not depend on where they differ. */
bool digest_equal(const void *a, const void *b, size_t n);
void digest_wipe(void *p, size_t n); /* the compiler cannot remove this */
const char *digest_library(void);    /* name and version */

#endif
