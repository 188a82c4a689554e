/* fields_messages.c: tools and messages as OpenAI's chat API writes them. */
#include <stdio.h>
#include <string.h>

#include "serve/fields.h"

enum { MAX_NAME_BYTES = 128 };

int fields_add_tool(struct ask *a, const char *where, const json_t *name, const json_t *description,
                    json_t *parameters, struct err *e) {
    if (!json_is_string(name) || !json_string_length(name) ||
        json_string_length(name) > MAX_NAME_BYTES)
        return err_set(e, CHIMERE_EINVAL, "%s.name: expected 1 to %d characters", where,
                       MAX_NAME_BYTES);
    if (description && !json_is_null(description) && !json_is_string(description))
        return err_set(e, CHIMERE_EINVAL, "%s.description: expected a text", where);
    if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
        return err_set(e, CHIMERE_EINVAL, "%s.parameters: expected a JSON schema", where);
    if (!a->tools) a->tools = json_array();
    if (json_array_size(a->tools) >= ASK_MAX_TOOLS)
        return err_set(e, CHIMERE_ELIMIT, "tools: expected at most %d", ASK_MAX_TOOLS);
    json_t *f = json_object(), *t = json_object();
    json_object_set(f, "name", (json_t *)name);
    if (json_is_string(description)) json_object_set(f, "description", (json_t *)description);
    if (json_is_object(parameters)) json_object_set(f, "parameters", parameters);
    else
        json_object_set_new(f, "parameters",
                            json_pack("{s:s,s:{}}", "type", "object", "properties"));
    json_object_set_new(t, "type", json_string("function"));
    json_object_set_new(t, "function", f);
    return json_array_append_new(a->tools, t) ? err_set(e, CHIMERE_ENOMEM, "out of memory") : 0;
}

/* All three APIs: {"type":"function","function":{..}}, the same without the inner object, and
 * {"name", "description", "input_schema"}. */
int fields_tools(struct ask *a, json_t *tools, struct err *e) {
    size_t i;
    json_t *t;
    if (!json_is_array(tools)) return err_set(e, CHIMERE_EINVAL, "tools: expected a list");
    json_array_foreach(tools, i, t) {
        char where[40];
        snprintf(where, sizeof where, "tools[%zu]", i);
        const char *type = json_string_value(json_object_get(t, "type"));
        if (!json_is_object(t)) return err_set(e, CHIMERE_EINVAL, "%s: expected an object", where);
        if (type && strcmp(type, "function") != 0 && strcmp(type, "custom") != 0)
            return err_set(e, CHIMERE_EUNSUPPORTED, "%s.type: expected function, got %.60s", where,
                           type);
        json_t *f = json_object_get(t, "function");
        if (!f) f = t;
        else snprintf(where, sizeof where, "tools[%zu].function", i);
        json_t *schema = json_object_get(f, "parameters");
        if (!schema) schema = json_object_get(f, "input_schema");
        int rc = fields_add_tool(a, where, json_object_get(f, "name"),
                                 json_object_get(f, "description"), schema, e);
        if (rc) return rc;
    }
    return 0;
}

static int text_part(const json_t *p, const char *where, json_t *out, struct err *e) {
    const char *type = json_string_value(json_object_get(p, "type"));
    json_t *text = json_object_get(p, "text");
    if (json_is_string(p)) text = (json_t *)p;
    else if (!type) return err_set(e, CHIMERE_EINVAL, "%s.type: expected text", where);
    else if (strcmp(type, "refusal") == 0) text = json_object_get(p, "refusal");
    else if (strcmp(type, "text") != 0 && strcmp(type, "input_text") != 0 &&
             strcmp(type, "output_text") != 0)
        return err_set(e, CHIMERE_EUNSUPPORTED,
                       "%s.type: expected text, got %.60s; this model reads text only", where,
                       type);
    if (!json_is_string(text)) return err_set(e, CHIMERE_EINVAL, "%s.text: expected a text", where);
    json_t *part = json_object();
    json_object_set_new(part, "type", json_string("text"));
    json_object_set(part, "text", text);
    return json_array_append_new(out, part) ? err_set(e, CHIMERE_ENOMEM, "out of memory") : 0;
}

int fields_text(const json_t *content, const char *where, json_t **out, struct err *e) {
    size_t i;
    json_t *p;
    *out = NULL;
    if (json_is_string(content)) {
        *out = json_incref((json_t *)content);
        return 0;
    }
    if (!json_is_array(content))
        return err_set(e, CHIMERE_EINVAL, "%s: expected a text or a list of parts", where);
    if (json_array_size(content) > FIELDS_MAX_PARTS)
        return err_set(e, CHIMERE_ELIMIT, "%s: expected at most %d parts", where, FIELDS_MAX_PARTS);
    json_t *parts = json_array();
    json_array_foreach(content, i, p) {
        char at[128];
        snprintf(at, sizeof at, "%.100s[%zu]", where, i);
        int rc = text_part(p, at, parts, e);
        if (rc) {
            json_decref(parts);
            return rc;
        }
    }
    *out = json_array_size(parts) == 1
               ? json_incref(json_object_get(json_array_get(parts, 0), "text"))
               : json_incref(parts);
    json_decref(parts);
    return 0;
}

static int check_calls(const json_t *calls, const char *where, json_t *out, struct err *e) {
    size_t i;
    json_t *c;
    if (!json_is_array(calls))
        return err_set(e, CHIMERE_EINVAL, "%s.tool_calls: expected a list", where);
    json_t *list = json_array();
    json_object_set_new(out, "tool_calls", list);
    json_array_foreach(calls, i, c) {
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
    bool may_lack = strcmp(role, "assistant") == 0;
    if (content && !json_is_null(content)) {
        json_t *text;
        int rc = fields_text(content, at, &text, e);
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
    return calls && !json_is_null(calls) ? check_calls(calls, where, out, e) : 0;
}

int fields_messages(struct ask *a, json_t *messages, struct err *e) {
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
