/* digest_posix.c: digest.h with libcrypto. */
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "base/digest.h"

/* A struct digest is an EVP_MD_CTX, without additional state. */
struct digest *digest_new(void) {
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    if (md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1) return (struct digest *)md;
    EVP_MD_CTX_free(md);
    return NULL;
}

bool digest_add(struct digest *d, const void *p, size_t n) {
    return EVP_DigestUpdate((EVP_MD_CTX *)d, p, n) == 1;
}

bool digest_end(struct digest *d, unsigned char out[DIGEST_BYTES]) {
    return EVP_DigestFinal_ex((EVP_MD_CTX *)d, out, NULL) == 1;
}

void digest_free(struct digest *d) { EVP_MD_CTX_free((EVP_MD_CTX *)d); }

bool digest_equal(const void *a, const void *b, size_t n) { return CRYPTO_memcmp(a, b, n) == 0; }

void digest_wipe(void *p, size_t n) { OPENSSL_cleanse(p, n); }

const char *digest_library(void) { return OpenSSL_version(OPENSSL_VERSION); }
