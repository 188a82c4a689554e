/* grammar_calls.c: tool calls as a grammar, for answers that must be one.
 *
 * XML: <tool_call>\n<function=NAME>\n(<parameter=KEY>\nVALUE\n</parameter>\n)*</function>\n</tool_call>. The
 * parameters are the properties of an object under the tool's schema, in any order. A text stands as it
 * is, other types are JSON; chat_types.h says which is which. */
#include <string.h>

#include "text/grammar/grammar_schema_impl.h"

enum { GRAMMAR_MAX_CALL_TOOLS = 256 };

static uint32_t literal(struct schema *s, const char *text, uint32_t next) {
    return grammar_add_literal(&s->b, text, strlen(text), next);
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
        uint32_t at = literal(s, "</function>\n</tool_call>", next);
        at = grammar_add_byte(&s->b, '>', grammar_add_call(&s->b, schema_params_rule(s), at));
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
