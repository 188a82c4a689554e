/* http.c: the connection's side of a request. A request passes from here to routes.c, api_*.c, gen.c and the backend.
 * Output returns from gen.c through http_put to read_out. */
#include "serve/http/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "serve/check.h"
#include "serve/http/http_impl.h"
#include "serve/http/http_target.h"
#include "serve/http/listen.h"

enum {
    HEADER_BYTES = 64 << 10, /* request line and headers of one request */
    CHUNK_BYTES = 16 << 10,  /* output passed to libmicrohttpd at once */
    TRIM_BYTES = 1 << 20, /* after a request of this size, free memory is returned to the system */
    LARGE_BYTES = 64 << 10, /* a body from this size on may take long to parse */
    /* a body is read up to this multiple of the limit, so that the client sees the error */
    DISCARD_FACTOR = 4,
};

/* ---- requests ---- */

static void resume(struct engine_later *l) {
    struct http_request *r = (void *)((char *)l - offsetof(struct http_request, waking));
    struct server *s = r->s;
    MHD_resume_connection(r->conn); /* r may be freed after this */
    s->n_waking--;
}

/* Unlocks r->lock, and wakes the connection if it sleeps. The wake-up comes after the unlock, because the sockets'
 * thread takes the lock next. It is postponed until the engine's step has produced output for all its sequences
 * (engine_later). A sleeping connection, and with it r, exists until it is resumed. */
void http_unlock_and_wake(struct http_request *r) {
    bool sleeps = r->suspended && r->conn;
    if (sleeps) {
        r->suspended = false;
        r->s->n_waking++;
    }
    pthread_mutex_unlock(&r->lock);
    if (sleeps) engine_later(&r->waking);
}

uint64_t http_bytes_received(int fd);

/* Called with the first line of every request, the earliest sign of it. */
static void *on_line(void *cls, const char *uri, struct MHD_Connection *conn) {
    struct server *s = cls;
    struct http_request *r = mem_zalloc(sizeof *r);
    (void)uri;
    if (!r) return NULL;
    r->s = s;
    r->conn = conn;
    r->n_ref = 1;
    r->waking.fn = resume;
    r->begin_ns = r->last_ns = clock_ns();
    pthread_mutex_init(&r->lock, NULL);
    buf_init(&r->body, s->p.max_body_bytes);
    buf_init(&r->sent, 4 * (size_t)HEADER_BYTES);
    buf_init(&r->query, 2 * (size_t)HEADER_BYTES);
    buf_init(&r->out, s->p.max_out_bytes + CHUNK_BYTES);
    snprintf(r->id, sizeof r->id, "%08llx%06llx",
             (unsigned long long)(hash_mix((uint64_t)s->start_ns) & 0xffffffff),
             (unsigned long long)(++s->n_request & 0xffffff));
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    r->sock = info ? info->socket_context : NULL;
    pthread_mutex_lock(&s->live_lock);
    r->next = s->live;
    if (r->next) r->next->prev = r;
    s->live = r;
    s->n_live++;
    if (r->sock) {
        r->sock->reading = true;
        r->sock->since_ns = r->begin_ns;
        r->sock->partial_ns = 0;
    }
    pthread_mutex_unlock(&s->live_lock);
    watch_add(r);
    return r;
}

static void release(struct http_request *r) {
    struct server *s = r->s;
    if (r->job.free) r->job.free(r->job_ud);
    /* remove it from the list first: code that walks the list takes each request's lock */
    pthread_mutex_lock(&s->live_lock);
    if (r->prev) r->prev->next = r->next;
    else s->live = r->next;
    if (r->next) r->next->prev = r->prev;
    pthread_mutex_unlock(&s->live_lock);
    buf_fini(&r->body);
    buf_fini(&r->sent);
    buf_fini(&r->query);
    atomic_fetch_sub(&s->n_reserved, r->n_reserved);
    if (r->n_reserved >= TRIM_BYTES) s->wants_trim = true;
    mem_free(r->headers);
    buf_fini(&r->out);
    mem_free(r->path);
    pthread_mutex_destroy(&r->lock);
    mem_free(r);
    pthread_mutex_lock(&s->live_lock);
    if (!--s->n_live) pthread_cond_broadcast(&s->none_live);
    pthread_mutex_unlock(&s->live_lock);
}

