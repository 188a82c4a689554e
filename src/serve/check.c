/* check.c: refuses requests before their body is read: framing that two parsers could interpret differently (RFC 9112),
 * host names that were rebound to this address, pages of other sites, callers without a key, and addresses with too
 * many connections. */
#include "serve/check.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"

/* ---- addresses ---- */

bool check_is_loopback(const char *address) {
    return str_starts(address, "127.") || strcmp(address, "::1") == 0 ||
           strcmp(address, "localhost") == 0;
}

void check_address(const struct sockaddr *a, char *out, socklen_t size) {
    out[0] = 0;
    /* a Unix socket: only this user can connect (mode 0600) */
    if (a && a->sa_family == AF_UNIX) snprintf(out, size, "localhost");
    if (a && a->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)a)->sin_addr, out, size);
    if (!a || a->sa_family != AF_INET6) return;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(v6)) inet_ntop(AF_INET, v6->s6_addr + 12, out, size);
    else inet_ntop(AF_INET6, v6, out, size);
}

/* Called before a connection is accepted. Loopback addresses are exempt unless a limit was configured, because a
 * reverse proxy on this machine serves many clients. */
enum MHD_Result check_accept(void *cls, const struct sockaddr *addr, socklen_t size) {
    struct server *s = cls;
    char peer[INET6_ADDRSTRLEN];
    int n = 0, n_half = 0;
    (void)size;
    check_address(addr, peer, sizeof peer);
    bool exempt = check_is_loopback(peer);
    int most = s->p.max_per_address ? s->p.max_per_address : s->p.max_connections / 4,
        most_half = s->p.max_half_open ? s->p.max_half_open : most / 4 + 1;
    if (exempt && !s->p.max_per_address && !s->p.max_half_open) return MHD_YES;
    pthread_mutex_lock(&s->live_lock);
    for (const struct http_conn *c = s->conns; c; c = c->next) {
        if (strcmp(c->peer, peer) != 0) continue;
        n++;
        n_half += !c->busy && (c->reading || c->partial_ns || !c->n_byte);
    }
    pthread_mutex_unlock(&s->live_lock);
    if (n < most && n_half < most_half) return MHD_YES;
    s->metrics.n_turned_away++;
    return MHD_NO;
}

/* ---- framing ---- */

struct framing {
    int n_length, n_coding, n_host;
    bool bad_name, bad_length, bad_coding;
};

static enum MHD_Result see_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                  const char *value) {
    static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    struct framing *f = cls;
    (void)kind;
    if (!value) value = "";
    if (!name[0] || name[strspn(name, token)]) f->bad_name = true;
    if (strcasecmp(name, "Host") == 0) f->n_host++;
    if (strcasecmp(name, "Content-Length") == 0) {
        f->n_length++;
        f->bad_length |= !value[0] || value[strspn(value, "0123456789")];
    }
    if (strcasecmp(name, "Transfer-Encoding") == 0) {
        f->n_coding++;
        f->bad_coding |= strcasecmp(value, "chunked") != 0;
    }
    return MHD_YES;
}

/* Returns 0, or the HTTP status to refuse with. */
int check_framing(struct http_request *r, const char *version) {
    struct framing f = {0};
    MHD_get_connection_values(r->conn, MHD_HEADER_KIND, see_header, &f);
    const char *what = NULL;
    if (f.bad_name) what = "a header's name: expected letters, digits and '-' up to the colon";
    else if (f.n_length > 1) what = "Content-Length: expected once";
    else if (f.bad_length) what = "Content-Length: expected digits";
    else if (f.n_length && f.n_coding) what = "Content-Length: not together with Transfer-Encoding";
    else if (f.n_coding > 1 || f.bad_coding) what = "Transfer-Encoding: expected chunked alone";
    else if (f.n_coding && strcmp(version, MHD_HTTP_VERSION_1_1) != 0)
        what = "Transfer-Encoding: needs HTTP/1.1";
    else if (f.n_host > 1) what = "Host: expected once";
    if (!what) return 0;
    err_set(&r->early, CHIMERE_EINVAL, "%s", what);
    /* the following bytes may be the rest of a request that a proxy reads differently */
    r->closes = true;
    return 400;
}

/* ---- host names and origins ---- */

/* Extracts NAME from "NAME", "NAME:PORT" or "[ADDRESS]:PORT"; returns false for other forms. */
static bool split_host(const char *host, char *name, size_t size) {
    const char *end = host[0] == '[' ? strchr(host, ']') : host + strcspn(host, ":");
    if (!end) return false;
    const char *from = host + (host[0] == '['), *port = end + (host[0] == '[');
    size_t n = (size_t)(end - from);
    if (!n || n >= size) return false;
    if (port[0] && (port[0] != ':' || port[1 + strspn(port + 1, "0123456789")])) return false;
    memcpy(name, from, n);
    name[n] = 0;
    if (name[n - 1] == '.' && n > 1) name[n - 1] = 0; /* a fully qualified name ends with a dot */
    return true;
}

