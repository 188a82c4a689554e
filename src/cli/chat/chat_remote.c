/* chat_remote.c: answers of the chat from a server with OpenAI's API, streamed. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/chat/chat_backend.h"
#include "cli/args/remote_args.h"
#include "net/fetch.h"
#include "net/sse.h"

enum { MAX_ANSWER_BYTES = 64 << 20, MAX_EVENT_BYTES = 1 << 20, STALL_MS = 600000 };

struct remote_chat {
    struct chat_backend b;
    struct remote r;
};

struct turn {
    const struct chat_ask *request;
    struct sse events;
    struct buf content, reasoning;
    bool stopped, cut;
    int64_t start_ns, first_ns;
    int32_t n_prompt, n_generated;
    struct err err; /* an error reported in the stream */
};

static void take(struct turn *t, struct buf *b, bool is_thought, const json_t *text) {
    size_t n = json_string_length(text);
    if (!n) return;
    if (!t->first_ns) t->first_ns = clock_ns();
    buf_put(b, json_string_value(text), n);
    t->request->on_text(t->request->ud, is_thought, json_string_value(text), n);
}

static int on_event(void *ud, const struct sse_event *ev) {
    struct turn *t = ud;
    if (ev->n_data == 6 && !memcmp(ev->data, "[DONE]", 6)) return 0;
    json_error_t je;
    json_t *o = json_loadb(ev->data, ev->n_data, 0, &je);
    if (!o) return err_set(&t->err, CHIMERE_EFORMAT, "stream: expected JSON: %s", je.text);
    const json_t *error = json_object_get(o, "error"), *usage = json_object_get(o, "usage");
    const json_t *choice = json_array_get(json_object_get(o, "choices"), 0);
    const json_t *delta = json_object_get(choice, "delta");
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    int rc = 0;
    if (error) {
        const char *text = json_string_value(json_object_get(error, "message"));
        rc = err_set(&t->err, CHIMERE_EIO, "%s", text ? text : "the server reports an error");
    }
    take(t, &t->reasoning, true, json_object_get(delta, "reasoning_content"));
    take(t, &t->content, false, json_object_get(delta, "content"));
    t->cut |= finish && !strcmp(finish, "length");
    if (json_is_object(usage)) {
        t->n_prompt = (int32_t)json_integer_value(json_object_get(usage, "prompt_tokens"));
        t->n_generated = (int32_t)json_integer_value(json_object_get(usage, "completion_tokens"));
    }
    json_decref(o);
    return rc;
}

static int on_body(void *ud, const char *p, size_t n) {
    return sse_feed(&((struct turn *)ud)->events, p, n);
}

static bool is_cancelled(void *ud) {
    struct turn *t = ud;
    struct pollfd fd = {.fd = t->request->stop_fd, .events = POLLIN};
    char byte;
    if (poll(&fd, 1, 0) > 0 && read(t->request->stop_fd, &byte, 1) == 1) t->stopped = true;
    return t->stopped;
}