/* ---- workers ---- */

static void post(struct http_request *r, void (*work)(struct http_request *)) {
    struct server *s = r->s;
    r->work = work;
    r->is_large = work != release && r->body.n > LARGE_BYTES;
    r->work_next = NULL;
    pthread_mutex_lock(&s->work_lock);
    if (s->work_tail) s->work_tail->work_next = r;
    else s->work_head = r;
    s->work_tail = r;
    pthread_cond_signal(&s->has_work);
    pthread_mutex_unlock(&s->work_lock);
}

/* Call with the lock held. Returns the next request to work on. At most SERVE_N_LARGE large requests run, so that
 * workers stay free for the others. */
static struct http_request *take_work(struct server *s) {
    struct http_request *before = NULL, *r = s->work_head;
    while (r && r->is_large && s->n_large >= SERVE_N_LARGE) {
        before = r;
        r = r->work_next;
    }
    if (!r) return NULL;
    if (before) before->work_next = r->work_next;
    else s->work_head = r->work_next;
    if (s->work_tail == r) s->work_tail = before;
    s->n_large += r->is_large;
    return r;
}

static void *worker(void *arg) {
    struct server *s = arg;
    pthread_mutex_lock(&s->work_lock);
    for (;;) {
        while (!s->work_head && !s->quit) pthread_cond_wait(&s->has_work, &s->work_lock);
        struct http_request *r = take_work(s);
        if (!r && !s->work_head) break;
        if (!r) { /* only large requests wait: sleep until a running one ends */
            pthread_cond_wait(&s->has_work, &s->work_lock);
            continue;
        }
        bool large = r->is_large; /* r may be freed during its work */
        pthread_mutex_unlock(&s->work_lock);
        r->work(r);
        pthread_mutex_lock(&s->work_lock);
        if (!large) continue;
        s->n_large--;
        pthread_cond_signal(&s->has_work);
    }
    pthread_mutex_unlock(&s->work_lock);
    return NULL;
}

void http_ref(struct http_request *r) {
    pthread_mutex_lock(&r->lock);
    r->n_ref++;
    pthread_mutex_unlock(&r->lock);
}

void http_unref(struct http_request *r) {
    pthread_mutex_lock(&r->lock);
    int left = --r->n_ref;
    pthread_mutex_unlock(&r->lock);
    if (!left) post(r, release); /* freeing may wait for an engine, so a worker does it */
}

/* The request that this thread handles, and mem_shortages() before it: JSON trees drop what they cannot allocate. */
static _Thread_local struct {
    const struct http_request *r;
    int64_t shortages;
} handled;

static void call_route(struct http_request *r) {
    handled.r = r;
    handled.shortages = mem_shortages();
    r->route->handle(r);
    handled.r = NULL;
}

static void handle(struct http_request *r) {
    call_route(r);
    http_unref(r); /* the reference that dispatch took */
}

/* ---- the connection's side ---- */

static void suspend(struct http_request *r) {
    r->suspended = true;
    MHD_suspend_connection(r->conn);
}

/* libmicrohttpd's callback for the next bytes of a stream. */
static ssize_t read_out(void *cls, uint64_t pos, char *to, size_t max) {
    struct http_request *r = cls;
    ssize_t n = 0;
    (void)pos;
    pthread_mutex_lock(&r->lock);
    size_t have = r->out.n - r->out_at;
    if (have) {
        n = (ssize_t)(have < max ? have : max);
        memcpy(to, r->out.p + r->out_at, (size_t)n);
        r->out_at += (size_t)n;
        if (r->out_at == r->out.n) {
            buf_clear(&r->out);
            r->out_at = 0;
        }
    } else if (r->gone || r->out_cut) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (r->out_done) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        suspend(r);
    }
    pthread_mutex_unlock(&r->lock);
    return n;
}

void http_headers(struct http_request *r, struct buf *lines) {
    mem_free(r->headers);
    r->headers = buf_take(lines);
}

static void add_more(struct http_request *r, struct MHD_Response *m) {
    for (char *line = r->headers, *next; line && *line; line = next) {
        char *end = strchr(line, '\n'), *colon = strstr(line, ": ");
        next = end ? end + 1 : NULL;
        if (end) *end = 0;
        if (colon && (!end || colon < end)) {
            *colon = 0;
            MHD_add_response_header(m, line, colon + 2);
            *colon = ':';
        }
        if (end) *end = '\n';
    }
}

