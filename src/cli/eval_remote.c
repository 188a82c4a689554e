#include "cli/eval_remote.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/fetch.h"

enum { MAX_REPLY = 16 << 20, ANSWER_MS = 600000 };

int eval_remote_open(struct eval_remote *x, const struct cfg *c, struct err *e) {
    return remote_open(&x->remote, c, e);
}

/* Converts calls of earlier turns: items contain {name, arguments}, the API uses OpenAI's form. */
static json_t *wire_message(const json_t *message, size_t turn) {
    json_t *m = json_deep_copy(message), *calls = json_object_get(m, "tool_calls"), *call;
    size_t i;
    char id[64];
    json_array_foreach(calls, i, call) {
        const json_t *arguments = json_object_get(call, "arguments");
        if (!arguments) continue; /* already in OpenAI's form */
        char *text = json_dumps(arguments, JSON_COMPACT);
        snprintf(id, sizeof id, "call_%zu_%zu", turn, i);
        json_array_set_new(calls, i,
                           json_pack("{s:s, s:s, s:{s:O, s:s}}", "id", id, "type", "function",
                                     "function", "name", json_object_get(call, "name"), "arguments",
                                     text ? text : "{}"));
        mem_free(text);
    }
    const char *role = json_string_value(json_object_get(m, "role"));
    if (role && !strcmp(role, "tool") && !json_object_get(m, "tool_call_id") && turn) {
        snprintf(id, sizeof id, "call_%zu_0", turn - 1);
        json_object_set_new(m, "tool_call_id", json_string(id));
    }
    return m;
}

static char *request_body(const struct eval_remote *x, const json_t *item, size_t *n) {
    json_t *messages = json_array(), *m;
    size_t i;
    json_array_foreach(json_object_get(item, "messages"), i, m)
        json_array_append_new(messages, wire_message(m, i));
    json_t *q = json_pack("{s:s, s:o, s:i, s:O}", "model", x->remote.model, "messages", messages,
                          "temperature", 0, "max_tokens", json_object_get(item, "max_tokens"));
    json_t *tools = json_object_get(item, "tools");
    if (json_array_size(tools)) json_object_set(q, "tools", tools);
    if (json_is_true(json_object_get(item, "think")))
        json_object_set_new(q, "chat_template_kwargs", json_pack("{s:b}", "enable_thinking", 1));
    char *body = remote_body(q, n);
    json_decref(q);
    return body;
}

static int put(struct buf *out, const char *text) { return buf_put(out, text, strlen(text)); }

static int put_call(struct buf *out, const json_t *call) {
    const json_t *f = json_object_get(call, "function");
    const char *name = json_string_value(json_object_get(f, "name"));
    const char *text = json_string_value(json_object_get(f, "arguments")), *key;
    json_t *arguments = text ? json_loads(text, 0, NULL) : NULL, *value;
    int rc = put(out, "<tool_call>\n<function=") || put(out, name ? name : "") || put(out, ">\n");
    json_object_foreach(arguments, key, value) {
        char *dump =
            json_is_string(value) ? NULL : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        rc |= put(out, "<parameter=") || put(out, key) || put(out, ">\n") ||
              put(out, dump                    ? dump
                       : json_is_string(value) ? json_string_value(value)
                                               : "") ||
              put(out, "\n</parameter>\n");
        mem_free(dump);
    }
    json_decref(arguments);
    return rc || put(out, "</function>\n</tool_call>\n");
}

static int read_reply(const struct fetch_reply *reply, struct eval_answer *out, struct err *e) {
    json_t *o = json_loadb(reply->body.n ? reply->body.p : "", reply->body.n, 0, NULL), *call;
    const json_t *choice = json_array_get(json_object_get(o, "choices"), 0);
    const json_t *m = json_object_get(choice, "message");
    const json_t *usage = json_object_get(o, "usage"), *content = json_object_get(m, "content");
    size_t i;
    int rc = json_is_object(m) ? 0 : err_set(e, CHIMERE_EFORMAT, "expected an answer with choices");
    if (!rc && json_is_string(content))
        rc = buf_put(&out->text, json_string_value(content), json_string_length(content));
    if (!rc && out->text.n && json_array_size(json_object_get(m, "tool_calls")))
        rc = put(&out->text, "\n");
    json_array_foreach(json_object_get(m, "tool_calls"), i, call) if (!rc) rc =
        put_call(&out->text, call);
    if (rc && rc != CHIMERE_EFORMAT) rc = err_set(e, CHIMERE_ELIMIT, "the answer is too long");
    out->n_answer = json_integer_value(json_object_get(usage, "completion_tokens"));
    json_decref(o);
    return rc;
}

int eval_remote_answer(void *ud, const json_t *item, size_t index, struct eval_answer *out,
                       struct err *e) {
    static const char *const heads[] = {"Content-Type: application/json", NULL};
    struct eval_remote *x = ud;
    char url[2100];
    size_t n;
    (void)index;
    snprintf(url, sizeof url, "%s/chat/completions", x->remote.base);
    char *body = request_body(x, item, &n);
    if (!body) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int64_t start = clock_ns();
    const struct fetch_request q = {.url = url,
                                    .body = body,
                                    .n_body = n,
                                    .headers = heads,
                                    .bearer = x->remote.key,
                                    .max_bytes = MAX_REPLY,
                                    .stall_ms = ANSWER_MS,
                                    .total_ms = ANSWER_MS};
    struct fetch_reply reply;
    int rc = fetch_ok(&q, &reply, e);
    if (!rc) rc = read_reply(&reply, out, e);
    out->ms = (double)clock_ms_since(start);
    fetch_reply_fini(&reply);
    mem_free(body);
    return rc;
}