static bool is_address(const char *name) {
    struct in_addr a;
    struct in6_addr b;
    return inet_pton(AF_INET, name, &a) == 1 || inet_pton(AF_INET6, name, &b) == 1;
}

/* pattern: a name, "*" for any, or "*.NAME" for those below NAME, as gateways have them. */
static bool matches(const char *pattern, const char *name) {
    if (pattern[0] != '*') return strcasecmp(pattern, name) == 0;
    size_t n = strlen(pattern + 1), len = strlen(name);
    return !n || (pattern[1] == '.' && len > n && strcasecmp(name + len - n, pattern + 1) == 0);
}

static bool is_allowed_host(const struct server *s, const char *host) {
    char name[256];
    const char *own = s->machine;
    if (!split_host(host, name, sizeof name)) return false;
    if (is_address(name) || strcasecmp(name, "localhost") == 0) return true;
    size_t n = strcspn(own, "."), len = strlen(name);
    if (len > 10 && strcasecmp(name + len - 10, ".localhost") == 0) return true;
    if (own[0] && strcasecmp(name, own) == 0) return true;
    if (n && strncasecmp(name, own, n) == 0 && (!name[n] || strcasecmp(name + n, ".local") == 0))
        return true;
    for (size_t i = 0; i < s->p.n_allowed_host; i++)
        if (matches(s->p.allowed_hosts[i], name)) return true;
    return false;
}

/* http://localhost:3000 and similar: a page on this machine, on any port. */
static bool is_local_origin(const char *origin) {
    char name[256];
    const char *host = strstr(origin, "://");
    return host && split_host(host + 3, name, sizeof name) &&
           (strcasecmp(name, "localhost") == 0 || strcmp(name, "127.0.0.1") == 0 ||
            strcmp(name, "::1") == 0);
}

bool check_origin_allowed(const struct server *s, const char *origin) {
    for (size_t i = 0; i < s->p.n_origin; i++) {
        const char *o = s->p.origins[i];
        if (strcmp(o, "*") == 0 || strcmp(o, origin) == 0) return true;
        if (strcmp(o, "localhost") == 0 && is_local_origin(origin)) return true;
    }
    return false;
}

/* A web page can bind its own host name to this address and then call it as same-origin (DNS rebinding). So without
 * keys, only host names that no third party controls are accepted. With keys this is not necessary, because such a page
 * has no key. */
int check_origin(struct http_request *r) {
    const char *host = http_header(r, "Host"), *origin = http_header(r, "Origin");
    if (host && !r->s->asks_keys && !is_allowed_host(r->s, host)) {
        err_set(&r->early, CHIMERE_EREFUSED, "Host: %.80s is not a name of this server", host);
        err_hint(&r->early, "--allowed-host %.80s allows it", host);
        return 403;
    }
    if (!origin || check_origin_allowed(r->s, origin)) return 0;
    const char *name = strstr(origin, "://");
    if (name && host && strcmp(name + 3, host) == 0) return 0;
    err_set(&r->early, CHIMERE_EREFUSED, "Origin: %.80s is not allowed to call this server",
            origin);
    return 403;
}

/* ---- keys ---- */

bool check_is_open(const struct http_request *r) {
    return r->route && (r->route->flags & ROUTE_OPEN ||
                        (r->route->flags & ROUTE_METRICS && r->s->p.metrics_open));
}

int check_key(struct http_request *r) {
    struct server *s = r->s;
    struct auth_who who;
    r->is_admin = check_is_loopback(r->owner);
    if (!s->asks_keys && !auth_is_needed(s->auth)) return 0;
    s->asks_keys = true;
    r->is_admin = false;
    if (check_is_open(r)) return 0;
    const char *sent = http_header(r, "Authorization");
    if (!sent) sent = http_header(r, "x-api-key");
    r->key = auth_find(s->auth, sent, &who);
    if (!r->key) {
        err_set(&r->early, CHIMERE_EREFUSED,
                sent ? "this API key is not known"
                     : "an API key is needed: Authorization: Bearer KEY");
        return 401;
    }
    snprintf(r->owner, sizeof r->owner, "%s", who.identity);
    r->is_admin = who.is_admin;
    if (auth_enter(s->auth, r->key, &r->retry_s, &r->early)) return 429;
    r->counted = true;
    return 0;
}
