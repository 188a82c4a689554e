#include "tools/tool.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "tools/calc.h"
#include "text/chat/chat.h"

struct tool_set {
    struct tool *v; /* owned */
    size_t n;
};

json_t *tool_spec(const char *name, const char *about, const char *parameters) {
    json_t *p = json_loads(parameters, 0, NULL);
    return p ? json_pack("{s:s, s:{s:s, s:s, s:o}}", "type", "function", "function", "name", name,
                         "description", about, "parameters", p)
             : NULL;
}

static int run_calculator(void *ud, const json_t *args, struct tool_env *env, struct buf *out,
                          struct err *e) {
    (void)ud, (void)env;
    const char *text = json_string_value(json_object_get(args, "expression"));
    struct calc_value v;
    int rc = calc_eval(&v, text, strlen(text), e);
    if (rc) return rc;
    buf_printf(out, "%s = ", text);
    calc_write(out, &v);
    return 0;
}

int tool_add(struct tool_set *s, const struct tool *t, struct err *e) {
    int rc = 0;
    if (!t->spec) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    else if (tool_find(s, t->name))
        rc = err_set(e, CHIMERE_EINVAL, "tool \"%s\" occurs twice", t->name);
    else if (s->n == TOOL_MAX) rc = err_set(e, CHIMERE_ELIMIT, "more than %d tools", TOOL_MAX);
    if (rc) {
        json_decref(t->spec);
        if (t->free) t->free(t->ud);
        return rc;
    }
    s->v[s->n++] = *t;
    return 0;
}

