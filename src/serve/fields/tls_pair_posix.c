/* tls_pair_posix.c: checks certificate and private key by OpenSSL. */
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "serve/check.h"

/* Reads the first certificate of a PEM text; free with X509_free. */
static X509 *read_cert(const char *pem) {
    BIO *b = BIO_new_mem_buf(pem, -1);
    X509 *x = b ? PEM_read_bio_X509(b, NULL, NULL, NULL) : NULL;
    BIO_free(b);
    return x;
}

/* A key with a passphrase is refused instead of asking for one on the terminal. */
static int no_passphrase(char *buf, int size, int rw, void *ud) {
    (void)buf, (void)size, (void)rw, (void)ud;
    return -1;
}

static EVP_PKEY *read_key(const char *pem) {
    BIO *b = BIO_new_mem_buf(pem, -1);
    EVP_PKEY *k = b ? PEM_read_bio_PrivateKey(b, NULL, no_passphrase, NULL) : NULL;
    BIO_free(b);
    return k;
}

static int check_pair(X509 *x, EVP_PKEY *k, struct err *e) {
    if (!x) return err_set(e, CHIMERE_EFORMAT, "--tls-cert: expected a certificate, PEM");
    if (!k)
        return err_set(e, CHIMERE_EFORMAT,
                       "--tls-key: expected a private key without a passphrase, PEM");
    if (X509_check_private_key(x, k) != 1)
        return err_set(e, CHIMERE_EMISMATCH, "--tls-key: is not the key of --tls-cert");
    if (X509_cmp_current_time(X509_get0_notAfter(x)) < 0)
        return err_set(e, CHIMERE_EINVAL, "--tls-cert: the certificate has expired");
    return 0;
}

int check_tls(const struct serve_params *p, struct err *e) {
    if (!p->tls_cert || !p->tls_key) return 0;
    X509 *x = read_cert(p->tls_cert);
    EVP_PKEY *k = read_key(p->tls_key);
    int rc = check_pair(x, k, e);
    X509_free(x);
    EVP_PKEY_free(k);
    return rc;
}
