/* mcp.c: JSON-RPC over a pipe or HTTP, according to MCP 2025-06-18. */
#include "tools/mcp.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"
#include "net/fetch.h"
#include "net/sse.h"
#include "tools/mcp_child.h"
#include "tools/mcp_impl.h"
#include "tools/tool.h"
#include "text/chat/chat.h"

enum {
    MAX_NAME = 24,
    /* after the first crash; doubled by each crash within STEADY_MS of a start */
    BACKOFF_MS = 1000,
    MAX_BACKOFF_MS = 60000,
    STEADY_MS = 60000,
    MAX_LATE = 2, /* after this many consecutive timeouts the server counts as hung */
    LOCK_TICK_MS = 5
};
#define PROTOCOL "2025-06-18"

struct mcp {
    char name[MAX_NAME + 1];
    char *command;          /* owned */
    const char *const *env; /* borrowed [n_env]: in the form that mcp_child_start takes */
    size_t n_env;
    char *url;                       /* owned; NULL: the server is a program */
    char session[256], protocol[24]; /* HTTP only: values returned by initialize; "": none */
    pthread_mutex_t lock;            /* one call at a time */
    const struct tool_env *caller;   /* borrowed: environment of the current call; NULL: none */
    struct mcp_child child;
    int64_t started_ns, retry_ns; /* start time of the program; earliest time of the next start */
    int32_t backoff_ms, n_late;
    struct buf line;
    size_t n_read; /* bytes of line that were already returned */
    int64_t next_id;
    json_t *tools; /* owned; as listed by the server */
    bool dead;
};

/* ---- a server that is a program ---- */

/* Waits until fd is ready for reading or writing. */
static int ready(int fd, short what, int64_t deadline_ns, _Atomic bool *cancelled) {
    for (;;) {
        int64_t left = (deadline_ns - clock_ns()) / 1000000;
        if (left <= 0) return CHIMERE_ETIMEOUT;
        if (cancelled && *cancelled) return CHIMERE_ECANCELLED;
        struct pollfd p = {.fd = fd, .events = what};
        int n = poll(&p, 1, left < 50 ? (int)left : 50);
        if (n > 0) return 0;
        if (n < 0 && errno != EINTR) return CHIMERE_EIO;
    }
}

static int send_line(struct mcp *m, const char *text, int64_t deadline_ns,
                     _Atomic bool *cancelled) {
    size_t n = strlen(text), sent = 0;
    while (sent <= n) { /* the last byte is the newline */
        int rc = ready(m->child.in, POLLOUT, deadline_ns, cancelled);
        if (rc) return rc;
        const char *from = sent < n ? text + sent : "\n";
        ssize_t k = send(m->child.in, from, sent < n ? n - sent : 1, MSG_NOSIGNAL);
        if (k < 0 && errno != EAGAIN && errno != EINTR) return CHIMERE_EIO;
        if (k > 0) sent += (size_t)k;
    }
    return 0;
}

/* Returns the next line as a view that is valid until the next call. */
static int read_line(struct mcp *m, char **line, size_t *n, int64_t deadline_ns,
                     _Atomic bool *cancelled) {
    struct buf *b = &m->line;
    if (m->n_read) {
        memmove(b->p, b->p + m->n_read, b->n - m->n_read);
        buf_cut(b, b->n - m->n_read);
        m->n_read = 0;
    }
    for (;;) {
        char *end = b->n ? memchr(b->p, '\n', b->n) : NULL;
        if (end) {
            *end = 0;
            *line = b->p;
            *n = (size_t)(end - b->p);
            m->n_read = *n + 1;
            return 0;
        }
        char part[8192];
        int rc = ready(m->child.out, POLLIN, deadline_ns, cancelled);
        if (rc) return rc;
        ssize_t k = read(m->child.out, part, sizeof part);
        if (k == 0) return CHIMERE_EIO;
        if (k > 0) buf_put(b, part, (size_t)k);
        if (b->failed) return CHIMERE_ELIMIT;
    }
}

/* ---- JSON-RPC ---- */

bool mcp_is_reply(const json_t *o, int64_t id) {
    const json_t *v = json_object_get(o, "id");
    return json_is_integer(v) && json_integer_value(v) == id &&
           (json_object_get(o, "result") || json_object_get(o, "error"));
}

