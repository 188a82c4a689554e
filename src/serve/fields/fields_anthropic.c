/* fields_anthropic.c: converts the messages API's conversation to OpenAI's chat form.
 *
 *   system: text or blocks             -> a system message in front
 *   user: text, tool_result blocks     -> tool messages, then a user message with the texts
 *   assistant: text, thinking, tool_use -> one assistant message; last of all: to be continued */
#include <stdio.h>
#include <string.h>

#include "serve/fields/fields_parts.h"
#include "serve/fields/fields_impl.h"
#include "serve/api/json_out.h"

static json_t *message(const char *role, json_t *content) { /* takes content */
    json_t *m = json_object();
    json_object_set_new(m, "role", json_string(role));
    json_object_set_new(m, "content", content);
    return m;
}

static int no_memory(struct err *e) { return err_set(e, CHIMERE_ENOMEM, "out of memory"); }

int fields_anthropic_system(struct fields *f, json_t *v, struct err *e) {
    json_t *text;
    int rc = fields_text(v, "system", false, &text, e);
    if (rc) return rc;
    if (!f->request->messages) f->request->messages = json_array();
    return json_array_insert_new(f->request->messages, 0, message("system", text)) ? no_memory(e)
                                                                                   : 0;
}

static int tool_result(const json_t *b, const char *where, json_t *out, struct err *e) {
    json_t *id = json_object_get(b, "tool_use_id"), *content = json_object_get(b, "content"), *text;
    char at[128];
    if (!json_is_string(id))
        return err_set(e, CHIMERE_EINVAL, "%s.tool_use_id: expected a text", where);
    snprintf(at, sizeof at, "%.100s.content", where);
    if (!content || json_is_null(content)) text = json_string("");
    else {
        int rc = fields_text(content, at, true, &text, e);
        if (rc) return rc;
    }
    json_t *m = message("tool", text);
    json_object_set(m, "tool_call_id", id);
    return json_array_append_new(out, m) ? no_memory(e) : 0;
}

static int tool_use(const json_t *b, const char *where, json_t *calls, struct err *e) {
    json_t *input = json_object_get(b, "input"), *name = json_object_get(b, "name");
    if (!json_is_string(name)) return err_set(e, CHIMERE_EINVAL, "%s.name: expected a text", where);
    if (!json_is_object(input))
        return err_set(e, CHIMERE_EINVAL, "%s.input: expected an object", where);
    struct buf args;
    buf_init(&args, (size_t)64 << 20);
    json_out_value(&args, input);
    const json_t *id = json_object_get(b, "id");
    json_t *call = args.failed
                       ? NULL
                       : json_pack("{s:s,s:s,s:{s:O,s:s}}", "id",
                                   json_is_string(id) ? json_string_value(id) : "", "type",
                                   "function", "function", "name", name, "arguments", args.p);
    buf_fini(&args);
    return !call || json_array_append_new(calls, call) ? no_memory(e) : 0;
}

/* Appends a part to m's content, which becomes a list once it has an image. */
static int add_part(json_t *m, json_t *part, struct err *e) {
    json_t *content = json_object_get(m, "content");
    if (!json_is_array(content)) {
        json_t *list = json_array();
        if (json_string_length(content))
            json_array_append_new(list, json_pack("{s:s,s:O}", "type", "text", "text", content));
        json_object_set_new(m, "content", list);
        content = list;
    }
    return json_array_append_new(content, part) ? no_memory(e) : 0;
}

static int join(json_t *m, const char *key, const struct buf *text, struct err *e) {
    json_t *have = json_object_get(m, key);
    struct buf all;
    if (json_is_array(have))
        return text->failed ? no_memory(e)
                            : add_part(m,
                                       json_pack("{s:s,s:s%}", "type", "text", "text",
                                                 text->n ? text->p : "", text->n),
                                       e);
    buf_init(&all, (size_t)64 << 20);
    if (have) buf_put(&all, json_string_value(have), json_string_length(have));
    if (text->n) buf_put(&all, text->p, text->n);
    json_t *joined = all.failed || text->failed ? NULL : json_stringn(all.n ? all.p : "", all.n);
    buf_fini(&all);
    return json_object_set_new(m, key, joined) ? no_memory(e) : 0;
}

