#include "backend/remote.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "backend/images.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/thread.h"
#include "net/fetch.h"
#include "net/sse.h"

enum { MAX_EVENT = 8 << 20, MAX_ANSWER = 64 << 20, MAX_CALLS = 64, STALL_MS = 600000 };

struct remote {
    struct backend base;
    char *url, *key; /* owned */
};

struct remote_run {
    struct generation base;
    struct event_sink sink;
    char *body; /* owned: the request */
    int64_t deadline_ns;
    _Atomic bool cancelled;
    pthread_t thread;
    bool started;
    /* used by the generation's thread */
    struct sse sse;
    struct generation_end end;
    char *stop; /* owned: the stop string that ended the answer, if the server reports it */
    struct err err;
    bool finished;
    int n_call; /* calls that have begun */
    bool open_call;
};

/* ---- the request ---- */

static void set_number(json_t *o, const char *key, double x, double neutral) {
    if (x != neutral) json_object_set_new(o, key, json_real(round(x * 1e6) / 1e6));
}

/* Sends temperature and top_p only if they were chosen: the server knows the values that its model needs. A value
 * that differs from our default was chosen by an internal caller. */
static void set_sampling(json_t *o, const struct request *a) {
    const struct sampler_params *s = &a->sampling;
    struct sampler_params usual;
    sampler_defaults(&usual);
    if (a->has_temperature || s->temperature != usual.temperature)
        json_object_set_new(o, "temperature", json_real(round((double)s->temperature * 1e6) / 1e6));
    if (a->has_top_p || s->top_p != usual.top_p)
        json_object_set_new(o, "top_p", json_real(round((double)s->top_p * 1e6) / 1e6));
    set_number(o, "presence_penalty", (double)s->presence_penalty, 0);
    set_number(o, "frequency_penalty", (double)s->frequency_penalty, 0);
    if (s->seed) json_object_set_new(o, "seed", json_integer((json_int_t)(s->seed & 0x7fffffff)));
}

static json_t *response_format(const struct request *a) {
    if (a->format == REQUEST_JSON_OBJECT) return json_pack("{s:s}", "type", "json_object");
    if (a->format == REQUEST_JSON_SCHEMA)
        return json_pack("{s:s, s:{s:s, s:b, s:O}}", "type", "json_schema", "json_schema", "name",
                         "answer", "strict", 1, "schema", a->schema);
    return NULL;
}

static json_t *request(const struct remote *r, const struct request *a) {
    static const char *const choices[] = {"auto", "none", "required"};
    json_t *o = json_pack("{s:s, s:O, s:b, s:{s:b}}", "model", r->base.name, "messages",
                          a->messages, "stream", 1, "stream_options", "include_usage", 1),
           *format = response_format(a);
    if (!o) return NULL;
    if (a->max_tokens > 0) json_object_set_new(o, "max_tokens", json_integer(a->max_tokens));
    set_sampling(o, a);
    if (a->continue_last) { /* field names of vLLM, which our server reads as well */
        json_object_set_new(o, "continue_final_message", json_true());
        json_object_set_new(o, "add_generation_prompt", json_false());
    }
    if (format) json_object_set_new(o, "response_format", format);
    if (a->format == REQUEST_GBNF) json_object_set_new(o, "grammar", json_string(a->grammar));
    if (a->n_stop) {
        json_t *stops = json_array();
        for (size_t i = 0; i < a->n_stop; ++i)
            json_array_append_new(stops, json_string(a->stops[i]));
        json_object_set_new(o, "stop", stops);
    }
    if (json_array_size(a->tools)) {
        json_object_set(o, "tools", a->tools);
        json_object_set_new(
            o, "tool_choice",
            a->tool_choice == REQUEST_TOOLS_NAMED
                ? json_pack("{s:s, s:{s:s}}", "type", "function", "function", "name", a->tool_name)
                : json_string(choices[a->tool_choice]));
    }
    return o;
}

/* ---- events ---- */

static int chat(struct remote_run *r, enum chat_event_kind kind, const char *text, size_t n,
                int index, const char *name, const char *id) {
    struct chat_event c = {
        .kind = kind, .text = text, .n = n, .index = index, .name = name, .id = id};
    int rc = r->sink.event(r->sink.ud, &(struct backend_event){.kind = EVENT_CHAT, .chat = &c});
    return rc || r->cancelled ? CHIMERE_ECANCELLED : 0;
}

static int text_delta(struct remote_run *r, const json_t *delta, const char *key,
                      enum chat_event_kind kind) {
    const json_t *v = json_object_get(delta, key);
    size_t n = json_string_length(v);
    return n ? chat(r, kind, json_string_value(v), n, -1, NULL, NULL) : 0;
}

