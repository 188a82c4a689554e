/* fields_tools.c: tools and tool_choice of every API.
 *
 * The model knows functions only. A custom tool becomes a function with one text, `input`; the tools of a namespace
 * become functions whose names begin with the namespace's. request.tool_forms stores how the client declared such a
 * tool, so that its calls are written in the same form. web_search becomes request.search if the server can search;
 * tools that only another server can run (computer_use, ...) are skipped. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"
#include "serve/fields/fields_impl.h"
#include "serve/fields/fields_tools.h"
#include "serve/api/json_out.h"
#include "serve/api/lark.h"

enum { MAX_NAME_BYTES = 128, MAX_GRAMMAR_BYTES = 256 << 10, MAX_INPUT_BYTES = 64 << 20 };

static int no_memory(struct err *e) { return err_set(e, CHIMERE_ENOMEM, "out of memory"); }

char *fields_flat_name(const char *space, const char *name) {
    struct buf b;
    buf_init(&b, MAX_NAME_BYTES + 1);
    buf_printf(&b, "%s%s%s", space, str_ends(space, "__") ? "" : "__", name);
    return buf_take(&b);
}

json_t *fields_custom_arguments(json_t *input) {
    struct buf b;
    buf_init(&b, MAX_INPUT_BYTES);
    buf_puts(&b, "{\"input\":");
    json_out_value(&b, input);
    buf_putc(&b, '}');
    json_t *text = b.failed ? NULL : json_stringn(b.p, b.n);
    buf_fini(&b);
    return text;
}

static json_t *text_schema(void) {
    return json_pack("{s:s,s:{s:{s:s}},s:[s],s:b}", "type", "object", "properties", "input", "type",
                     "string", "required", "input", "additionalProperties", 0);
}

static int add_tool(struct request *a, const char *where, const json_t *name,
                    const json_t *description, json_t *parameters, struct err *e) {
    if (!json_is_string(name) || !json_string_length(name) ||
        json_string_length(name) > MAX_NAME_BYTES)
        return err_set(e, CHIMERE_EINVAL, "%s.name: expected 1 to %d characters", where,
                       MAX_NAME_BYTES);
    if (description && !json_is_null(description) && !json_is_string(description))
        return err_set(e, CHIMERE_EINVAL, "%s.description: expected a text", where);
    if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
        return err_set(e, CHIMERE_EINVAL, "%s.parameters: expected a JSON schema", where);
    if (!a->tools) a->tools = json_array();
    if (json_array_size(a->tools) >= REQUEST_MAX_TOOLS)
        return err_set(e, CHIMERE_ELIMIT, "tools: expected at most %d", REQUEST_MAX_TOOLS);
    json_t *f = json_object(), *t = json_object();
    json_object_set(f, "name", (json_t *)name);
    if (json_is_string(description)) json_object_set(f, "description", (json_t *)description);
    if (json_is_object(parameters)) json_object_set(f, "parameters", parameters);
    else
        json_object_set_new(f, "parameters",
                            json_pack("{s:s,s:{}}", "type", "object", "properties"));
    json_object_set_new(t, "type", json_string("function"));
    json_object_set_new(t, "function", f);
    return json_array_append_new(a->tools, t) ? no_memory(e) : 0;
}

static int add_form(struct request *a, const char *name, json_t *form,
                    struct err *e) { /* takes form */
    if (!a->tool_forms) a->tool_forms = json_object();
    return json_object_set_new(a->tool_forms, name, form) ? no_memory(e) : 0;
}

/* ---- custom tools ---- */

/* Reads the pattern of a custom tool's text; *out is owned, NULL: any text. */
static int custom_pattern(const json_t *format, const char *where, char **out, struct err *e) {
    const char *type = json_string_value(json_object_get(format, "type"));
    const json_t *grammar = json_object_get(format, "grammar");
    *out = NULL;
    if (!format || json_is_null(format) || (type && strcmp(type, "text") == 0)) return 0;
    if (!type || strcmp(type, "grammar") != 0)
        return err_set(e, CHIMERE_EINVAL, "%s.format.type: expected text or grammar%s%.40s", where,
                       type ? ", got " : "", type ? type : "");
    if (!grammar) grammar = format; /* the chat API has an inner object */
    const char *syntax = json_string_value(json_object_get(grammar, "syntax"));
    const json_t *definition = json_object_get(grammar, "definition");
    size_t n = json_string_length(definition);
    if (!json_is_string(definition) || n > MAX_GRAMMAR_BYTES)
        return err_set(e, CHIMERE_EINVAL,
                       "%s.format.definition: expected a text of at most %d bytes", where,
                       MAX_GRAMMAR_BYTES);
    if (syntax && strcmp(syntax, "lark") == 0) {
        int rc = lark_pattern(json_string_value(definition), n, out, e);
        if (rc) err_prefix(e, "%s.format.definition", where);
        return rc;
    }
    if (!syntax || strcmp(syntax, "regex") != 0)
        return err_set(e, CHIMERE_EINVAL, "%s.format.syntax: expected lark or regex", where);
    struct buf b;
    buf_init(&b, MAX_GRAMMAR_BYTES + 16);
    buf_printf(&b, "^(?:%s)$", json_string_value(definition));
    *out = buf_take(&b);
    return *out ? 0 : no_memory(e);
}