/* Reports a progress notification to the caller of the current tool call. */
static void hear(const struct mcp *m, const json_t *o) {
    const char *method = json_string_value(json_object_get(o, "method"));
    const json_t *params = json_object_get(o, "params"),
                 *done = json_object_get(params, "progress"),
                 *total = json_object_get(params, "total");
    const char *text = json_string_value(json_object_get(params, "message"));
    if (!m->caller || !m->caller->progress || !method ||
        strcmp(method, "notifications/progress") != 0)
        return;
    struct buf b;
    buf_init(&b, TOOL_MAX_OUTPUT);
    if (json_is_number(done)) buf_printf(&b, "%g", json_number_value(done));
    if (json_is_number(total)) buf_printf(&b, " / %g", json_number_value(total));
    if (text) buf_printf(&b, "%s%s", b.n ? " " : "", text);
    buf_putc(&b, '\n');
    if (!b.failed) tool_progress((void *)m->caller, b.p, b.n);
    buf_fini(&b);
}

static int pipe_call(struct mcp *m, const char *text, int64_t id, int64_t deadline_ns,
                     _Atomic bool *cancelled, json_t **reply) {
    int rc = send_line(m, text, deadline_ns, cancelled);
    while (!rc && id >= 0 && !*reply) {
        char *line;
        size_t n;
        rc = read_line(m, &line, &n, deadline_ns, cancelled);
        if (rc) break;
        json_t *o = chat_json_object(line, n, "message", NULL);
        if (mcp_is_reply(o, id)) *reply = json_incref(o);
        else if (!json_object_get(o, "id")) hear(m, o);
        /* a request from the server is refused: this client offers no methods */
        else if (json_object_get(o, "method")) {
            char *asked = json_dumps(json_object_get(o, "id"), JSON_ENCODE_ANY);
            struct buf b;
            buf_init(&b, 4096);
            buf_printf(
                &b,
                "{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{\"code\":-32601,\"message\":\"not "
                "offered\"}}",
                asked ? asked : "null");
            if (!b.failed) rc = send_line(m, b.p, deadline_ns, cancelled);
            buf_fini(&b);
            mem_free(asked);
        }
        json_decref(o);
    }
    return rc;
}

struct http_reply {
    struct mcp *m;
    int64_t id;
    json_t *reply;
    bool events;
    struct sse sse;
    struct buf body;
    int64_t deadline_ns;
    _Atomic bool *cancelled;
};

static int on_sse(void *ud, const struct sse_event *ev) {
    struct http_reply *h = ud;
    json_t *o = chat_json_object(ev->data, ev->n_data, "message", NULL);
    if (!h->reply && mcp_is_reply(o, h->id)) h->reply = json_incref(o);
    else hear(h->m, o);
    json_decref(o);
    return h->reply ? CHIMERE_ECANCELLED : 0; /* the reply has arrived: stop the transfer */
}

static int on_head(void *ud, const struct fetch_reply *r) {
    struct http_reply *h = ud;
    h->events = str_starts(r->type, "text/event-stream");
    return 0;
}

static int on_body(void *ud, const char *p, size_t n) {
    struct http_reply *h = ud;
    if (h->events) return sse_feed(&h->sse, p, n);
    buf_put(&h->body, p, n);
    return h->body.failed;
}

static bool http_cancelled(void *ud) {
    const struct http_reply *h = ud;
    return h->cancelled && *h->cancelled;
}

/* Fills the headers that follow from initialize: the protocol version, and the session id if the server uses one. */
static void put_session(const struct mcp *m, const char **headers, char protocol[64],
                        char session[300]) {
    snprintf(protocol, 64, "MCP-Protocol-Version: %s", m->protocol);
    snprintf(session, 300, "Mcp-Session-Id: %s", m->session);
    if (m->protocol[0]) *headers++ = protocol;
    if (m->session[0]) *headers++ = session;
    *headers = NULL;
}

/* Stores the session id if it consists of visible ASCII, as the protocol requires; other bytes could break a
 * header. */
static void take_session(struct mcp *m, const char *id) {
    if (m->session[0] || !*id) return;
    for (const char *c = id; *c; ++c)
        if (*c < 0x21 || *c > 0x7e) return;
    snprintf(m->session, sizeof m->session, "%s", id);
}