static int end_call(struct remote_run *r) {
    if (!r->open_call) return 0;
    r->open_call = false;
    return chat(r, CHAT_CALL_END, "", 0, r->n_call - 1, NULL, NULL);
}

static int call_delta(struct remote_run *r, const json_t *call) {
    const json_t *f = json_object_get(call, "function"), *args = json_object_get(f, "arguments");
    const char *name = json_string_value(json_object_get(f, "name")),
               *id = json_string_value(json_object_get(call, "id"));
    int rc = 0;
    if (name && *name) {
        if (r->n_call == MAX_CALLS)
            return err_set(&r->err, CHIMERE_ELIMIT, "more than %d tool calls", MAX_CALLS);
        char own[16];
        snprintf(own, sizeof own, "call%05d", r->n_call);
        if ((rc = end_call(r))) return rc;
        r->open_call = true;
        rc = chat(r, CHAT_CALL, "", 0, r->n_call++, name, id ? id : own);
    }
    if (!rc && r->open_call && json_string_length(args))
        rc = chat(r, CHAT_ARGS, json_string_value(args), json_string_length(args), r->n_call - 1,
                  NULL, NULL);
    return rc;
}

static void finish(struct remote_run *r, const char *reason) {
    r->finished = true;
    r->end.finish = !strcmp(reason, "length")       ? FINISH_LENGTH
                    : !strcmp(reason, "tool_calls") ? FINISH_CALLS
                                                    : FINISH_STOP;
}

static int32_t number_of_tokens(const json_t *usage, const char *key) {
    json_int_t n = json_integer_value(json_object_get(usage, key));
    return n < 0 ? 0 : n > INT32_MAX ? INT32_MAX : (int32_t)n;
}

static int on_frame(void *ud, const struct sse_event *ev) {
    struct remote_run *r = ud;
    if (!strcmp(ev->data, "[DONE]")) return 0;
    json_t *o = chat_json_object(ev->data, ev->n_data, "frame", &r->err), *call;
    if (!o) return r->err.code;
    const json_t *error = json_object_get(o, "error"), *usage = json_object_get(o, "usage"),
                 *choice = json_array_get(json_object_get(o, "choices"), 0),
                 *delta = json_object_get(choice, "delta");
    int rc = 0;
    size_t i;
    if (error) {
        const char *m = json_string_value(json_object_get(error, "message"));
        rc = err_set(&r->err, CHIMERE_EIO, "%.300s", m ? m : "the backend failed");
    }
    if (json_is_object(usage)) {
        r->end.stats.n_prompt = number_of_tokens(usage, "prompt_tokens");
        r->end.stats.n_generated = number_of_tokens(usage, "completion_tokens");
    }
    if (!rc) rc = text_delta(r, delta, "reasoning_content", CHAT_REASONING);
    if (!rc) rc = text_delta(r, delta, "content", CHAT_CONTENT);
    json_array_foreach(json_object_get(delta, "tool_calls"), i, call) if (!rc) rc =
        call_delta(r, call);
    const char *reason = json_string_value(json_object_get(choice, "finish_reason"));
    if (!rc && reason) {
        rc = end_call(r);
        finish(r, reason);
        /* field of vLLM and of our server */
        const char *stop = json_string_value(json_object_get(choice, "stop_reason"));
        if (stop && !r->stop) r->end.stop = r->stop = mem_strdup(stop);
    }
    json_decref(o);
    return rc;
}

static int on_body(void *ud, const char *p, size_t n) {
    struct remote_run *r = ud;
    return sse_feed(&r->sse, p, n);
}

static bool is_cancelled(void *ud) { return ((struct remote_run *)ud)->cancelled; }

/* If the remote server exceeds our limits or sends unreadable data, that is not the client's error. Reported as 502. */
static void blame_backend(struct err *e) {
    switch (e->code) {
    case CHIMERE_ECANCELLED: /* the client did not cancel: a callback refused the server's answer */
        err_set(e, CHIMERE_EIO, "the backend's answer is too long");
        break;
    case CHIMERE_EINVAL:
    case CHIMERE_EFORMAT:
    case CHIMERE_ELIMIT: e->code = CHIMERE_EIO; break;
    default: break;
    }
}

