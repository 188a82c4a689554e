/* validate.c: host, keys, certificate and private key, without listening. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/str.h"
#include "serve/check.h"

int check_listen(const char *host, int port, struct sockaddr_storage *out, struct err *e) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)out;
    memset(out, 0, sizeof *out);
    if (strcmp(host, "localhost") == 0) host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        return 0;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        return 0;
    }
    return err_set(e, CHIMERE_EINVAL, "host: expected an address such as 127.0.0.1, got %.80s",
                   host);
}

/* The first certificate of a PEM text; X509_free. */
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

static int check_tls(const struct serve_params *p, struct err *e) {
    if (!p->tls_cert || !p->tls_key) return 0;
    X509 *x = read_cert(p->tls_cert);
    EVP_PKEY *k = read_key(p->tls_key);
    int rc = check_pair(x, k, e);
    X509_free(x);
    EVP_PKEY_free(k);
    return rc;
}

static int check_host(const char *host, int port, struct err *e) {
    struct sockaddr_storage address;
    const size_t most = sizeof((struct sockaddr_un *)0)->sun_path - 1;
    if (!str_starts(host, "unix:")) return check_listen(host, port, &address, e);
    size_t n = strlen(host) - strlen("unix:");
    return n && n <= most ? 0
                          : err_set(e, CHIMERE_EINVAL,
                                    "host: expected unix: and a path of 1 to %zu bytes", most);
}

int serve_check(const struct serve_params *p, struct err *e) {
    struct auth *keys = NULL;
    int rc = check_host(p->host, p->port, e);
    for (size_t i = 0; i < p->n_more_host && !rc; i++)
        rc = check_host(p->more_hosts[i], p->port, e);
    if (!rc) rc = auth_open(&keys, p->keys, NULL, e);
    auth_close(keys);
    return rc ? rc : check_tls(p, e);
}
