/* grammar_calls.c: tool calls as a grammar, for answers that must be one.
 *
 * XML: <tool_call>\n<function=NAME>\n(<parameter=KEY>\nVALUE\n</parameter>\n)*</function>\n</tool_call>, the
 * parameters in the order of the schema, those that are not required left out at will. A text value is
 * any text up to its end mark; other types are JSON by their schema. */
#include <string.h>

#include "text/grammar/grammar_schema_impl.h"

enum { GRAMMAR_MAX_CALL_PARAMS = 256, GRAMMAR_MAX_CALL_TOOLS = 256 };

static uint32_t literal(struct schema *s, const char *text, uint32_t next) {
    return grammar_add_literal(&s->b, text, strlen(text), next);
}

/* Any bytes up to the first `end`, then next: the states of Knuth, Morris and Pratt as nodes. */
static uint32_t text_until(struct schema *s, const char *end, uint32_t next) {
    enum { MAX_END = 32 };
    uint32_t state[MAX_END];
    size_t n = strlen(end), fail[MAX_END] = {0};
    for (size_t i = 1, k = 0; i < n; i++) {
        while (k && end[i] != end[k]) k = fail[k - 1];
        if (end[i] == end[k]) k++;
        fail[i] = k;
    }
    for (size_t i = 0; i < n; i++) state[i] = grammar_reserve(&s->b);
    for (size_t i = 0; i < n && !s->b.rc; i++) {
        struct grammar_edge e[256];
        uint32_t n_edge = 0;
        for (int c = 0; c < 256; c++) {
            size_t k = i;
            while (k && (unsigned char)end[k] != c) k = fail[k - 1];
            if ((unsigned char)end[k] == c) k++;
            uint32_t to = k == n ? next : state[k];
            if (n_edge && e[n_edge - 1].to == to && e[n_edge - 1].hi == c - 1)
                e[n_edge - 1].hi = (uint8_t)c;
            else e[n_edge++] = (struct grammar_edge){(uint8_t)c, (uint8_t)c, 0, to};
        }
        grammar_define_bytes(&s->b, state[i], e, n_edge, GRAMMAR_NONE);
    }
    return state[0];
}

static bool is_text(const json_t *schema) {
    const json_t *type = json_object_get(schema, "type"), *t;
    size_t i;
    if (json_object_get(schema, "enum") || json_object_get(schema, "const")) return false;
    if (json_is_string(type)) return strcmp(json_string_value(type), "string") == 0;
    if (!type)
        return !json_object_get(schema, "anyOf") && !json_object_get(schema, "oneOf") &&
               !json_object_get(schema, "allOf");
    json_array_foreach(type, i, t) if (json_is_string(t) &&
                                       strcmp(json_string_value(t), "string") == 0) return true;
    return false;
}

/* The texts of an enumeration of nothing but texts; NULL: it is none. */
static const json_t *texts_of(const json_t *schema) {
    const json_t *list = json_object_get(schema, "enum"), *v;
    size_t i;
    json_array_foreach(list, i, v) if (!json_is_string(v)) return NULL;
    return json_array_size(list) && json_array_size(list) <= 256 ? list : NULL;
}

static uint32_t one_value(struct schema *s, const json_t *schema, uint32_t next) {
    static const char end[] = "\n</parameter>\n";
    const json_t *real = schema, *texts, *v;
    for (int i = 0; i < 16 && json_object_get(real, "$ref") && !s->b.rc; i++)
        real = schema_resolve(s, real);
    if (s->b.rc) return 0;
    if (is_text(real)) return text_until(s, end, next);
    uint32_t after = literal(s, end, next);
    if ((texts = texts_of(real))) {
        uint32_t to[256], n = 0;
        size_t i;
        json_array_foreach(texts, i, v) to[n++] =
            grammar_add_literal(&s->b, json_string_value(v), json_string_length(v), after);
        return grammar_add_alt(&s->b, to, n);
    }
    struct literal one = {schema, 0};
    uint32_t rule = schema_rule(s, &one, 1);
    schema_emit_jobs(s);
    return grammar_add_call(&s->b, rule, after);
}

