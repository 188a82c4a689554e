/* check.h: checks that refuse a request before its body is read. Called on the sockets' thread. */
#ifndef CHIMERE_SERVE_CHECK_H
#define CHIMERE_SERVE_CHECK_H

#include "serve/http/http_impl.h"

/* Return 0, or the HTTP status to refuse with; r->early then has the reason. */
int check_framing(struct http_request *r, const char *version);
int check_origin(struct http_request *r);
int check_key(struct http_request *r);

bool check_is_open(const struct http_request *r); /* the route needs no key */
bool check_origin_allowed(const struct server *s, const char *origin);
bool check_is_loopback(const char *address);
/* Formats the address as text; IPv4 addresses mapped into IPv6 are written as IPv4. */
void check_address(const struct sockaddr *a, char *out, socklen_t size);
/* Callback of libmicrohttpd before it accepts a connection. */
enum MHD_Result check_accept(void *cls, const struct sockaddr *addr, socklen_t size);

/* Whether the certificate and the key of --tls-cert and --tls-key can serve; 0 without them. Not for a request. */
int check_tls(const struct serve_params *p, struct err *e);

#endif