static int http_call(struct mcp *m, const char *text, int64_t id, int64_t deadline_ns,
                     _Atomic bool *cancelled, json_t **reply, struct err *e) {
    struct http_reply h = {.m = m, .id = id, .cancelled = cancelled};
    sse_init(&h.sse, MCP_MAX_MESSAGE, on_sse, &h);
    buf_init(&h.body, MCP_MAX_MESSAGE);
    int64_t left = (deadline_ns - clock_ns()) / 1000000;
    char protocol[64], session[300];
    const char *headers[5] = {"Content-Type: application/json",
                              "Accept: application/json, text/event-stream"};
    put_session(m, headers + 2, protocol, session);
    struct fetch_request r = {.url = m->url,
                              .body = text,
                              .n_body = strlen(text),
                              .headers = headers,
                              .want = "mcp-session-id",
                              .max_bytes = MCP_MAX_MESSAGE,
                              .total_ms = left > 1 ? (int32_t)left : 1,
                              .stall_ms = left > 1 ? (int32_t)left : 1,
                              .max_redirects = -1,
                              .on_head = on_head,
                              .on_body = on_body,
                              .is_cancelled = http_cancelled,
                              .ud = &h};
    struct fetch_reply out;
    int rc = fetch_ok(&r, &out, e);
    if (!h.reply && !rc && id >= 0 && h.body.n) {
        json_t *o = chat_json_object(h.body.p, h.body.n, "message", NULL);
        if (mcp_is_reply(o, id)) h.reply = json_incref(o);
        json_decref(o);
    }
    if (!rc || h.reply) take_session(m, out.wanted);
    fetch_reply_fini(&out);
    sse_fini(&h.sse);
    buf_fini(&h.body);
    *reply = h.reply;
    return h.reply ? 0 : rc;
}

/* Stops a program that failed. A later call starts it again, after the backoff time. */
static void bury(struct mcp *m) {
    int64_t now = clock_ns();
    bool steady = now - m->started_ns > (int64_t)STEADY_MS * 1000000;
    m->backoff_ms = !m->backoff_ms || steady             ? BACKOFF_MS
                    : m->backoff_ms < MAX_BACKOFF_MS / 2 ? 2 * m->backoff_ms
                                                         : MAX_BACKOFF_MS;
    m->retry_ns = now + (int64_t)m->backoff_ms * 1000000;
    m->n_late = 0;
    m->dead = true;
    mcp_child_stop(&m->child, 1);
}

/* Call it with the lock held. params may be NULL; rpc takes ownership of it. notify: no answer is expected. */
static int rpc(struct mcp *m, const char *method, json_t *params, bool notify, int64_t deadline_ns,
               _Atomic bool *cancelled, json_t **result, struct err *e) {
    int64_t id = notify ? -1 : m->next_id++;
    json_t *o = json_pack("{s:s, s:s}", "jsonrpc", "2.0", "method", method), *reply = NULL;
    if (!notify) json_object_set_new(o, "id", json_integer(id));
    if (params) json_object_set_new(o, "params", params);
    char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (!text) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    struct err why = {0};
    int rc = m->url ? http_call(m, text, id, deadline_ns, cancelled, &reply, &why)
                    : pipe_call(m, text, id, deadline_ns, cancelled, &reply);
    mem_free(text);
    if (result) *result = NULL;
    if (rc) {
        /* a late answer cannot be mistaken for the answer to a later call, because ids are not reused */
        m->n_late = rc == CHIMERE_ETIMEOUT ? m->n_late + 1 : 0;
        if (!m->url && (rc == CHIMERE_EIO || rc == CHIMERE_ELIMIT || m->n_late >= MAX_LATE))
            bury(m);
        err_set(e, rc, "mcp %s: %s: %.200s", m->name, method,
                why.text[0]         ? why.text
                : rc == CHIMERE_EIO ? "the server has ended"
                                    : err_name(rc));
    } else if (!notify) {
        m->n_late = 0;
        const json_t *bad = json_object_get(reply, "error");
        const char *message = json_string_value(json_object_get(bad, "message"));
        if (bad || !reply)
            rc = err_set(e, CHIMERE_EINVAL, "mcp %s: %s: %.300s", m->name, method,
                         message ? message : "no answer");
        else if (result) *result = json_incref(json_object_get(reply, "result"));
    }
    json_decref(reply);
    return rc;
}

static int handshake(struct mcp *m, int64_t deadline_ns, _Atomic bool *cancelled, struct err *e) {
    json_t *r = NULL;
    m->session[0] = m->protocol[0] = 0;
    int rc = rpc(m, "initialize",
                 json_pack("{s:s, s:{}, s:{s:s, s:s}}", "protocolVersion", PROTOCOL, "capabilities",
                           "clientInfo", "name", "chimere", "version", "0.1.0"),
                 false, deadline_ns, cancelled, &r, e);
    const char *version = json_string_value(json_object_get(r, "protocolVersion"));
    bool plain = version && strspn(version, "0123456789-") == strlen(version);
    snprintf(m->protocol, sizeof m->protocol, "%s", plain ? version : PROTOCOL);
    json_decref(r);
    return rc ? rc
              : rpc(m, "notifications/initialized", NULL, true, deadline_ns, cancelled, NULL, e);
}

