/* validate_win.c: checks host and keys, without listening. This program has no TLS on Windows. */
#include "serve/check.h"
#include "serve/http/listen.h"

int serve_check(const struct serve_params *p, struct err *e) {
    struct auth *keys = NULL;
    int rc = listen_check(p->host, p->port, e);
    for (size_t i = 0; i < p->n_more_host && !rc; i++)
        rc = listen_check(p->more_hosts[i], p->port, e);
    if (!rc) rc = auth_open(&keys, p->keys, NULL, e);
    auth_close(keys);
    if (!rc && (p->tls_cert || p->tls_key))
        rc = err_set(e, CHIMERE_EUNSUPPORTED,
                     "--tls-cert: not supported on Windows; put a proxy before the server");
    return rc;
}
