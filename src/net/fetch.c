/* fetch.c: implements fetch.h with libcurl. It uses one easy handle per transfer and one multi handle per call, so that
 * a single loop handles waiting, cancelling and parallel transfers. */
#include "net/fetch.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"
#include "net/address.h"

enum { POLL_MS = 50, LATER_MS = 2 };

struct transfer {
    struct fetch_request r;
    struct fetch_reply reply;
    CURL *easy;               /* owned; NULL: not running */
    struct curl_slist *heads; /* owned */
    size_t n_head;            /* header bytes of all responses so far */
    uint64_t max_bytes;
    int64_t start_ns, window_ns; /* start of the current period of stall_ms */
    uint64_t window_bytes;
    /* in_body: on_head was called; stopped: no more transfers; refused: an address was refused */
    bool in_body, stopped, refused;
    bool cut; /* an error page was cut at its limit */
    int rc;   /* result of our callbacks */
    struct err e;
    char shown[256]; /* the address, without credentials and query, for messages */
};

static void init_once(void) { curl_global_init(CURL_GLOBAL_DEFAULT); }

const char *fetch_version(void) { return curl_version_info(CURLVERSION_NOW)->version; }

void fetch_reply_fini(struct fetch_reply *r) { buf_fini(&r->body); }

void fetch_show_url(const char *url, char *out, size_t out_size) {
    size_t n = strcspn(url, "?#");
    const char *host = strstr(url, "://"), *at;
    if (host && (size_t)(host - url) < n) {
        host += 3;
        size_t n_host = strcspn(host, "/?#");
        at = memchr(host, '@', n_host);
        if (at) { /* "scheme://" and the text after the credentials */
            size_t n_scheme = (size_t)(host - url);
            snprintf(out, out_size, "%.*s%.*s", (int)n_scheme, url,
                     (int)(n - (size_t)(at + 1 - url)), at + 1);
            return;
        }
    }
    snprintf(out, out_size, "%.*s", (int)(n < 4096 ? n : 4096), url);
}

/* ---- callbacks of libcurl ---- */

static void read_range(struct fetch_reply *reply, const char *v) {
    unsigned long long from, to, all;
    char end;
    if (sscanf(v, "bytes %llu-%llu/%llu%c", &from, &to, &all, &end) != 3 || from > to || to >= all)
        return;
    reply->from = from;
    reply->length = all;
    reply->has_length = true;
}

static void read_head_line(struct transfer *t, const char *name, const char *value) {
    struct fetch_reply *reply = &t->reply;
    int64_t v;
    if (str_eq_nocase(name, "content-type")) {
        size_t n = strcspn(value, "; \t");
        if (n >= sizeof reply->type) n = sizeof reply->type - 1;
        for (size_t i = 0; i < n; i++)
            reply->type[i] = (char)(value[i] >= 'A' && value[i] <= 'Z' ? value[i] + 32 : value[i]);
        reply->type[n] = 0;
    } else if (str_eq_nocase(name, "content-length") && reply->status != 206 &&
               str_to_i64(value, 0, INT64_MAX, &v)) {
        reply->length = (uint64_t)v;
        reply->has_length = true;
    } else if (str_eq_nocase(name, "content-range")) {
        read_range(reply, value);
    } else if (str_eq_nocase(name, "retry-after") && str_to_i64(value, 0, 86400, &v)) {
        reply->retry_after_s = (int32_t)v;
    }
}