static int list_tools(struct mcp *m, int64_t deadline_ns, struct err *e) {
    json_t *cursor = NULL;
    int rc = 0;
    for (int page = 0; !rc && page < 16; ++page) {
        json_t *r = NULL, *params = json_object();
        if (cursor) json_object_set_new(params, "cursor", cursor);
        cursor = NULL;
        rc = rpc(m, "tools/list", params, false, deadline_ns, NULL, &r, e);
        if (!rc) json_array_extend(m->tools, json_object_get(r, "tools"));
        const json_t *next = json_object_get(r, "nextCursor");
        if (json_is_string(next)) cursor = json_copy((json_t *)next);
        json_decref(r);
        if (!cursor) break;
    }
    json_decref(cursor);
    return rc;
}

static int start(struct mcp *m, struct err *e) {
    m->started_ns = clock_ns();
    m->n_read = 0;
    buf_clear(&m->line);
    return mcp_child_start(&m->child, m->name, m->command, m->env, m->n_env, e);
}

int mcp_open(struct mcp **out, const char *spec, const char *const *env, size_t n_env,
             struct err *e) {
    *out = NULL;
    const char *eq = strchr(spec, '=');
    size_t n = eq ? (size_t)(eq - spec) : 0;
    if (!n || n > MAX_NAME || strspn(spec, "abcdefghijklmnopqrstuvwxyz0123456789-") != n)
        return err_set(e, CHIMERE_EINVAL,
                       "mcp: expected NAME=COMMAND or NAME=URL, a name of a-z 0-9 -, "
                       "got \"%.80s\"",
                       spec);
    struct mcp *m = mem_zalloc(sizeof *m);
    if (!m) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    memcpy(m->name, spec, n);
    m->child.in = m->child.out = -1;
    m->env = env, m->n_env = n_env;
    buf_init(&m->line, MCP_MAX_MESSAGE);
    pthread_mutex_init(&m->lock, NULL);
    m->tools = json_array();
    bool http = str_starts(eq + 1, "http://") || str_starts(eq + 1, "https://");
    char **where = http ? &m->url : &m->command;
    int rc =
        (*where = mem_strdup(eq + 1)) && m->tools ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && !http) rc = start(m, e);
    int64_t deadline = clock_ns() + (int64_t)MCP_CONNECT_MS * 1000000;
    if (!rc) rc = handshake(m, deadline, NULL, e);
    if (!rc) rc = list_tools(m, deadline, e);
    if (rc) mcp_close(m);
    else *out = m;
    return rc;
}

/* Asks the server to delete the session. The result does not matter. */
static void end_session(const struct mcp *m) {
    char protocol[64], session[300];
    const char *headers[3];
    put_session(m, headers, protocol, session);
    struct fetch_request r = {.url = m->url,
                              .method = "DELETE",
                              .headers = headers,
                              .total_ms = 2000,
                              .max_redirects = -1};
    struct fetch_reply out;
    fetch(&r, &out, NULL);
    fetch_reply_fini(&out);
}

void mcp_close(struct mcp *m) {
    if (!m) return;
    if (m->url && m->session[0]) end_session(m);
    mcp_child_stop(&m->child, 0);
    buf_fini(&m->line);
    pthread_mutex_destroy(&m->lock);
    json_decref(m->tools);
    mem_free(m->command);
    mem_free(m->url);
    mem_free(m);
}

int mcp_n_tool(const struct mcp *m) { return (int)json_array_size(m->tools); }

/* ---- the server's tools as local tools ---- */

struct remote {
    struct mcp *m; /* borrowed */
    char *name;    /* owned: the name that the server uses */
};

void mcp_put_content(struct buf *out, const json_t *result) {
    json_t *part;
    size_t i;
    json_array_foreach(json_object_get(result, "content"), i, part) {
        const char *type = json_string_value(json_object_get(part, "type")),
                   *text = json_string_value(json_object_get(part, "text"));
        if (text) buf_printf(out, "%s%s", out->n ? "\n" : "", text);
        else buf_printf(out, "%s[%.20s]", out->n ? "\n" : "", type ? type : "?");
    }
}

/* A server that has lost the session answers 404. The call is then repeated once with a new session. */
static int call_remote(const struct remote *r, const json_t *args, struct tool_env *env,
                       json_t **result, struct err *e) {
    struct mcp *m = r->m;
    int rc = CHIMERE_ENOENT;
    for (int turn = 0; turn < 2 && rc == CHIMERE_ENOENT; ++turn) {
        if (turn && (!m->session[0] || (rc = handshake(m, env->deadline_ns, env->cancelled, e))))
            break;
        json_t *params =
            json_pack("{s:s, s:o}", "name", r->name, "arguments", json_deep_copy(args));
        if (env->progress)
            json_object_set_new(params, "_meta",
                                json_pack("{s:I}", "progressToken", (json_int_t)m->next_id));
        m->caller = env;
        rc = rpc(m, "tools/call", params, false, env->deadline_ns, env->cancelled, result, e);
        m->caller = NULL;
    }
    return rc;
}

