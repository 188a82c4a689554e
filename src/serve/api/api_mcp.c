/* api_mcp.c: serves Chimère's tools by the Model Context Protocol over streamable HTTP (POST and DELETE /mcp). Each
 * message is answered by one JSON object; the server does not open a stream. Each tool call has its own thread: it may
 * take a minute, and a worker must not be blocked for other requests. */
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/thread.h"
#include "tools/mcp.h"
#include "tools/mcp_serve.h"
#include "tools/mcp_session.h"
#include "odo/memory.h"
#include "odo/odo.h"
#include "tools/tool.h"
#include "serve/api/api_odo.h"
#include "serve/http/http_impl.h"
#include "serve/api/json_out.h"
#include "store/doc_scope.h"
#include "text/chat/chat.h"

enum { MAX_CALLS = 32 };

struct call {
    struct http_request *r; /* view */
    json_t *message;        /* owned */
    char owner[MEMORY_MAX_OWNER], documents[STORE_DOC_SCOPE_BYTES];
    _Atomic bool cancelled;
};

static void gone(void *ud) { ((struct call *)ud)->cancelled = true; }

static void free_call(void *ud) {
    struct call *c = ud;
    json_decref(c->message);
    mem_free(c);
}

static void send_json(struct http_request *r, int status, json_t *o) {
    struct buf out;
    buf_init(&out, (size_t)8 << 20);
    if (o) json_out_value(&out, o);
    json_decref(o);
    http_reply(r, status, NULL, &out);
    buf_fini(&out);
}

static void refuse(struct http_request *r, int status, int code, const char *text) {
    struct err e;
    err_set(&e, code, "%s", text);
    reply_error(r, status, &e);
}

static void *work(void *ud) {
    struct call *c = ud;
    struct server *s = c->r->s;
    struct tool_env env = {
        .cancelled = &c->cancelled, .owner = c->owner, .documents = c->documents};
    send_json(c->r, 200, mcp_answer(odo_tools(s->p.odo), c->message, &env));
    --s->n_mcp_call;
    http_job_done(c->r); /* c may be freed from here on */
    return NULL;
}

/* Takes ownership of message. */
static void run_call(struct http_request *r, json_t *message) {
    pthread_t thread;
    struct call *c = mem_zalloc(sizeof *c);
    if (!c || ++r->s->n_mcp_call > MAX_CALLS) {
        if (c) --r->s->n_mcp_call;
        mem_free(c);
        json_decref(message);
        refuse(r, 503, CHIMERE_EBUSY, "too many tools are running");
        return;
    }
    c->r = r;
    c->message = message;
    memory_owner(http_owner(r), http_header(r, "X-User"), c->owner);
    (void)store_doc_scope(c->owner, NULL, c->documents, NULL); /* cannot fail without a name */
    http_job_begin(r, &(struct http_job){.gone = gone, .free = free_call}, c);
    if (!pthread_create(&thread, NULL, work, c)) {
        pthread_detach(thread);
        return;
    }
    --r->s->n_mcp_call;
    refuse(r, 503, CHIMERE_EBUSY, "no thread for the tool");
    http_job_done(r);
}

static void initialize(struct http_request *r, const json_t *message) {
    char id[MCP_SESSION_BYTES];
    struct err e = {0};
    struct buf head;
    if (mcp_session_open(r->s->mcp, http_owner(r), id, &e)) {
        http_fail(r, &e);
        return;
    }
    buf_init(&head, 256);
    buf_printf(&head, "Mcp-Session-Id: %s\n", id);
    http_headers(r, &head);
    send_json(r, 200, mcp_answer(odo_tools(r->s->p.odo), message, &(struct tool_env){0}));
}

/* Returns false if an error was sent. */
static bool check(struct http_request *r, bool begins) {
    const char *type = http_header(r, "Content-Type"),
               *version = http_header(r, "MCP-Protocol-Version"),
               *id = http_header(r, "Mcp-Session-Id");
    if (!r->s->p.odo) {
        refuse(r, 404, CHIMERE_ENOENT, "this server runs without its orchestrator");
    } else if (strcmp(r->route->method, "DELETE") != 0 &&
               (!type || strncasecmp(type, "application/json", 16) != 0)) {
        /* a browser lets pages of other sites send plain text without a preflight request */
        refuse(r, 415, CHIMERE_EINVAL, "Content-Type: expected application/json");
    } else if (version && !mcp_is_protocol(version)) {
        refuse(r, 400, CHIMERE_EUNSUPPORTED, "MCP-Protocol-Version: this version is not spoken");
    } else if (!begins && !id) {
        refuse(r, 400, CHIMERE_EINVAL, "Mcp-Session-Id: expected the one that initialize gave");
    } else if (!begins && !mcp_session_use(r->s->mcp, id, http_owner(r))) {
        refuse(r, 404, CHIMERE_ENOENT, "Mcp-Session-Id: there is no such session");
    } else {
        return true;
    }
    return false;
}

void api_mcp(struct http_request *r) {
    size_t n;
    const char *body = http_body(r, &n);
    json_t *m = n <= MCP_MAX_MESSAGE ? chat_json_object(body, n, "message", NULL) : NULL;
    const char *method = json_string_value(json_object_get(m, "method"));
    bool begins = method && !strcmp(method, "initialize");
    if (!check(r, begins)) {
        json_decref(m);
        return;
    }
    if (!m) {
        send_json(r, 400, mcp_unreadable());
    } else if (begins) {
        initialize(r, m);
    } else if (method && !strcmp(method, "tools/call") && json_object_get(m, "id")) {
        run_call(r, m);
        return;
    } else {
        json_t *answer = mcp_answer(odo_tools(r->s->p.odo), m, &(struct tool_env){0});
        send_json(r, answer ? 200 : 202, answer);
    }
    json_decref(m);
}

void api_mcp_end(struct http_request *r) {
    if (!check(r, false)) return;
    mcp_session_end(r->s->mcp, http_header(r, "Mcp-Session-Id"), http_owner(r));
    send_json(r, 200, json_object());
}