static void *work(void *ud) {
    struct remote_run *r = ud;
    const struct remote *b = (const struct remote *)r->base.backend;
    const char *headers[] = {"Content-Type: application/json", "Accept: text/event-stream", NULL};
    int64_t left = r->deadline_ns ? (r->deadline_ns - clock_ns()) / 1000000 : 0;
    sse_init(&r->sse, MAX_EVENT, on_frame, r);
    struct fetch_request q = {.url = b->url,
                              .body = r->body,
                              .n_body = strlen(r->body),
                              .headers = headers,
                              .bearer = b->key,
                              .max_bytes = MAX_ANSWER,
                              .total_ms = r->deadline_ns ? (left > 1 ? (int32_t)left : 1) : 0,
                              .stall_ms = STALL_MS,
                              .max_redirects = -1,
                              .on_body = on_body,
                              .is_cancelled = is_cancelled,
                              .ud = r};
    struct fetch_reply reply;
    struct err e = {0};
    int rc = fetch_ok(&q, &reply, &e);
    bool answered = reply.status == 200;
    fetch_reply_fini(&reply);
    sse_fini(&r->sse);
    if (r->err.code) e = r->err;
    if (r->cancelled) {
        r->end.finish = FINISH_CANCELLED;
    } else if (rc || !r->finished) {
        if (!e.code) err_set(&e, CHIMERE_EIO, "the backend's answer ended early");
        if (answered) blame_backend(&e);
        r->end.finish = FINISH_ERROR;
        r->end.err = &e;
    }
    r->sink.event(r->sink.ud, &(struct backend_event){.kind = EVENT_END, .end = &r->end});
    struct event_sink sink = r->sink;
    sink.event(sink.ud, &(struct backend_event){.kind = EVENT_DONE});
    return NULL;
}

/* ---- the backend ---- */

static void free_run(struct generation *base) {
    struct remote_run *r = (struct remote_run *)base;
    if (!r) return;
    if (r->started) pthread_join(r->thread, NULL);
    mem_free(r->stop);
    mem_free(r->body);
    mem_free(r);
}

static int prepare(struct backend *b, const struct request *a, const struct event_sink *sink,
                   struct generation **out, int32_t *n_prompt, struct err *e) {
    *out = NULL;
    if (!a->messages)
        return err_set(e, CHIMERE_EUNSUPPORTED, "prompt: this backend answers conversations alone");
    int rc = images_refuse(a->messages, e);
    if (rc) return rc;
    struct remote_run *r = mem_zalloc(sizeof *r);
    json_t *o = r ? request((struct remote *)b, a) : NULL;
    if (o) r->body = json_dumps(o, JSON_COMPACT);
    json_decref(o);
    if (!r || !r->body) {
        mem_free(r);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    r->base.backend = b;
    r->sink = *sink;
    r->deadline_ns = a->deadline_ns;
    /* an estimate; the real number comes with the answer */
    if (n_prompt) *n_prompt = (int32_t)(strlen(r->body) / 4);
    *out = &r->base;
    return 0;
}

static int start(struct generation *base, struct err *e) {
    struct remote_run *r = (struct remote_run *)base;
    if (pthread_create(&r->thread, NULL, work, r))
        return err_set(e, CHIMERE_EBUSY, "no thread for the request");
    r->started = true;
    return 0;
}

static void cancel(struct generation *base) { ((struct remote_run *)base)->cancelled = true; }

static int render(struct backend *b, const struct request *a, char **text, int32_t **ids, size_t *n,
                  struct err *e) {
    (void)b, (void)a, (void)text, (void)ids, (void)n;
    return err_set(e, CHIMERE_EUNSUPPORTED, "the prompt is made by the backend");
}

static void close_backend(struct backend *b) {
    struct remote *r = (struct remote *)b;
    if (!r) return;
    if (r->key) memset(r->key, 0, strlen(r->key));
    mem_free(r->key);
    mem_free(r->url);
    mem_free(r);
}

static const struct backend_ops ops = {.prepare = prepare,
                                       .start = start,
                                       .cancel = cancel,
                                       .free = free_run,
                                       .render = render,
                                       .close = close_backend};

int backend_remote_url(char **out, const char *url, const char *path, struct err *e) {
    struct buf b;
    *out = NULL;
    if (!str_starts(url, "http://") && !str_starts(url, "https://"))
        return err_set(e, CHIMERE_EINVAL, "backend: expected an http address, got \"%.100s\"", url);
    buf_init(&b, FETCH_MAX_URL_BYTES);
    buf_puts(&b, url);
    while (b.n && b.p[b.n - 1] == '/') buf_cut(&b, b.n - 1);
    if (b.n && !str_ends(b.p, "/v1")) buf_puts(&b, "/v1");
    buf_puts(&b, path);
    *out = buf_take(&b);
    return *out ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

int backend_remote_open(struct backend **out, const char *url, const char *key, const char *name,
                        struct err *e) {
    *out = NULL;
    char *full;
    int rc = backend_remote_url(&full, url, "/chat/completions", e);
    if (rc) return rc;
    struct remote *r = mem_zalloc(sizeof *r);
    if (!r || (key && !(r->key = mem_strdup(key)))) {
        mem_free(full);
        mem_free(r);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    r->url = full;
    r->base.ops = &ops;
    snprintf(r->base.name, sizeof r->base.name, "%s", name);
    *out = &r->base;
    return 0;
}