/* Takes the lock of the server. While it waits for other calls, the deadline and cancellation of this call are
 * observed. */
static int lock(struct mcp *m, const struct tool_env *env, struct err *e) {
    while (pthread_mutex_trylock(&m->lock)) {
        if (env->cancelled && *env->cancelled)
            return err_set(e, CHIMERE_ECANCELLED, "mcp %s: cancelled", m->name);
        if (clock_ns() >= env->deadline_ns)
            return err_set(e, CHIMERE_ETIMEOUT, "mcp %s: busy with other calls until the deadline",
                           m->name);
        poll(NULL, 0, LOCK_TICK_MS);
    }
    return 0;
}

/* Restarts a program that has ended. Its tools are assumed to be unchanged. */
static int revive(struct mcp *m, const struct tool_env *env, struct err *e) {
    if (!m->dead) return 0;
    int64_t left = m->retry_ns - clock_ns();
    if (left > 0)
        return err_set(e, CHIMERE_EIO, "mcp %s: the server has ended; it is started again in %d s",
                       m->name, (int)(left / 1000000000 + 1));
    int rc = start(m, e);
    m->dead = rc != 0;
    if (!rc) rc = handshake(m, env->deadline_ns, env->cancelled, e);
    if (rc && !m->dead) bury(m);
    else if (rc) m->retry_ns = clock_ns() + (int64_t)m->backoff_ms * 1000000;
    return rc;
}

static int run_remote(void *ud, const json_t *args, struct tool_env *env, struct buf *out,
                      struct err *e) {
    const struct remote *r = ud;
    json_t *result = NULL;
    int rc = lock(r->m, env, e);
    if (rc) return rc;
    rc = revive(r->m, env, e);
    if (!rc) rc = call_remote(r, args, env, &result, e);
    pthread_mutex_unlock(&r->m->lock);
    if (!rc) mcp_put_content(out, result);
    if (!rc && json_is_true(json_object_get(result, "isError")))
        rc = err_set(e, CHIMERE_EINVAL, "%.300s", out->n ? out->p : "the tool failed");
    json_decref(result);
    return rc;
}

static void free_remote(void *ud) {
    struct remote *r = ud;
    mem_free(r->name);
    mem_free(r);
}

/* Builds the name SERVER_TOOL. Names of servers contain no underscore, so tools of two servers cannot have the
 * same name. Characters that chat templates may not accept in a name become underscores. */
static bool name_tool(const struct mcp *m, const char *name, char *out, size_t size) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    int n = snprintf(out, size, "%s_%s", m->name, name);
    if (n < 0 || (size_t)n >= size || !*name) return false;
    for (char *c = out; *c; ++c)
        if (!strchr(plain, *c)) *c = '_';
    return true;
}

int mcp_add_tools(struct mcp *m, struct tool_set *tools, struct err *e) {
    json_t *t;
    size_t i;
    int rc = 0;
    json_array_foreach(m->tools, i, t) {
        const char *name = json_string_value(json_object_get(t, "name")),
                   *about = json_string_value(json_object_get(t, "description"));
        json_t *schema = json_object_get(t, "inputSchema");
        struct tool own = {.flags = TOOL_EFFECT | TOOL_SENDS | TOOL_ANYWHERE,
                           .deadline_ms = MCP_CALL_MS,
                           .server = m->name,
                           .run = run_remote,
                           .free = free_remote};
        if (!name || i >= MCP_MAX_TOOLS || !json_is_object(schema) ||
            !name_tool(m, name, own.name, sizeof own.name) || tool_find(tools, own.name)) {
            log_warn("mcp %s: tool \"%.80s\" is left out: its name or schema cannot be used",
                     m->name, name ? name : "");
            continue;
        }
        struct remote *r = mem_zalloc(sizeof *r);
        if (!r || !(r->name = mem_strdup(name))) {
            mem_free(r);
            return err_set(e, CHIMERE_ENOMEM, "out of memory");
        }
        r->m = m;
        own.ud = r;
        own.spec = json_pack("{s:s, s:{s:s, s:s, s:O}}", "type", "function", "function", "name",
                             own.name, "description", about ? about : "", "parameters", schema);
        if ((rc = tool_add(tools, &own, e))) return rc;
    }
    return rc;
}
