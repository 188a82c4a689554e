/* validate.c: checks host, keys, certificate and private key, without listening. */
#include "serve/check.h"
#include "serve/http/listen.h"

int serve_check(const struct serve_params *p, struct err *e) {
    struct auth *keys = NULL;
    int rc = listen_check(p->host, p->port, e);
    for (size_t i = 0; i < p->n_more_host && !rc; i++)
        rc = listen_check(p->more_hosts[i], p->port, e);
    if (!rc) rc = auth_open(&keys, p->keys, NULL, e);
    auth_close(keys);
    return rc ? rc : check_tls(p, e);
}