static size_t on_header(char *p, size_t size, size_t n, void *ud) {
    struct transfer *t = ud;
    n *= size;
    t->n_head += n;
    if (t->n_head > FETCH_MAX_HEAD_BYTES) {
        t->rc = err_set(&t->e, CHIMERE_ELIMIT, "%s: expected at most %d bytes of headers, got more",
                        t->shown, FETCH_MAX_HEAD_BYTES);
        return 0;
    }
    char line[1024];
    size_t keep = n < sizeof line - 1 ? n : sizeof line - 1;
    memcpy(line, p, keep);
    line[keep] = 0;
    line[strcspn(line, "\r\n")] = 0;
    if (str_starts(line, "HTTP/")) { /* a new response: after a redirect, or after status 100 */
        const char *code = strchr(line, ' ');
        t->reply.status = 0;
        t->reply.has_length = false;
        t->reply.from = t->reply.length = 0;
        t->reply.retry_after_s = -1;
        t->reply.type[0] = t->reply.wanted[0] = 0;
        if (code) sscanf(code, " %3d", &t->reply.status);
        return n;
    }
    char *colon = strchr(line, ':');
    if (!colon) return n;
    *colon = 0;
    char *value = colon + 1 + strspn(colon + 1, " \t");
    size_t len = strlen(value);
    while (len && (value[len - 1] == ' ' || value[len - 1] == '\t')) value[--len] = 0;
    read_head_line(t, line, value);
    if (t->r.want && str_eq_nocase(line, t->r.want) && strlen(value) < sizeof t->reply.wanted)
        memcpy(t->reply.wanted, value, strlen(value) + 1);
    return n;
}

static int take_body(struct transfer *t, const char *p, size_t n) {
    struct fetch_reply *reply = &t->reply;
    bool good = reply->status / 100 == 2;
    if (good && !t->in_body && t->r.on_head) {
        int rc = t->r.on_head(t->r.ud, reply);
        if (rc < 0) return err_set(&t->e, rc, "%s: the answer was not taken", t->shown);
    }
    t->in_body = true;
    if (!good) { /* keep the start of an error page, which describes the error */
        size_t room = FETCH_MAX_ERROR_BYTES - reply->body.n;
        t->cut = n > room;
        return buf_put(&reply->body, p, t->cut ? room : n);
    }
    if (n > t->max_bytes - reply->n_bytes)
        return err_set(&t->e, CHIMERE_ELIMIT, "%s: expected at most %llu bytes, got more", t->shown,
                       (unsigned long long)t->max_bytes);
    reply->n_bytes += n;
    int rc = t->r.on_body ? t->r.on_body(t->r.ud, p, n) : buf_put(&reply->body, p, n);
    return rc < 0 ? err_set(&t->e, rc, "%s: the body was not taken: %s", t->shown, err_name(rc))
                  : 0;
}

static size_t on_write(char *p, size_t size, size_t n, void *ud) {
    struct transfer *t = ud;
    n *= size;
    t->window_bytes += n;
    t->rc = take_body(t, p, n);
    return t->rc || t->cut ? 0 : n;
}

/* Checks the address that libcurl is about to connect to. A check before name resolution would not be reliable: the
 * name may resolve differently each time. */
static curl_socket_t on_open(void *ud, curlsocktype purpose, struct curl_sockaddr *a) {
    struct transfer *t = ud;
    if (purpose != CURLSOCKTYPE_IPCXN) return CURL_SOCKET_BAD;
    if ((t->r.public_only && !address_is_public(&a->addr, a->addrlen)) ||
        (t->r.local_only && !address_is_loopback(&a->addr, a->addrlen))) {
        t->refused = true;
        return CURL_SOCKET_BAD;
    }
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

/* ---- one transfer ---- */

static int check_url(struct transfer *t) {
    const char *url = t->r.url;
    fetch_show_url(url, t->shown, sizeof t->shown);
    CURLU *u = strlen(url) <= FETCH_MAX_URL_BYTES ? curl_url() : NULL;
    char *scheme = NULL;
    bool ok = u && curl_url_set(u, CURLUPART_URL, url, CURLU_DISALLOW_USER) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK;
    bool known = ok && (!strcmp(scheme, "http") || !strcmp(scheme, "https"));
    curl_free(scheme);
    curl_url_cleanup(u);
    if (ok && known) return 0;
    if (ok) return err_set(&t->e, CHIMERE_EREFUSED, "%s: expected http:// or https://", t->shown);
    return err_set(&t->e, CHIMERE_EINVAL,
                   "%s: expected an address like https://host/path without credentials, of at most "
                   "%d bytes",
                   t->shown, FETCH_MAX_URL_BYTES);
}

static int add_header(struct transfer *t, const char *line) {
    if (strpbrk(line, "\r\n"))
        return err_set(&t->e, CHIMERE_EINVAL, "header: expected one line, got a line break");
    struct curl_slist *grown = curl_slist_append(t->heads, line);
    if (!grown) return err_set(&t->e, CHIMERE_ENOMEM, "out of memory");
    t->heads = grown;
    return 0;
}

static int set_headers(struct transfer *t) {
    const struct fetch_request *r = &t->r;
    int rc = add_header(t, "Expect:"); /* do not wait for status 100 */
    for (const char *const *h = r->headers; !rc && h && *h; h++) rc = add_header(t, *h);
    if (r->bearer && !rc) {
        struct buf b;
        buf_init(&b, 8192);
        rc = buf_printf(&b, "Authorization: Bearer %s", r->bearer);
        if (rc) err_set(&t->e, rc, "key: expected at most 8000 bytes");
        else rc = add_header(t, b.p);
        if (b.p) explicit_bzero(b.p, b.n);
        buf_fini(&b);
    }
    return rc;
}

static void set_limits(CURL *c, const struct fetch_request *r) {
    bool follow = r->max_redirects >= 0;
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, (long)follow);
    curl_easy_setopt(c, CURLOPT_MAXREDIRS,
                     (long)(r->max_redirects > 0 ? r->max_redirects : FETCH_MAX_REDIRECTS));
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    /* a request that began with HTTPS must stay encrypted */
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR,
                     str_starts(r->url, "https:") || str_starts(r->url, "HTTPS:") ? "https"
                                                                                  : "http,https");
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS,
                     (long)(r->connect_ms ? r->connect_ms : FETCH_DEFAULT_CONNECT_MS));
    if (r->total_ms) curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)r->total_ms);
    /* with a proxy, the proxy's address would be checked instead of the target's */
    if (r->public_only || r->local_only) curl_easy_setopt(c, CURLOPT_PROXY, "");
    if (r->local_only) {
        curl_easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 0L);
    }
}