static bool is_required(const json_t *schema, const char *key) {
    const json_t *v;
    size_t i;
    json_array_foreach(json_object_get(schema, "required"), i,
                       v) if (json_is_string(v) &&
                              strcmp(json_string_value(v), key) == 0) return true;
    return false;
}

/* Parameters from the k-th on, then next. */
static uint32_t parameters(struct schema *s, const json_t *schema, uint32_t next) {
    json_t *props = json_object_get(schema, "properties"), *v;
    const char *keys[GRAMMAR_MAX_CALL_PARAMS];
    size_t n = 0;
    const char *key;
    json_object_foreach(props, key, v) {
        if (n == GRAMMAR_MAX_CALL_PARAMS) {
            grammar_fail(&s->b, CHIMERE_ELIMIT, "tools: expected at most %d parameters",
                         GRAMMAR_MAX_CALL_PARAMS);
            return 0;
        }
        keys[n++] = key;
    }
    while (n-- > 0 && !s->b.rc) {
        uint32_t value = one_value(s, json_object_get(props, keys[n]), next);
        uint32_t open = literal(s, ">\n", value);
        open = literal(s, keys[n], open);
        open = literal(s, "<parameter=", open);
        uint32_t to[2] = {open, next};
        next = is_required(schema, keys[n]) ? open : grammar_add_alt(&s->b, to, 2);
    }
    return next;
}

static uint32_t one_call(struct schema *s, const struct grammar_calls *c, const json_t *tool,
                         uint32_t next) {
    const json_t *f = json_object_get(tool, "function");
    const char *name = json_string_value(json_object_get(f, "name"));
    const json_t *schema = json_object_get(f, "parameters");
    if (!name || !json_is_object(schema)) {
        grammar_fail(&s->b, CHIMERE_EFORMAT, "tools: expected a name and a schema");
        return 0;
    }
    if (c->xml) {
        if (!schema_set_root(s, schema)) return 0;
        schema = s->root;
        uint32_t at = literal(s, "</function>\n</tool_call>", next);
        at = literal(s, ">\n", parameters(s, schema, at));
        return literal(s, "<tool_call>\n<function=", literal(s, name, at));
    }
    uint32_t value = schema_root_rule(s, schema);
    if (s->b.rc) return 0;
    uint32_t at = grammar_add_call(&s->b, value, literal(s, c->close, next));
    return literal(s, c->open, literal(s, name, literal(s, c->middle, at)));
}

static uint32_t emit(struct schema *s, void *arg) {
    const struct grammar_calls *c = arg;
    struct grammar_builder *b = &s->b;
    uint32_t rule = grammar_add_rule(b), start = grammar_reserve(b), to[GRAMMAR_MAX_CALL_TOOLS],
             n = 0;
    uint32_t after = b->ret;
    if (c->many) {
        uint32_t next[2] = {literal(s, "\n", start), b->ret};
        after = grammar_add_alt(b, next, 2);
    }
    size_t i;
    json_t *tool;
    json_array_foreach(c->tools, i, tool) {
        const char *name =
            json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
        if (b->rc || n == GRAMMAR_MAX_CALL_TOOLS) break;
        if (c->only && (!name || strcmp(name, c->only) != 0)) continue;
        to[n++] = one_call(s, c, tool, after);
        if (b->rc && b->e && name) err_prefix(b->e, "%s", name);
    }
    if (b->rc) return 0;
    grammar_define_alt(b, start, to, n);
    grammar_set_entry(b, rule, start);
    return rule;
}

int grammar_from_calls(struct grammar **out, const struct grammar_calls *c,
                       const struct grammar_limits *lim, struct err *e) {
    return schema_build(out, emit, (void *)c, lim, e);
}
