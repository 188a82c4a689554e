/* digest_win.c: digest.h with the cryptography of Windows. */
#include <windows.h>

#include <bcrypt.h> /* needs windows.h */

#include "base/digest.h"

/* A struct digest is a BCRYPT_HASH_HANDLE, without additional state. */
struct digest *digest_new(void) {
    BCRYPT_HASH_HANDLE h = NULL;
    BCRYPT_ALG_HANDLE sha256 = NULL;
    if (BCryptOpenAlgorithmProvider(&sha256, BCRYPT_SHA256_ALGORITHM, NULL, 0) < 0) return NULL;
    BCryptCreateHash(sha256, &h, NULL, 0, NULL, 0, 0);
    return (struct digest *)h; /* the provider is cached by Windows, and used until the end */
}

bool digest_add(struct digest *d, const void *p, size_t n) {
    for (const unsigned char *at = p; n;) {
        ULONG take = n < 1 << 30 ? (ULONG)n : 1 << 30;
        if (BCryptHashData(d, (PUCHAR)at, take, 0) < 0) return false;
        at += take;
        n -= take;
    }
    return true;
}

bool digest_end(struct digest *d, unsigned char out[DIGEST_BYTES]) {
    return BCryptFinishHash(d, out, DIGEST_BYTES, 0) >= 0;
}

void digest_free(struct digest *d) {
    if (d) BCryptDestroyHash(d);
}

bool digest_equal(const void *a, const void *b, size_t n) {
    const volatile unsigned char *x = a, *y = b;
    unsigned char differs = 0;
    for (size_t i = 0; i < n; i++) differs |= x[i] ^ y[i];
    return !differs;
}

void digest_wipe(void *p, size_t n) { SecureZeroMemory(p, n); }

const char *digest_library(void) { return "none: bcrypt of Windows"; }