static int add_custom(struct request *a, const json_t *t, const char *where, struct err *e) {
    const json_t *in = json_object_get(t, "custom");
    if (!in) in = t;
    char *pattern;
    int rc = custom_pattern(json_object_get(in, "format"), where, &pattern, e);
    if (rc) return rc;
    json_t *schema = text_schema();
    if (pattern)
        json_object_set_new(json_object_get(json_object_get(schema, "properties"), "input"),
                            "pattern", json_string(pattern));
    mem_free(pattern);
    rc = add_tool(a, where, json_object_get(in, "name"), json_object_get(in, "description"), schema,
                  e);
    json_decref(schema);
    if (rc) return rc;
    return add_form(a, json_string_value(json_object_get(in, "name")),
                    json_pack("{s:b}", "custom", 1), e);
}

/* ---- tools of other servers ---- */

static bool is_built_in(const char *type) {
    static const char *const families[] = {"web_search",
                                           "web_fetch",
                                           "file_search",
                                           "computer",
                                           "code_interpreter",
                                           "code_execution",
                                           "mcp",
                                           "local_shell",
                                           "image_generation",
                                           "tool_search",
                                           "text_editor_",
                                           "bash_",
                                           "memory_",
                                           "shell",
                                           "apply_patch",
                                           "advisor_",
                                           "browser",
                                           "programmatic_tool_calling",
                                           "hosted_"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (str_starts(type, families[i])) return true;
    return false;
}

static int leave_out(struct fields *f, const char *type, const char *name, struct err *e) {
    struct left_out *l = arena_alloc(&f->request->arena, sizeof *l);
    if (!l) return no_memory(e);
    *l = (struct left_out){
        arena_strndup(&f->request->arena, type, strnlen(type, MAX_NAME_BYTES)),
        name ? arena_strndup(&f->request->arena, name, strnlen(name, MAX_NAME_BYTES)) : NULL,
        f->left_out};
    f->left_out = l;
    return l->type ? 0 : no_memory(e);
}

int fields_search(struct fields *f, json_t *v, const char *name, struct err *e) {
    if (!json_is_object(v)) return fields_expected(e, name, "an object");
    if (!f->can_search) {
        err_set(e, CHIMERE_EUNSUPPORTED, "%s: this server has no source to search", name);
        err_hint(e, "start it with --searxng URL or --brave-key FILE");
        return CHIMERE_EUNSUPPORTED;
    }
    f->request->search = REQUEST_MAY_SEARCH;
    return 0;
}

/* ---- all tools ---- */

/* Reads {"type":"function","function":{..}}, the same without the inner object, or {"name", "input_schema"}. */
static int add_function(struct request *a, const json_t *t, const char *where, const char *space,
                        struct err *e) {
    const json_t *f = json_object_get(t, "function");
    char at[64];
    snprintf(at, sizeof at, "%.40s%s", where, f ? ".function" : "");
    if (!f) f = t;
    json_t *schema = json_object_get(f, "parameters"), *name = json_object_get(f, "name");
    if (!schema) schema = json_object_get(f, "input_schema");
    if (!space || !json_is_string(name))
        return add_tool(a, at, name, json_object_get(f, "description"), schema, e);
    char *flat = fields_flat_name(space, json_string_value(name));
    json_t *flat_name = flat ? json_string(flat) : NULL;
    int rc = flat_name ? add_tool(a, at, flat_name, json_object_get(f, "description"), schema, e)
                       : err_set(e, CHIMERE_EINVAL,
                                 "%s.name: with its namespace expected at most %d "
                                 "characters",
                                 at, MAX_NAME_BYTES);
    if (!rc) rc = add_form(a, flat, json_pack("{s:s,s:O}", "namespace", space, "name", name), e);
    json_decref(flat_name);
    mem_free(flat);
    return rc;
}

static int add_any(struct fields *f, const json_t *t, const char *where, const char *space,
                   struct err *e);

static int add_namespace(struct fields *f, const json_t *t, const char *where, struct err *e) {
    const char *name = json_string_value(json_object_get(t, "name"));
    const json_t *tools = json_object_get(t, "tools"), *one;
    size_t i;
    if (!name || !name[0]) return err_set(e, CHIMERE_EINVAL, "%s.name: expected a text", where);
    if (tools && !json_is_array(tools))
        return err_set(e, CHIMERE_EINVAL, "%s.tools: expected a list", where);
    json_array_foreach(tools, i, one) {
        char at[72];
        snprintf(at, sizeof at, "%.40s.tools[%zu]", where, i);
        int rc = add_any(f, one, at, name, e);
        if (rc) return rc;
    }
    return 0;
}

static int add_any(struct fields *f, const json_t *t, const char *where, const char *space,
                   struct err *e) {
    const char *type = json_string_value(json_object_get(t, "type"));
    bool has_schema = json_object_get(t, "input_schema") || json_object_get(t, "parameters");
    if (!json_is_object(t)) return err_set(e, CHIMERE_EINVAL, "%s: expected an object", where);
    if (!type || strcmp(type, "function") == 0) return add_function(f->request, t, where, space, e);
    if (strcmp(type, "custom") == 0 && has_schema)
        return add_function(f->request, t, where, space, e);
    if (strcmp(type, "custom") == 0) return add_custom(f->request, t, where, e);
    if (strcmp(type, "namespace") == 0 && !space) return add_namespace(f, t, where, e);
    if (is_built_in(type))
        return leave_out(f, type, json_string_value(json_object_get(t, "name")), e);
    return err_set(e, CHIMERE_EUNSUPPORTED,
                   "%s.type: expected function, custom or namespace, got %.60s", where, type);
}

int fields_tools(struct fields *f, json_t *tools, struct err *e) {
    size_t i;
    json_t *t;
    if (!json_is_array(tools)) return fields_expected(e, "tools", "a list");
    json_array_foreach(tools, i, t) {
        char where[40];
        snprintf(where, sizeof where, "tools[%zu]", i);
        int rc = add_any(f, t, where, NULL, e);
        if (rc) return rc;
    }
    return 0;
}

int fields_functions(struct fields *f, json_t *list, struct err *e) {
    size_t i;
    json_t *t;
    if (!json_is_array(list)) return fields_expected(e, "functions", "a list");
    f->old_calls = true;
    json_array_foreach(list, i, t) {
        char where[40];
        snprintf(where, sizeof where, "functions[%zu]", i);
        int rc = add_tool(f->request, where, json_object_get(t, "name"),
                          json_object_get(t, "description"), json_object_get(t, "parameters"), e);
        if (rc) return rc;
    }
    return 0;
}

/* ---- tool_choice ---- */

static int choose_mode(struct fields *f, const char *s) {
    static const struct {
        const char *name;
        enum request_tool_choice choice;
    } names[] = {{"auto", REQUEST_TOOLS_AUTO},
                 {"none", REQUEST_TOOLS_NONE},
                 {"required", REQUEST_TOOLS_REQUIRED},
                 {"any", REQUEST_TOOLS_REQUIRED}};
    for (size_t i = 0; s && i < 4; i++)
        if (strcmp(s, names[i].name) == 0) {
            f->request->tool_choice = names[i].choice;
            return 0;
        }
    return CHIMERE_EINVAL;
}

/* Returns the name in a choice or in an entry of the list of allowed tools; NULL: none. */
static const json_t *chosen_name(const json_t *v) {
    static const char *const inner[] = {"function", "custom"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *name = json_object_get(json_object_get(v, inner[i]), "name");
        if (name) return name;
    }
    const json_t *name = json_object_get(v, "name");
    return name ? name : json_object_get(v, "type"); /* {"type": "web_search"} */
}

/* {"type":"allowed_tools","mode","tools"}; in the chat API, mode and tools are in an inner object. */
static int choose_allowed(struct fields *f, json_t *v, struct err *e) {
    json_t *in = json_object_get(v, "allowed_tools");
    if (!in) in = v;
    f->allowed = json_object_get(in, "tools");
    if (choose_mode(f, json_string_value(json_object_get(in, "mode"))) ||
        !json_is_array(f->allowed))
        return fields_expected(e, "tool_choice.allowed_tools",
                               "a mode (auto or required) and a list of tools");
    return 0;
}

int fields_choice(struct fields *f, json_t *v, struct err *e) {
    const char *type = json_string_value(json_object_get(v, "type"));
    if (json_is_true(json_object_get(v, "disable_parallel_tool_use"))) f->request->one_call = true;
    if (!choose_mode(f, json_is_object(v) ? type : json_string_value(v))) return 0;
    if (type && strcmp(type, "allowed_tools") == 0) return choose_allowed(f, v, e);
    const json_t *name = chosen_name(v), *space = json_object_get(v, "namespace");
    if (!json_is_object(v) || !json_is_string(name))
        return fields_expected(e, "tool_choice", "auto, none, required or the name of a function");
    f->request->tool_choice = REQUEST_TOOLS_NAMED;
    if (!json_is_string(space))
        return fields_str(f, name, "tool_choice.function.name", MAX_NAME_BYTES,
                          &f->request->tool_name, e);
    char *flat = fields_flat_name(json_string_value(space), json_string_value(name));
    f->request->tool_name = flat ? arena_strndup(&f->request->arena, flat, strlen(flat)) : NULL;
    mem_free(flat);
    return f->request->tool_name ? 0 : fields_expected(e, "tool_choice.name", "a shorter text");
}

static const char *tool_name(const json_t *t) {
    return json_string_value(json_object_get(json_object_get(t, "function"), "name"));
}

static bool is_left_out(const struct left_out *l, const char *name) {
    return name && (!strcmp(name, l->type) || (l->name && !strcmp(name, l->name)));
}

/* Applies tool_choice to a built-in web_search. The web is searched first if the choice names it, or if a call is
 * required and there is no other tool. */
static void choose_search(struct fields *f) {
    struct request *a = f->request;
    const struct left_out *l = f->left_out;
    while (l && !str_starts(l->type, "web_search")) l = l->next;
    if (!l || !f->can_search || a->tool_choice == REQUEST_TOOLS_NONE) return;
    bool allowed = !f->allowed;
    const json_t *one;
    size_t i;
    json_array_foreach(f->allowed, i, one) allowed |=
        is_left_out(l, json_string_value(chosen_name(one)));
    if (!allowed) return;
    a->search = REQUEST_MAY_SEARCH;
    bool named = a->tool_choice == REQUEST_TOOLS_NAMED && is_left_out(l, a->tool_name),
         only = a->tool_choice == REQUEST_TOOLS_REQUIRED && !json_array_size(a->tools);
    if (!named && !only) return;
    a->search = REQUEST_SEARCH_FIRST;
    a->tool_choice = REQUEST_TOOLS_AUTO;
    a->tool_name = NULL;
}

/* Removes the tools that are not in the list of allowed tools. */
static void keep_allowed(struct request *a, const json_t *allowed) {
    for (size_t i = json_array_size(a->tools); i-- > 0;) {
        const char *name = tool_name(json_array_get(a->tools, i));
        const json_t *one;
        bool keep = false;
        size_t k;
        json_array_foreach(allowed, k, one) {
            const char *want = json_string_value(chosen_name(one));
            keep |= want && strcmp(want, name) == 0;
        }
        if (!keep) json_array_remove(a->tools, i);
    }
}

int fields_check_choice(struct fields *f, struct err *e) {
    struct request *a = f->request;
    json_t *t;
    size_t i;
    if (f->allowed) keep_allowed(a, f->allowed);
    choose_search(f);
    if (a->tool_choice != REQUEST_TOOLS_NAMED && a->tool_choice != REQUEST_TOOLS_REQUIRED) return 0;
    bool found = a->tool_choice == REQUEST_TOOLS_REQUIRED && json_array_size(a->tools);
    json_array_foreach(a->tools, i, t) found |= a->tool_name && !strcmp(tool_name(t), a->tool_name);
    for (const struct left_out *l = f->left_out; l && !found; l = l->next)
        if (is_left_out(l, a->tool_name))
            return err_set(e, CHIMERE_EUNSUPPORTED, "tool_choice: this server cannot run %.80s",
                           l->type);
    if (!found)
        return err_set(e, CHIMERE_EINVAL, "tool_choice: expected a function of tools%s%.80s",
                       a->tool_name ? ", got " : "", a->tool_name ? a->tool_name : "");
    /* the answer will be a call, so the text format has no effect */
    a->format = REQUEST_TEXT;
    return 0;
}