static void set_range(CURL *c, const struct fetch_request *r) {
    char range[64];
    if (!r->from && !r->n_range) return;
    unsigned long long from = r->from, to = r->from + r->n_range - 1;
    if (r->n_range) snprintf(range, sizeof range, "%llu-%llu", from, to);
    else snprintf(range, sizeof range, "%llu-", from);
    curl_easy_setopt(c, CURLOPT_RANGE, range);
}

static int transfer_start(struct transfer *t, CURLM *multi) {
    const struct fetch_request *r = &t->r;
    int rc = check_url(t);
    if (!rc) rc = set_headers(t);
    CURL *c = rc ? NULL : curl_easy_init();
    if (!rc && !c) rc = err_set(&t->e, CHIMERE_ENOMEM, "out of memory");
    if (rc) return rc;
    t->easy = c;
    curl_easy_setopt(c, CURLOPT_URL, r->url);
    curl_easy_setopt(c, CURLOPT_PRIVATE, t);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 1L);
    curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "chimere");
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, t->heads);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_write);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, on_open);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, t);
    set_limits(c, r);
    set_range(c, r);
    if (r->body) {
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->n_body);
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, r->body);
    }
    if (r->method) curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, r->method);
    t->start_ns = t->window_ns = clock_ns();
    if (curl_multi_add_handle(multi, c) != CURLM_OK)
        return err_set(&t->e, CHIMERE_ENOMEM, "out of memory");
    return 0;
}

static void transfer_end(struct transfer *t, CURLM *multi) {
    if (t->easy) {
        curl_multi_remove_handle(multi, t->easy);
        curl_easy_cleanup(t->easy);
    }
    curl_slist_free_all(t->heads);
    t->easy = NULL;
    t->heads = NULL;
}

static int code_of(CURLcode code) {
    switch (code) {
    case CURLE_OPERATION_TIMEDOUT: return CHIMERE_ETIMEOUT;
    case CURLE_OUT_OF_MEMORY: return CHIMERE_ENOMEM;
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE: return CHIMERE_EREFUSED;
    case CURLE_URL_MALFORMAT: return CHIMERE_EINVAL;
    default: return CHIMERE_EIO;
    }
}

