/* fields_responses.c: converts the responses API's input to OpenAI's chat form.
 *
 * The items of one assistant turn (reasoning, message, function calls) become one message. */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "serve/fields/fields_parts.h"
#include "serve/fields/fields_impl.h"
#include "serve/fields/fields_tools.h"

static int no_memory(struct err *e) { return err_set(e, CHIMERE_ENOMEM, "out of memory"); }

static json_t *add(json_t *out, const char *role) {
    json_t *m = json_object();
    json_object_set_new(m, "role", json_string(role));
    json_object_set_new(m, "content", json_string(""));
    return json_array_append_new(out, m) ? NULL : m;
}

int fields_instructions(struct fields *f, json_t *v, struct err *e) {
    if (!json_is_string(v)) return err_set(e, CHIMERE_EINVAL, "instructions: expected a text");
    if (!f->request->messages) f->request->messages = json_array();
    json_t *m = json_object();
    json_object_set_new(m, "role", json_string("system"));
    json_object_set(m, "content", v);
    return json_array_insert_new(f->request->messages, 0, m) ? no_memory(e) : 0;
}

/* Returns the assistant message to which items are added: the last message, or a new one. */
static json_t *assistant(json_t *out, bool fresh) {
    json_t *last = json_array_get(out, json_array_size(out) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    bool joins = role && strcmp(role, "assistant") == 0 &&
                 !(fresh && (json_string_length(json_object_get(last, "content")) ||
                             json_object_get(last, "tool_calls")));
    return joins ? last : add(out, "assistant");
}

static int read_item_message(const json_t *v, const char *where, json_t *out, struct err *e) {
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    const char *role = json_string_value(json_object_get(v, "role"));
    char at[80];
    json_t *text;
    size_t k = 0;
    while (role && k < 4 && strcmp(role, roles[k]) != 0) k++;
    if (!role || k == 4)
        return err_set(e, CHIMERE_EINVAL,
                       "%s.role: expected user, assistant, system or developer%s%.40s", where,
                       role ? ", got " : "", role ? role : "");
    snprintf(at, sizeof at, "%.60s.content", where);
    int rc = fields_text(json_object_get(v, "content"), at, false, &text, e);
    if (rc) return rc;
    json_t *m = k == 1 ? assistant(out, true) : add(out, role);
    if (!m || json_object_set_new(m, "content", text)) return no_memory(e);
    return 0;
}

/* Reads a call of a function, which may be in a namespace, or of a custom tool. */
static int read_call(const json_t *v, const char *where, bool custom, json_t *out, struct err *e) {
    const char *key = custom ? "input" : "arguments";
    json_t *name = json_object_get(v, "name"), *args = json_object_get(v, key);
    json_t *id = json_object_get(v, "call_id"), *space = json_object_get(v, "namespace");
    if (!json_is_string(name) || !json_is_string(args) || !json_is_string(id))
        return err_set(e, CHIMERE_EINVAL, "%s: expected call_id, name and %s as texts", where, key);
    json_t *m = assistant(out, false);
    if (m && !json_object_get(m, "tool_calls")) json_object_set_new(m, "tool_calls", json_array());
    char *flat = json_is_string(space)
                     ? fields_flat_name(json_string_value(space), json_string_value(name))
                     : NULL;
    json_t *call = json_pack("{s:O,s:s,s:{s:o,s:o}}", "id", id, "type", "function", "function",
                             "name", flat ? json_string(flat) : json_incref(name), "arguments",
                             custom ? fields_custom_arguments(args) : json_incref(args));
    mem_free(flat);
    if (!m || !call || json_array_append_new(json_object_get(m, "tool_calls"), call))
        return no_memory(e);
    return 0;
}

static int read_output(const json_t *v, const char *where, json_t *out, struct err *e) {
    json_t *id = json_object_get(v, "call_id"), *text;
    char at[80];
    if (!json_is_string(id))
        return err_set(e, CHIMERE_EINVAL, "%s.call_id: expected a text", where);
    snprintf(at, sizeof at, "%.60s.output", where);
    int rc = fields_text(json_object_get(v, "output"), at, true, &text, e);
    if (rc) return rc;
    json_t *m = add(out, "tool");
    if (!m || json_object_set_new(m, "content", text) || json_object_set(m, "tool_call_id", id))
        return no_memory(e);
    return 0;
}

static int read_reasoning(const json_t *v, json_t *out, struct err *e) {
    json_t *part, *list = json_object_get(v, "content");
    size_t i;
    if (!json_array_size(list)) return 0; /* the model cannot use a summary or an encrypted text */
    json_t *m = assistant(out, true);
    if (!m) return no_memory(e);
    json_array_foreach(list, i, part) {
        const char *text = json_string_value(json_object_get(part, "text"));
        const char *have = json_string_value(json_object_get(m, "reasoning_content"));
        if (text && json_object_set_new(m, "reasoning_content",
                                        json_sprintf("%s%s", have ? have : "", text)))
            return no_memory(e);
    }
    return 0;
}

static int read_item(const json_t *v, const char *where, json_t *out, struct err *e) {
    static const char *const passed[] = {"web_search_call",
                                         "file_search_call",
                                         "image_generation_call",
                                         "code_interpreter_call",
                                         "mcp_",
                                         "tool_search_",
                                         "additional_tools"};
    const char *type = json_string_value(json_object_get(v, "type"));
    if (!json_is_object(v)) return err_set(e, CHIMERE_EINVAL, "%s: expected an object", where);
    if (!type || strcmp(type, "message") == 0) return read_item_message(v, where, out, e);
    if (strcmp(type, "function_call") == 0) return read_call(v, where, false, out, e);
    if (strcmp(type, "custom_tool_call") == 0) return read_call(v, where, true, out, e);
    if (strcmp(type, "function_call_output") == 0 || strcmp(type, "custom_tool_call_output") == 0)
        return read_output(v, where, out, e);
    if (strcmp(type, "reasoning") == 0) return read_reasoning(v, out, e);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        if (str_starts(type, passed[i]))
            return 0; /* another server has already run it; its text is in another item */
    return err_set(e, CHIMERE_EUNSUPPORTED, "%s.type: %.60s is not read here", where, type);
}

int fields_input(struct fields *f, json_t *v, struct err *e) {
    size_t i;
    json_t *item;
    if (!f->request->messages) f->request->messages = json_array();
    json_t *out = f->request->messages;
    if (json_is_string(v)) {
        json_t *m = add(out, "user");
        return !m || json_object_set(m, "content", v) ? no_memory(e) : 0;
    }
    if (!json_is_array(v) || !json_array_size(v))
        return err_set(e, CHIMERE_EINVAL, "input: expected a text or a list of items");
    if (json_array_size(v) > FIELDS_MAX_MESSAGES)
        return err_set(e, CHIMERE_ELIMIT, "input: expected at most %d items, got %zu",
                       FIELDS_MAX_MESSAGES, json_array_size(v));
    json_array_foreach(v, i, item) {
        char where[40];
        snprintf(where, sizeof where, "input[%zu]", i);
        int rc = read_item(item, where, out, e);
        if (rc) return rc;
    }
    return 0;
}
