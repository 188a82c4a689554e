/* fields_messages.c: reads messages in the form of OpenAI's chat API. */
#include <stdio.h>
#include <string.h>

#include "serve/fields/fields_parts.h"
#include "serve/fields/fields_impl.h"
#include "serve/fields/fields_tools.h"

/* Converts a custom tool's call to a call of the function that the model knows. */
static json_t *custom_call(const json_t *c) {
    const json_t *in = json_object_get(c, "custom");
    json_t *name = json_object_get(in, "name"), *input = json_object_get(in, "input");
    if (!json_is_string(name) || !json_is_string(input)) return NULL;
    json_t *args = fields_custom_arguments(input);
    return args ? json_pack("{s:O?,s:s,s:{s:O,s:o}}", "id", json_object_get(c, "id"), "type",
                            "function", "function", "name", name, "arguments", args)
                : NULL;
}

static int check_calls(const json_t *calls, const char *where, json_t *out, struct err *e) {
    size_t i;
    json_t *c;
    if (!json_is_array(calls))
        return err_set(e, CHIMERE_EINVAL, "%s.tool_calls: expected a list", where);
    json_t *list = json_array();
    json_object_set_new(out, "tool_calls", list);
    json_array_foreach(calls, i, c) {
        json_t *custom = custom_call(c);
        if (custom) {
            json_array_append_new(list, custom);
            continue;
        }
        json_t *f = json_object_get(c, "function"), *args = json_object_get(f, "arguments");
        if (!json_is_string(json_object_get(f, "name")))
            return err_set(e, CHIMERE_EINVAL, "%s.tool_calls[%zu].function.name: expected a text",
                           where, i);
        if (args && !json_is_string(args) && !json_is_object(args) && !json_is_null(args))
            return err_set(e, CHIMERE_EINVAL,
                           "%s.tool_calls[%zu].function.arguments: expected JSON text", where, i);
        json_array_append(list, c);
    }
    return 0;
}

/* Reads the single call of a message in the form before tool_calls. */
static int old_call(json_t *call, const char *where, json_t *out, struct err *e) {
    if (!json_is_string(json_object_get(call, "name")))
        return err_set(e, CHIMERE_EINVAL, "%s.function_call.name: expected a text", where);
    json_t *list =
        json_pack("[{s:s,s:s,s:O}]", "id", "function_call", "type", "function", "function", call);
    int rc = check_calls(list, where, out, e);
    json_decref(list);
    return rc;
}

static int read_message(const json_t *m, const char *where, json_t *out, struct err *e) {
    static const char *const roles[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    static const char *const copied[] = {"reasoning_content", "reasoning", "tool_call_id", "name"};
    char at[128];
    const char *role = json_string_value(json_object_get(m, "role"));
    json_t *content = json_object_get(m, "content"), *calls = json_object_get(m, "tool_calls");
    size_t k = 0, n = sizeof roles / sizeof *roles;
    if (!json_is_object(m)) return err_set(e, CHIMERE_EINVAL, "%s: expected an object", where);
    while (role && k < n && strcmp(role, roles[k]) != 0) k++;
    if (!role || k == n)
        return err_set(e, CHIMERE_EINVAL,
                       "%s.role: expected system, developer, user, assistant or tool%s%.40s", where,
                       role ? ", got " : "", role ? role : "");
    json_object_set_new(out, "role", json_string(strcmp(role, "function") ? role : "tool"));
    snprintf(at, sizeof at, "%.100s.content", where);
    bool is_result = k >= 4, may_lack = is_result || strcmp(role, "assistant") == 0;
    if (content && !json_is_null(content)) {
        json_t *text;
        int rc = fields_text(content, at, is_result, &text, e);
        if (rc) return rc;
        json_object_set_new(out, "content", text);
    } else if (!may_lack) {
        return err_set(e, CHIMERE_EINVAL, "%s: expected a text or a list of parts", at);
    } else {
        json_object_set_new(out, "content", json_string(""));
    }
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        json_t *v = json_object_get(m, copied[i]);
        if (!v || json_is_null(v)) continue;
        if (!json_is_string(v))
            return err_set(e, CHIMERE_EINVAL, "%s.%s: expected a text", where, copied[i]);
        json_object_set(out, strcmp(copied[i], "reasoning") ? copied[i] : "reasoning_content", v);
    }
    json_t *old = json_object_get(m, "function_call");
    if (json_is_object(old) && !json_array_size(calls)) return old_call(old, where, out, e);
    return calls && !json_is_null(calls) ? check_calls(calls, where, out, e) : 0;
}

int fields_messages(struct request *a, json_t *messages, struct err *e) {
    size_t i;
    json_t *m;
    if (!json_is_array(messages) || !json_array_size(messages))
        return err_set(e, CHIMERE_EINVAL, "messages: expected at least one message");
    if (json_array_size(messages) > FIELDS_MAX_MESSAGES)
        return err_set(e, CHIMERE_ELIMIT, "messages: expected at most %d, got %zu",
                       FIELDS_MAX_MESSAGES, json_array_size(messages));
    a->messages = json_array();
    json_array_foreach(messages, i, m) {
        char where[40];
        snprintf(where, sizeof where, "messages[%zu]", i);
        json_t *out = json_object();
        int rc = read_message(m, where, out, e);
        if (rc) {
            json_decref(out);
            return rc;
        }
        json_array_append_new(a->messages, out);
    }
    return 0;
}