static int judge(struct transfer *t, CURLcode code) {
    if (t->rc) return t->rc;
    if (t->cut) return 0;
    if (code == CURLE_OK) {
        /* libcurl does not report an empty body */
        if (t->reply.status / 100 == 2 && !t->in_body) return take_body(t, "", 0);
        return 0;
    }
    if (t->refused) {
        err_set(&t->e, CHIMERE_EREFUSED, "%s: leads to %s address", t->shown,
                t->r.local_only ? "another machine's" : "a private or reserved");
        return CHIMERE_EREFUSED;
    }
    curl_off_t n = 0;
    curl_easy_getinfo(t->easy, CURLINFO_SIZE_DOWNLOAD_T, &n);
    return n ? err_set(&t->e, code_of(code), "%s: %s, after status %d and %lld bytes", t->shown,
                       curl_easy_strerror(code), t->reply.status, (long long)n)
             : err_set(&t->e, code_of(code), "%s: %s", t->shown, curl_easy_strerror(code));
}

/* Checks for cancellation and for too little progress. libcurl's own check has a resolution of seconds. */
static int watch(struct transfer *t) {
    const struct fetch_request *r = &t->r;
    if (r->is_cancelled && r->is_cancelled(r->ud))
        return err_set(&t->e, CHIMERE_ECANCELLED, "%s: cancelled", t->shown);
    int32_t stall_ms = r->stall_ms ? r->stall_ms : FETCH_DEFAULT_STALL_MS;
    if (clock_ms_since(t->window_ns) < stall_ms) return 0;
    if (t->window_bytes < (r->min_bytes ? r->min_bytes : 1))
        return err_set(&t->e, CHIMERE_ETIMEOUT, "%s: expected at least %u bytes in %d ms, got %llu",
                       t->shown, r->min_bytes ? r->min_bytes : 1, stall_ms,
                       (unsigned long long)t->window_bytes);
    t->window_ns = clock_ns();
    t->window_bytes = 0;
    return 0;
}

/* ---- the loop ---- */

struct loop {
    const struct fetch_many *m; /* borrowed for the call */
    CURLM *multi;               /* owned */
    struct transfer *t;         /* owned [m->n] */
    struct err *e;
};

static int finish(struct loop *l, struct transfer *t, int rc) {
    transfer_end(t, l->multi);
    int32_t i = (int32_t)(t - l->t);
    int verdict = l->m->done(l->m->ud, i, rc, &t->reply, &t->e);
    fetch_reply_fini(&t->reply);
    if (verdict >= 0) return 0;
    if (l->e && t->e.code) *l->e = t->e;
    return verdict;
}

/* Starts the transfers that are ready. *alive: any transfer runs or waits; *later: any transfer waits. */
static int start_all(struct loop *l, bool *alive, bool *later) {
    *alive = *later = false;
    for (int32_t i = 0; i < l->m->n; i++) {
        struct transfer *t = &l->t[i];
        if (t->easy || t->stopped) {
            *alive |= !t->stopped;
            continue;
        }
        *t = (struct transfer){.reply.retry_after_s = -1};
        enum fetch_next next = l->m->next(l->m->ud, i, &t->r);
        t->stopped = next == FETCH_STOP;
        *alive |= !t->stopped;
        *later |= next == FETCH_LATER;
        if (next != FETCH_START) continue;
        t->max_bytes = t->r.max_bytes ? t->r.max_bytes : FETCH_DEFAULT_MAX_BYTES;
        size_t keep = t->r.on_body ? FETCH_MAX_ERROR_BYTES : (size_t)t->max_bytes;
        buf_init(&t->reply.body, keep > FETCH_MAX_ERROR_BYTES ? keep : FETCH_MAX_ERROR_BYTES);
        int rc = transfer_start(t, l->multi);
        if (rc) rc = finish(l, t, rc);
        if (rc) return rc;
    }
    return 0;
}

/* Ends transfers that are complete, cancelled or too slow; *n_done: their number. */
static int collect(struct loop *l, int *n_done) {
    int left;
    CURLMsg *msg;
    while ((msg = curl_multi_info_read(l->multi, &left))) {
        char *owner;
        if (msg->msg != CURLMSG_DONE) continue;
        CURLcode code = msg->data.result;
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &owner);
        struct transfer *t = (struct transfer *)(void *)owner;
        ++*n_done;
        int rc = finish(l, t, judge(t, code));
        if (rc) return rc;
    }
    for (int32_t i = 0; i < l->m->n; i++) {
        if (!l->t[i].easy) continue;
        int rc = watch(&l->t[i]);
        if (!rc) continue;
        ++*n_done;
        rc = finish(l, &l->t[i], rc);
        if (rc) return rc;
    }
    return 0;
}