int tool_set_new(struct tool_set **out, struct err *e) {
    *out = NULL;
    struct tool_set *s = mem_zalloc(sizeof *s);
    if (!s || !(s->v = mem_alloc_array(TOOL_MAX, sizeof *s->v))) {
        mem_free(s);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    struct tool calculator = {
        .name = "calculator",
        .deadline_ms = 1000,
        .spec =
            tool_spec("calculator", "Calculator.",
                      "{\"type\":\"object\",\"properties\":{\"expression\":{\"type\":\"string\","
                      "\"description\":\"The expression to evaluate\"}},"
                      "\"required\":[\"expression\"]}"),
        .run = run_calculator};
    int rc = tool_add(s, &calculator, e);
    if (rc) tool_set_free(s);
    else *out = s;
    return rc;
}

void tool_set_free(struct tool_set *s) {
    if (!s) return;
    for (size_t i = 0; i < s->n; ++i) {
        json_decref(s->v[i].spec);
        if (s->v[i].free) s->v[i].free(s->v[i].ud);
    }
    mem_free(s->v);
    mem_free(s);
}

const struct tool *tool_find(const struct tool_set *s, const char *name) {
    for (size_t i = 0; i < s->n; ++i)
        if (!strcmp(s->v[i].name, name)) return &s->v[i];
    return NULL;
}

const struct tool *tool_at(const struct tool_set *s, size_t i) {
    return i < s->n ? &s->v[i] : NULL;
}

static bool is_confirmed(const struct tool *t, const struct tool_env *env) {
    for (size_t i = 0; i < env->n_confirmed; ++i)
        if (!strcmp(env->confirmed[i], t->name)) return true;
    return false;
}

/* Returns true if the tool may run without confirmation. After untrusted text, a tool with an effect may not: a
 * confined tool needs the user's confirmation, and a tool that sends data is refused. After files of the root, only
 * tools may run whose effect is confined and does not outlive the request. */
static bool is_safe(const struct tool *t, const struct tool_env *env) {
    if (!(t->flags & (TOOL_EFFECT | TOOL_SENDS))) return true;
    if (!env->tainted && !env->tainted_local) return true;
    return !env->tainted && t->flags & TOOL_CONFINED && !(t->flags & (TOOL_SENDS | TOOL_PERSISTS));
}

bool tool_needs_confirmation(const struct tool *t, const struct tool_env *env) {
    return !is_safe(t, env) && t->flags & TOOL_CONFINED && !(t->flags & TOOL_SENDS) &&
           !is_confirmed(t, env);
}

bool tool_allowed(const struct tool *t, const struct tool_env *env, struct err *e) {
    bool confined = t->flags & TOOL_CONFINED && !(t->flags & TOOL_SENDS);
    if (is_safe(t, env) || (confined && is_confirmed(t, env))) return true;
    err_set(e, CHIMERE_EREFUSED,
            "%s may not be used in this conversation any more%s: it contains text from documents, "
            "pages or tools",
            t->name, confined ? " unless the user confirms it (odo.confirm)" : "");
    return false;
}

void tool_progress(void *ud, const char *bytes, size_t n) {
    const struct tool_env *env = ud;
    struct buf text;
    if (!env->progress) return;
    buf_init(&text, n + 1);
    for (size_t i = 0; i < n;) {
        int len = utf8_valid_len(bytes + i, n - i);
        bool good = len > 0 && bytes[i];
        buf_put(&text, good ? bytes + i : "?", good ? (size_t)len : 1);
        i += good ? (size_t)len : 1;
    }
    if (!text.failed) env->progress(env->ud, text.p, text.n);
    buf_fini(&text);
}

static bool has_type(const json_t *v, const char *type) {
    static const struct {
        const char *name;
        unsigned types;
    } names[] = {
        {"string", 1u << JSON_STRING},
        {"integer", 1u << JSON_INTEGER},
        {"number", 1u << JSON_INTEGER | 1u << JSON_REAL},
        {"boolean", 1u << JSON_TRUE | 1u << JSON_FALSE},
        {"array", 1u << JSON_ARRAY},
        {"object", 1u << JSON_OBJECT},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
        if (!strcmp(names[i].name, type)) return names[i].types >> json_typeof(v) & 1;
    return true;
}

/* Checks that required arguments are present and types match the schema. The tool checks the rest. */
static int check(const struct tool *t, const json_t *args, struct err *e) {
    const json_t *schema = json_object_get(json_object_get(t->spec, "function"), "parameters");
    const json_t *properties = json_object_get(schema, "properties"), *v;
    size_t i;
    json_t *name;
    json_array_foreach(json_object_get(schema, "required"), i, name) {
        if (!json_object_get(args, json_string_value(name)))
            return err_set(e, CHIMERE_EINVAL, "%s: argument \"%s\" is missing", t->name,
                           json_string_value(name));
    }
    const char *key;
    json_object_foreach((json_t *)args, key, v) {
        const json_t *p = json_object_get(properties, key);
        const char *type = json_string_value(json_object_get(p, "type"));
        if (type && !has_type(v, type))
            return err_set(e, CHIMERE_EINVAL, "%s: argument \"%.40s\": expected %s", t->name, key,
                           type);
    }
    return 0;
}

int tool_run(const struct tool *t, const char *args, struct tool_env *env, struct buf *out) {
    struct err e = {0};
    size_t from = out->n;
    json_t *a = chat_json_object(args, strlen(args), "arguments", &e);
    int rc = a ? check(t, a, &e) : e.code;
    if (!rc && !tool_allowed(t, env, &e)) rc = e.code;
    int64_t deadline = clock_ns() + (int64_t)t->deadline_ms * 1000000;
    struct tool_env own = *env;
    if (!own.deadline_ns || deadline < own.deadline_ns) own.deadline_ns = deadline;
    struct buf text;
    buf_init(&text, TOOL_MAX_OUTPUT);
    if (!rc) rc = t->run(t->ud, a, &own, &text, &e);
    env->tainted |= own.tainted; /* the tool may have read untrusted text */
    env->failed = own.failed;
    env->status = own.status;
    json_decref(a);
    if (!rc && text.failed)
        rc = err_set(&e, CHIMERE_ELIMIT, "%s: more than %d bytes of output", t->name,
                     TOOL_MAX_OUTPUT);
    if (!rc && !utf8_is_valid(text.n ? text.p : "", text.n))
        rc = err_set(&e, CHIMERE_EFORMAT, "%s: its output is no text", t->name);
    if (rc) {
        buf_cut(out, from);
        buf_printf(out, "error: %s", e.text[0] ? e.text : err_name(rc));
    } else {
        if (t->flags & TOOL_TAINTS) env->tainted = true;
        if (t->flags & TOOL_TAINTS_LOCAL) env->tainted_local = true;
        buf_put(out, text.n ? text.p : "", text.n);
    }
    buf_fini(&text);
    return rc;
}