/* Allows pages of other origins to read all headers of this response. */
static void expose(const struct http_request *r, struct MHD_Response *m) {
    struct buf names;
    buf_init(&names, 4096);
    buf_puts(&names, "X-Request-Id, Request-Id, Retry-After");
    for (const char *line = r->headers; line && *line; line += *line == '\n') {
        size_t n = strcspn(line, ":\n");
        if (n) buf_printf(&names, ", %.*s", (int)n, line);
        line += strcspn(line, "\n");
    }
    if (!names.failed) MHD_add_response_header(m, "Access-Control-Expose-Headers", names.p);
    buf_fini(&names);
}

static void add_headers(struct http_request *r, struct MHD_Response *m) {
    char id[48];
    snprintf(id, sizeof id, "req_%s", r->id);
    MHD_add_response_header(m, "X-Request-Id", id);
    if (reply_shape(r) == SHAPE_ANTHROPIC) MHD_add_response_header(m, "Request-Id", id);
    if (r->retry_s) {
        char text[16];
        snprintf(text, sizeof text, "%d", r->retry_s);
        MHD_add_response_header(m, "Retry-After", text);
    }
    if (r->closes) MHD_add_response_header(m, "Connection", "close");
    add_more(r, m);
    const char *origin = http_header(r, "Origin");
    if (origin && check_origin_allowed(r->s, origin)) {
        MHD_add_response_header(m, "Access-Control-Allow-Origin", origin);
        MHD_add_response_header(m, "Vary", "Origin");
        expose(r, m);
    }
}

static void free_text(void *p) { mem_free(p); }

static enum MHD_Result send_ready(struct http_request *r) {
    size_t n = r->out.n;
    char *text = buf_take(&r->out);
    if (!text) return MHD_NO;
    struct MHD_Response *m = MHD_create_response_from_buffer_with_free_callback(n, text, free_text);
    if (!m) {
        mem_free(text);
        return MHD_NO;
    }
    if (r->type) MHD_add_response_header(m, "Content-Type", r->type);
    if (r->status == 401) MHD_add_response_header(m, "WWW-Authenticate", "Bearer");
    add_headers(r, m);
    enum MHD_Result ok = MHD_queue_response(r->conn, (unsigned)r->status, m);
    MHD_destroy_response(m);
    return ok;
}

static enum MHD_Result send_stream(struct http_request *r) {
    struct MHD_Response *m =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, CHUNK_BYTES, read_out, r, NULL);
    if (!m) return MHD_NO;
    MHD_add_response_header(m, "Content-Type", r->type);
    MHD_add_response_header(m, "Cache-Control", "no-cache");
    MHD_add_response_header(m, "X-Accel-Buffering",
                            "no"); /* without it, proxies such as nginx buffer the stream */
    add_headers(r, m);
    enum MHD_Result ok = MHD_queue_response(r->conn, 200, m);
    MHD_destroy_response(m);
    return ok;
}

/* ---- routes ---- */

static enum MHD_Result copy_header(void *cls, enum MHD_ValueKind kind, const char *name,
                                   const char *value) {
    struct buf *sent = cls;
    (void)kind;
    buf_put(sent, name, strlen(name) + 1);
    buf_put(sent, value ? value : "", value ? strlen(value) + 1 : 1);
    return MHD_YES;
}

/* Returns the path of an address that is given whole, as clients send it to a proxy (RFC 9112, 3.2.2), if it is one of
 * the host that the header Host names. */
static const char *path_of(const struct http_request *r, const char *path) {
    const char *host = http_header(r, "Host"), *at = strstr(path, "://");
    bool is_whole =
        at && (strncasecmp(path, "http:", 5) == 0 || strncasecmp(path, "https:", 6) == 0);
    size_t n = host ? strlen(host) : 0;
    if (!is_whole || !n || strncasecmp(at + 3, host, n) != 0) return path;
    at += 3 + n;
    return *at == '/' ? at : *at ? path : "/";
}