int fetch_many(const struct fetch_many *m, struct err *e) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_once);
    struct loop l = {.m = m, .e = e};
    l.multi = curl_multi_init();
    l.t = mem_alloc_array((size_t)m->n, sizeof *l.t);
    int rc = l.multi && l.t ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    while (!rc) {
        bool alive, later;
        int n_running, n_done = 0;
        rc = start_all(&l, &alive, &later);
        if (rc || !alive) break;
        if (curl_multi_perform(l.multi, &n_running) != CURLM_OK)
            rc = err_set(e, CHIMERE_EINTERNAL, "network: the transfer loop failed");
        if (!rc) rc = collect(&l, &n_done);
        if (!rc && !n_done) curl_multi_poll(l.multi, NULL, 0, later ? LATER_MS : POLL_MS, NULL);
    }
    for (int32_t i = 0; l.t && i < m->n; i++)
        if (l.t[i].easy) {
            transfer_end(&l.t[i], l.multi);
            fetch_reply_fini(&l.t[i].reply);
        }
    mem_free(l.t);
    if (l.multi) curl_multi_cleanup(l.multi);
    return rc;
}

/* ---- a single transfer ---- */

struct single {
    const struct fetch_request *r;
    struct fetch_reply *out;
    struct err *e;
    bool started;
    int rc;
};

static enum fetch_next single_next(void *ud, int32_t i, struct fetch_request *r) {
    struct single *s = ud;
    (void)i;
    if (s->started) return FETCH_STOP;
    s->started = true;
    *r = *s->r;
    return FETCH_START;
}

static int single_done(void *ud, int32_t i, int rc, struct fetch_reply *reply, struct err *e) {
    struct single *s = ud;
    (void)i;
    *s->out = *reply;
    buf_init(&reply->body, 0); /* ownership passes to the caller */
    s->rc = rc;
    if (rc && s->e) *s->e = *e;
    return 0;
}

int fetch(const struct fetch_request *r, struct fetch_reply *out, struct err *e) {
    *out = (struct fetch_reply){.retry_after_s = -1};
    struct single s = {.r = r, .out = out, .e = e};
    const struct fetch_many m = {.n = 1, .next = single_next, .done = single_done, .ud = &s};
    int rc = fetch_many(&m, e);
    return rc ? rc : s.rc;
}

/* Extracts the message from a server's error body, in the usual JSON forms; otherwise empty. */
static void server_says(const struct fetch_reply *reply, char *out, size_t size) {
    out[0] = 0;
    static const char *const keys[] = {"\"message\"", "\"error\"", "\"detail\""};
    const char *body = reply->body.n ? reply->body.p : "";
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !out[0]; i++) {
        const char *p = strstr(body, keys[i]);
        if (!p) continue;
        p += strlen(keys[i]);
        p += strspn(p, " :\n\t");
        if (*p != '"') continue;
        size_t n = strcspn(p + 1, "\"\\");
        snprintf(out, size, ": %.*s", (int)(n < 200 ? n : 200), p + 1);
    }
}

int fetch_status_error(const struct fetch_request *r, const struct fetch_reply *reply,
                       struct err *e) {
    int32_t s = reply->status;
    if (s / 100 == 2) return 0;
    char shown[256], says[240];
    fetch_show_url(r->url, shown, sizeof shown);
    server_says(reply, says, sizeof says);
    int code = s == 404               ? CHIMERE_ENOENT
               : s == 401 || s == 403 ? CHIMERE_EREFUSED
               : s == 429 || s == 503 ? CHIMERE_EBUSY
               : s >= 500             ? CHIMERE_EIO
                                      : CHIMERE_EINVAL;
    return err_set(e, code, "%s: the server answered %d%s", shown, s, says);
}

int fetch_ok(const struct fetch_request *r, struct fetch_reply *out, struct err *e) {
    int rc = fetch(r, out, e);
    return rc ? rc : fetch_status_error(r, out, e);
}