/* Reads one block of a user or assistant message. */
static int read_block(const json_t *b, const char *where, bool assistant, json_t *m, json_t *out,
                      struct err *e) {
    static const char *const passed[] = {"server_tool_use",
                                         "web_search_tool_result",
                                         "web_fetch_tool_result",
                                         "code_execution_tool_result",
                                         "tool_search_tool_result",
                                         "compaction",
                                         "fallback"};
    const char *type = json_string_value(json_object_get(b, "type"));
    if (!type) return err_set(e, CHIMERE_EINVAL, "%s.type: expected a text", where);
    if (assistant && strcmp(type, "thinking") == 0) {
        json_t *t = json_object_get(b, "thinking");
        struct buf view = {.p = (char *)json_string_value(t), .n = json_string_length(t)};
        return t ? join(m, "reasoning_content", &view, e)
                 : err_set(e, CHIMERE_EINVAL, "%s.thinking: expected a text", where);
    }
    if (assistant && strcmp(type, "redacted_thinking") == 0) return 0;
    if (assistant && strcmp(type, "tool_use") == 0) {
        if (!json_object_get(m, "tool_calls")) json_object_set_new(m, "tool_calls", json_array());
        return tool_use(b, where, json_object_get(m, "tool_calls"), e);
    }
    if (!assistant && strcmp(type, "tool_result") == 0) return tool_result(b, where, out, e);
    for (size_t i = 0; assistant && i < sizeof passed / sizeof *passed; i++)
        if (strcmp(type, passed[i]) == 0) return 0; /* another server has already run it */
    struct buf text;
    int rc = 0;
    json_t *image = assistant ? NULL : fields_image(b, where, &rc, e);
    if (image) return add_part(m, image, e);
    if (rc) return rc;
    buf_init(&text, (size_t)64 << 20);
    rc = fields_part(b, where, false, &text, e);
    if (!rc) rc = join(m, "content", &text, e);
    buf_fini(&text);
    return rc;
}

static int read_message(const json_t *v, const char *where, json_t *out, struct err *e) {
    const char *role = json_string_value(json_object_get(v, "role"));
    const json_t *content = json_object_get(v, "content"), *b;
    bool assistant = role && strcmp(role, "assistant") == 0;
    if (!role || (!assistant && strcmp(role, "user") != 0 && strcmp(role, "system") != 0))
        return err_set(e, CHIMERE_EINVAL, "%s.role: expected user or assistant%s%.40s", where,
                       role ? ", got " : "", role ? role : "");
    json_t *m = message(role, json_string(""));
    int rc = 0;
    size_t i, before = json_array_size(out);
    if (json_is_string(content)) {
        json_object_set(m, "content", (json_t *)content);
    } else if (!json_is_array(content) || json_array_size(content) > FIELDS_MAX_PARTS) {
        rc = err_set(e, CHIMERE_EINVAL, "%s.content: expected a text or a list of blocks", where);
    } else {
        json_array_foreach(content, i, b) {
            char at[128];
            snprintf(at, sizeof at, "%.80s.content[%zu]", where, i);
            rc = read_block(b, at, assistant, m, out, e);
            if (rc) break;
        }
    }
    const json_t *said = json_object_get(m, "content");
    bool only_results =
        json_array_size(out) > before && !json_string_length(said) && !json_array_size(said);
    if (rc || only_results) {
        json_decref(m);
        return rc;
    }
    return json_array_append_new(out, m) ? no_memory(e) : 0;
}

int fields_anthropic_messages(struct fields *f, json_t *v, struct err *e) {
    size_t i;
    json_t *one;
    if (!json_is_array(v) || !json_array_size(v))
        return err_set(e, CHIMERE_EINVAL, "messages: expected at least one message");
    if (json_array_size(v) > FIELDS_MAX_MESSAGES)
        return err_set(e, CHIMERE_ELIMIT, "messages: expected at most %d, got %zu",
                       FIELDS_MAX_MESSAGES, json_array_size(v));
    if (!f->request->messages) f->request->messages = json_array();
    json_array_foreach(v, i, one) {
        char where[40];
        snprintf(where, sizeof where, "messages[%zu]", i);
        int rc = read_message(one, where, f->request->messages, e);
        if (rc) return rc;
    }
    json_t *last = json_array_get(f->request->messages, json_array_size(f->request->messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    f->request->continue_last =
        role && strcmp(role, "assistant") == 0 && !json_object_get(last, "tool_calls");
    return 0;
}
