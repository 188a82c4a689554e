/* tls_pair_win.c: this program has no TLS on Windows. */
#include "serve/check.h"

int check_tls(const struct serve_params *p, struct err *e) {
    if (!p->tls_cert && !p->tls_key) return 0;
    return err_set(e, CHIMERE_EUNSUPPORTED,
                   "--tls-cert: not supported on Windows; put a proxy before the server");
}