static void look(struct http_request *r, const char *method, const char *path,
                 const char *version) {
    bool path_known;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(r->conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    r->seen = true;
    MHD_get_connection_values(r->conn, MHD_HEADER_KIND, copy_header, &r->sent);
    path = path_of(r, path);
    r->path = mem_strdup(path);
    MHD_get_connection_values(r->conn, MHD_GET_ARGUMENT_KIND, copy_header, &r->query);
    for (size_t i = 0; i + 1 < sizeof r->method && method[i] >= 'A' && method[i] <= 'Z'; i++)
        r->method[i] = method[i];
    check_address(info ? info->client_addr : NULL, r->owner, sizeof r->owner);
    if (strcmp(method, "HEAD") == 0) method = "GET";
    r->route = http_find_route(method, path, &path_known);
    /* headers or fields are missing, so the checks would not be reliable */
    if (r->sent.failed || r->query.failed) {
        err_set(&r->early, CHIMERE_ENOMEM, "out of memory");
        r->early_status = 503;
        r->closes = true;
        return;
    }
    if ((r->early_status = check_framing(r, version))) return;
    if ((r->early_status = check_origin(r))) return;
    if ((r->early_status = check_key(r))) return;
    if (!r->route || !r->path) {
        r->early_status = path_known ? 405 : 404;
        err_set(&r->early, path_known ? CHIMERE_EUNSUPPORTED : CHIMERE_ENOENT,
                path_known ? "%s does not allow the method %s" : "there is no %s",
                path_known ? path : path, method);
    } else if (r->route->flags & ROUTE_ADMIN && !r->is_admin && !check_is_open(r)) {
        r->early_status = 403;
        err_set(&r->early, CHIMERE_EREFUSED,
                r->key
                    ? "%s is for administrators; this key is not one (chimere key --role admin)"
                    : "%s is for administrators: from this machine, or with an administrator's key",
                path);
    } else if (r->s->stopping) {
        r->early_status = 503;
        err_set(&r->early, CHIMERE_EBUSY, "the server is stopping");
    } else if (r->s->draining && !(r->route->flags & ROUTE_QUICK)) {
        r->early_status = 503;
        r->retry_s = 1;
        r->closes = true; /* the retry must connect again, to reach another replica */
        err_set(&r->early, CHIMERE_EBUSY, "the server is draining; retry on another replica");
    }
}

/* ---- libmicrohttpd's callbacks ---- */

/* Reserves n bytes in total for r. Returns false if all requests together would exceed the budget. */
bool http_reserve(struct http_request *r, size_t n) {
    struct server *s = r->s;
    if (n <= r->n_reserved) return true;
    size_t more = n - r->n_reserved;
    if (atomic_fetch_add(&s->n_reserved, more) + more > s->p.max_bodies_bytes) {
        atomic_fetch_sub(&s->n_reserved, more);
        return false;
    }
    r->n_reserved = n;
    return true;
}

static void no_room(struct http_request *r) {
    if (r->early_status) return;
    r->early_status = 503;
    r->retry_s = 1;
    buf_fini(&r->body);
    err_set(&r->early, CHIMERE_EBUSY,
            "the bodies of all requests take more than this server allows");
}

static bool too_large(struct http_request *r, uint64_t n) {
    if (n <= r->s->p.max_body_bytes) return false;
    if (!r->early_status) {
        r->early_status = 413;
        err_set(&r->early, CHIMERE_ELIMIT, "body: expected at most %zu bytes, got %llu",
                r->s->p.max_body_bytes, (unsigned long long)n);
    }
    return true;
}

static enum MHD_Result preflight(struct http_request *r) {
    struct MHD_Response *m = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (!m) return MHD_NO;
    add_headers(r, m);
    MHD_add_response_header(m, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    MHD_add_response_header(m, "Access-Control-Allow-Headers",
                            "Authorization, Content-Type, X-Api-Key, Anthropic-Version, "
                            "Anthropic-Beta, If-Match, X-Session-Id, X-User, Mcp-Session-Id, "
                            "Mcp-Protocol-Version");
    MHD_add_response_header(m, "Access-Control-Max-Age", "600");
    enum MHD_Result ok = MHD_queue_response(r->conn, 204, m);
    MHD_destroy_response(m);
    return ok;
}

static enum MHD_Result refuse(struct http_request *r) {
    reply_error(r, r->early_status, &r->early);
    return send_ready(r);
}

/* Called once the request is complete. */
static enum MHD_Result dispatch(struct http_request *r, const char *method) {
    struct server *s = r->s;
    pthread_mutex_lock(&s->live_lock);
    if (r->sock) {
        r->sock->reading = false;
        r->sock->busy = true;
    }
    pthread_mutex_unlock(&s->live_lock);
    const char *origin = http_header(r, "Origin");
    if (strcmp(method, "OPTIONS") == 0 && origin && check_origin_allowed(s, origin))
        return preflight(r);
    if (!r->early_status && r->body.failed) {
        err_set(&r->early, r->body.failed, "body: out of memory");
        r->early_status = 503;
    }
    if (r->early_status) return refuse(r);
    r->state = HTTP_WORKING;
    if (r->route->flags & ROUTE_QUICK) {
        call_route(r);
        return send_ready(r);
    }
    pthread_mutex_lock(&r->lock);
    r->n_ref++;
    suspend(r);
    pthread_mutex_unlock(&r->lock);
    post(r, handle);
    return MHD_YES;
}

static enum MHD_Result on_access(void *cls, struct MHD_Connection *conn, const char *path,
                                 const char *method, const char *version, const char *data,
                                 size_t *n_data, void **con_cls) {
    struct http_request *r = *con_cls;
    (void)cls, (void)conn;
    if (!r) return MHD_NO;
    if (!r->seen) {
        look(r, method, path, version);
        if (r->closes) return refuse(r); /* the end of its body is unknown */
        const char *length = http_header(r, "Content-Length");
        int64_t n = 0;
        if (length && !str_to_i64(length, 0, INT64_MAX, &n)) n = INT64_MAX; /* digits, but more */
        if (too_large(r, (uint64_t)n)) return refuse(r); /* at once, without reading the body */
        if (!http_reserve(r, (size_t)n)) no_room(r);
        return MHD_YES;
    }
    if (*n_data) {
        size_t n = *n_data;
        *n_data = 0;
        if (r->body.n + n > r->s->p.max_body_bytes * DISCARD_FACTOR) return MHD_NO;
        if (too_large(r, r->body.n + n) || r->early_status) return MHD_YES;
        if (!http_reserve(r, r->body.n + n)) no_room(r);
        else buf_put(&r->body, data, n);
        return MHD_YES;
    }
    pthread_mutex_lock(&r->lock);
    enum http_state state = r->state;
    bool gone = r->gone;
    pthread_mutex_unlock(&r->lock);
    if (state == HTTP_READING) return dispatch(r, method);
    if (state == HTTP_READY) return send_ready(r);
    if (state == HTTP_STREAM) return send_stream(r);
    if (gone) return MHD_NO;
    pthread_mutex_lock(&r->lock); /* a spurious wake-up */
    suspend(r);
    pthread_mutex_unlock(&r->lock);
    return MHD_YES;
}

/* Logs one line per request. The path is from the client: invalid bytes are replaced in JSON. */
static void log_access(struct http_request *r, bool complete) {
    if (!log_enabled(LOG_INFO)) return;
    char members[512], path[128];
    const char *method = r->method[0] ? r->method : "-";
    size_t n = 0;
    for (const char *p = r->path ? r->path : "-"; *p && n + 1 < sizeof path; p++)
        path[n++] = *p > 0x20 && *p < 0x7f && *p != '"' && *p != '\\' ? *p : '?';
    path[n] = 0;
    /* streams do not set a status */
    int status = r->status ? r->status : r->last_ns > r->begin_ns ? 200 : 0;
    double ms = clock_ms_since(r->begin_ns);
    snprintf(members, sizeof members,
             "\"request\":\"req_%s\",\"method\":\"%s\",\"path\":\"%s\",\"status\":%d,"
             "\"ms\":%.1f,\"client\":\"%s\",\"complete\":%s",
             r->id, method, path, status, ms, r->owner, complete ? "true" : "false");
    log_event(LOG_INFO, members, "%s %s %d %.1f ms req_%s %s%s", method, path, status, ms, r->id,
              r->owner, complete ? "" : " (client left)");
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **con_cls,
                         enum MHD_RequestTerminationCode why) {
    struct http_request *r = *con_cls;
    struct server *s = cls;
    (void)conn;
    *con_cls = NULL;
    if (!r) return;
    log_access(r, why == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    watch_remove(r);
    pthread_mutex_lock(&s->live_lock);
    if (r->sock) {
        r->sock->reading = r->sock->busy = false;
        r->sock->partial_ns = 0;
        r->sock->n_byte = http_bytes_received(r->sock->fd);
        r->sock = NULL;
    }
    pthread_mutex_unlock(&s->live_lock);
    if (r->counted) auth_leave(s->auth, r->key);
    r->counted = false;
    pthread_mutex_lock(&r->lock);
    r->conn = NULL;
    r->state = HTTP_CLOSED;
    if (why != MHD_REQUEST_TERMINATED_COMPLETED_OK) r->gone = true;
    bool open = r->job_open;
    pthread_mutex_unlock(&r->lock);
    if (open) http_tell_gone(r);
    http_unref(r);
}

uint64_t http_bytes_received(int fd) {
    struct tcp_info info;
    socklen_t n = sizeof info;
    memset(&info, 0, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n)) return 0;
    return info.tcpi_bytes_received;
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **socket_context,
                          enum MHD_ConnectionNotificationCode what) {
    struct server *s = cls;
    struct http_conn *c = *socket_context;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
        c = mem_zalloc(sizeof *c);
        *socket_context = c;
        if (!c) return;
        c->s = s;
        c->fd = info ? info->connect_fd : -1;
        info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
        check_address(info ? info->client_addr : NULL, c->peer, sizeof c->peer);
        c->since_ns = clock_ns();
        pthread_mutex_lock(&s->live_lock);
        c->next = s->conns;
        if (c->next) c->next->prev = c;
        s->conns = c;
        pthread_mutex_unlock(&s->live_lock);
    } else if (c) {
        pthread_mutex_lock(&s->live_lock);
        if (c->prev) c->prev->next = c->next;
        else s->conns = c->next;
        if (c->next) c->next->prev = c->prev;
        pthread_mutex_unlock(&s->live_lock);
        mem_free(c);
        *socket_context = NULL;
    }
}

__attribute__((format(printf, 2, 0))) static void on_log(void *cls, const char *fmt, va_list args) {
    char text[300];
    (void)cls;
    vsnprintf(text, sizeof text, fmt, args);
    text[strcspn(text, "\n")] = 0;
    if (strstr(text, strerror(EMFILE)) || strstr(text, strerror(ENFILE)))
        log_warn("no file descriptor is left for another connection (ulimit -n): %s", text);
    else log_debug("http: %s", text);
}

/* ---- functions for handlers ---- */

struct server *http_server(const struct http_request *r) {
    return r->s;
}
const char *http_body(const struct http_request *r, size_t *n) {
    *n = r->body.n;
    return r->body.p ? r->body.p : "";
}
const char *http_header(const struct http_request *r, const char *name) {
    return http_find_pair(&r->sent, name);
}
const char *http_owner(const struct http_request *r) { return r->owner; }
const char *http_id(const struct http_request *r) { return r->id; }

void http_reply(struct http_request *r, int status, const char *type, struct buf *body) {
    struct metrics *m = &r->s->metrics;
    bool has_gaps = status < 400 && handled.r == r && mem_shortages() != handled.shortages;
    if (body->failed || has_gaps) {
        buf_fini(body);
        struct err e;
        err_set(&e, CHIMERE_ENOMEM, "out of memory");
        reply_error(r, 503, &e);
        return;
    }
    pthread_mutex_lock(&r->lock);
    bool left =
        r->gone || r->state == HTTP_CLOSED; /* a generation is counted as cancelled instead */
    if (status == 429) m->n_busy++;
    else if (status >= 500) m->n_failed += !left;
    else if (status >= 400) m->n_bad++;
    else m->n_ok++;
    buf_fini(&r->out);
    r->out = *body;
    *body = (struct buf){NULL, 0, 0, body->max, 0};
    r->status = status;
    r->type = type ? type : "application/json";
    if (r->state == HTTP_WORKING) r->state = HTTP_READY;
    http_unlock_and_wake(r);
}

void http_fail(struct http_request *r, const struct err *e) {
    reply_error(r, http_status_of(e->code), e);
}

void http_job_begin(struct http_request *r, const struct http_job *job, void *ud) {
    pthread_mutex_lock(&r->lock);
    r->job = *job;
    r->job_ud = ud;
    r->job_open = true;
    r->n_ref++;
    pthread_mutex_unlock(&r->lock);
}

void http_job_done(struct http_request *r) {
    pthread_mutex_lock(&r->lock);
    r->job_open = false;
    pthread_mutex_unlock(&r->lock);
    http_unref(r);
}

void *http_job_data(const struct http_request *r) { return r->job_ud; }

void http_tell_gone(struct http_request *r) {
    pthread_mutex_lock(&r->lock);
    bool tell = r->job_open && !r->told;
    r->told = true;
    pthread_mutex_unlock(&r->lock);
    if (tell) r->job.gone(r->job_ud);
}

void http_stream_begin(struct http_request *r, const char *type) {
    r->type = type ? type : "text/event-stream";
    r->s->metrics.n_ok++;
    pthread_mutex_lock(&r->lock);
    if (r->state == HTTP_WORKING) r->state = HTTP_STREAM;
    r->last_ns = clock_ns();
    http_unlock_and_wake(r);
}

bool http_put(struct http_request *r, const char *data, size_t n) {
    bool ok = false;
    pthread_mutex_lock(&r->lock);
    if (r->out.n - r->out_at + n > r->s->p.max_out_bytes) {
        if (!r->out_cut) log_warn("request %s: its client reads too slowly; cut", r->id);
        r->out_cut = true;
    }
    if (r->state != HTTP_CLOSED && !r->gone && !r->out_cut) {
        if (r->out_at > r->out.n / 2) { /* keep the buffer as short as its unread part */
            memmove(r->out.p, r->out.p + r->out_at, r->out.n - r->out_at);
            buf_cut(&r->out, r->out.n - r->out_at);
            r->out_at = 0;
        }
        ok = buf_put(&r->out, data, n) == 0;
        r->last_ns = clock_ns();
        if (!ok) r->out_cut = true;
    }
    if (r->state != HTTP_WORKING) http_unlock_and_wake(r);
    else pthread_mutex_unlock(&r->lock);
    return ok;
}

void http_stream_end(struct http_request *r) {
    pthread_mutex_lock(&r->lock);
    r->out_done = true;
    http_unlock_and_wake(r);
}

/* ---- start and stop ---- */

int http_listen(struct server *s, struct err *e) {
    struct sockaddr_storage addr = {0};
    unsigned flags = MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    int rc = 0;
    if (listen_unix_path(s->p.host)) flags |= MHD_USE_NO_LISTEN_SOCKET;
    else rc = listen_read_address(s->p.host, s->p.port, &addr, e);
    if (rc) return rc;
    if (addr.ss_family == AF_INET6) flags |= MHD_USE_IPv6;
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)s->p.tls_cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)s->p.tls_key},
        {MHD_OPTION_END, 0, NULL},
    };
    if (s->p.tls_cert) flags |= MHD_USE_TLS;
    else tls[0].option = MHD_OPTION_END;
    s->mhd = MHD_start_daemon(
        flags, (uint16_t)s->p.port, check_accept, s, on_access, s, MHD_OPTION_EXTERNAL_LOGGER,
        on_log, NULL, MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&addr, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)s->p.max_connections, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)s->p.idle_s,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, s, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, s, MHD_OPTION_URI_LOG_CALLBACK, on_line, s, MHD_OPTION_ARRAY, tls,
        MHD_OPTION_END);
    if (!s->mhd) {
        err_set(e, CHIMERE_EIO, "cannot listen on %s port %d%s", s->p.host, s->p.port,
                s->p.tls_cert ? " (or the certificate and key do not fit)" : "");
        err_hint(e, "another program may use the port; --port 0 uses a free one");
        return CHIMERE_EIO;
    }
    for (; s->n_worker < SERVE_N_WORKER; s->n_worker++)
        if (pthread_create(&s->workers[s->n_worker], NULL, worker, s))
            return err_set(e, CHIMERE_ENOMEM, "cannot start a thread");
    return listen_open(s, e);
}