/* Only sends options that the user set: every server has its own defaults, and some refuse unknown fields. */
static void add_options(json_t *q, const struct cfg *c) {
    static const struct {
        const char *option, *field;
        bool is_int;
    } rows[] = {{"temp", "temperature", false},
                {"top-p", "top_p", false},
                {"top-k", "top_k", true},
                {"min-p", "min_p", false},
                {"seed", "seed", true},
                {"repeat-penalty", "repeat_penalty", false},
                {"presence-penalty", "presence_penalty", false},
                {"frequency-penalty", "frequency_penalty", false},
                {"n-predict", "max_tokens", true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (cfg_origin(c, rows[i].option) == CFG_DEFAULT || !cfg_is_set(c, rows[i].option))
            continue;
        json_t *v = rows[i].is_int ? json_integer(cfg_int(c, rows[i].option))
                                   : json_real(cfg_float(c, rows[i].option));
        json_object_set_new(q, rows[i].field, v);
    }
}

static char *request_body(const struct remote_chat *b, const struct chat_ask *q, size_t *n) {
    json_t *o = json_pack("{s:s, s:O, s:b, s:{s:b}}", "model", b->r.model, "messages", q->messages,
                          "stream", 1, "stream_options", "include_usage", 1);
    add_options(o, q->c);
    if (q->think)
        json_object_set_new(o, "chat_template_kwargs", json_pack("{s:b}", "enable_thinking", 1));
    char *body = remote_body(o, n);
    json_decref(o);
    return body;
}

static json_t *message(const struct turn *t) {
    json_t *m = json_pack("{s:s}", "role", "assistant");
    json_object_set_new(m, "content",
                        t->content.n ? json_stringn(t->content.p, t->content.n) : json_string(""));
    if (t->reasoning.n)
        json_object_set_new(m, "reasoning_content", json_stringn(t->reasoning.p, t->reasoning.n));
    return m;
}

static int remote_ask(struct chat_backend *base, const struct chat_ask *q, struct chat_reply *r,
                      struct err *e) {
    struct remote_chat *b = (struct remote_chat *)base;
    static const char *const heads[] = {"Content-Type: application/json",
                                        "Accept: text/event-stream", NULL};
    struct turn t = {.request = q, .start_ns = clock_ns()};
    char url[2100];
    size_t n_body;
    *r = (struct chat_reply){.message = NULL};
    snprintf(url, sizeof url, "%s/chat/completions", b->r.base);
    char *body = request_body(b, q, &n_body);
    if (!body) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    sse_init(&t.events, MAX_EVENT_BYTES, on_event, &t);
    buf_init(&t.content, MAX_ANSWER_BYTES);
    buf_init(&t.reasoning, MAX_ANSWER_BYTES);
    const struct fetch_request request = {.url = url,
                                          .body = body,
                                          .n_body = n_body,
                                          .headers = heads,
                                          .bearer = b->r.key,
                                          .max_bytes = (uint64_t)16 * MAX_ANSWER_BYTES,
                                          .stall_ms = STALL_MS,
                                          .on_body = on_body,
                                          .is_cancelled = is_cancelled,
                                          .ud = &t};
    struct fetch_reply reply;
    int rc = fetch_ok(&request, &reply, e);
    fetch_reply_fini(&reply);
    if (rc && t.err.code) {
        *e = t.err;
        rc = t.err.code;
    }
    if (rc == CHIMERE_ECANCELLED && t.stopped) rc = 0;
    int64_t now = clock_ns(), first = t.first_ns ? t.first_ns : now;
    if (!rc) {
        *r = (struct chat_reply){.message = message(&t),
                                 .end = t.stopped ? CHAT_END_STOPPED
                                        : t.cut   ? CHAT_END_LENGTH
                                                  : CHAT_ENDED,
                                 .n_prompt = t.n_prompt,
                                 .n_generated = t.n_generated,
                                 .prefill_ms = (double)(first - t.start_ns) * 1e-6,
                                 .decode_ms = (double)(now - first) * 1e-6};
        if (!r->message) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    sse_fini(&t.events);
    buf_fini(&t.content);
    buf_fini(&t.reasoning);
    mem_free(body);
    return rc;
}

static void remote_close(struct chat_backend *b) { mem_free(b); }

int chat_remote_open(struct chat_backend **out, const struct cfg *c, struct err *e) {
    *out = NULL;
    struct remote_chat *b = mem_zalloc(sizeof *b);
    if (!b) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    b->b = (struct chat_backend){.request = remote_ask, .close = remote_close};
    int rc = remote_open(&b->r, c, e);
    if (rc) {
        mem_free(b);
        return rc;
    }
    snprintf(b->b.name, sizeof b->b.name, "%.60s at %.60s", b->r.model, b->r.base);
    *out = &b->b;
    return 0;
}
