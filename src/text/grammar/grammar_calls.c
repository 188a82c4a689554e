/* grammar_calls.c: a grammar for tool calls, for answers that must be calls or have begun one.
 *
 * With tags: <tool_call>\n<function=NAME>\n(<parameter=KEY>\nVALUE\n</parameter>\n)*</function>\n</tool_call>. The
 * parameters are the properties of an object under the tool's schema, in any order. All forms of a grammar that
 * have tags must have the same tags. */
#include <string.h>

#include "base/mem.h"
#include "text/grammar/grammar_schema_impl.h"

struct call_rules {   /* rules for the arguments of one tool; GRAMMAR_NONE until they are needed */
    const char *name; /* view */
    const json_t *schema;
    uint32_t json, tags;
};

static uint32_t literal(struct schema *s, const char *text, uint32_t next) {
    return grammar_add_literal(&s->b, text, strlen(text), next);
}

/* Returns the rule for a tool's arguments; it is built when first needed. */
static uint32_t arguments(struct schema *s, struct call_rules *t, const struct grammar_tags *tags) {
    uint32_t *rule = tags ? &t->tags : &t->json;
    if (tags) s->tags = tags;
    if (*rule == GRAMMAR_NONE) *rule = schema_args_rule(s, t->schema, tags != NULL);
    if (s->b.rc && s->b.e) err_prefix(s->b.e, "%s", t->name);
    return *rule;
}

/* Adds a block of calls in this form, followed by `next`. */
static uint32_t block(struct schema *s, const struct grammar_calls *c,
                      const struct grammar_call_form *f, struct call_rules *tools, uint32_t n,
                      uint32_t next) {
    struct grammar_builder *b = &s->b;
    struct grammar_vec to = {NULL, 0, 0};
    uint32_t start = grammar_reserve(b), after = literal(s, f->close, next);
    if (c->many && f->between) {
        uint32_t either[2] = {after, literal(s, f->between, start)};
        after = grammar_add_alt(b, either, 2);
    }
    after = literal(s, f->end, after);
    for (uint32_t i = 0; i < n && !b->rc; i++) {
        uint32_t rule = arguments(s, &tools[i], f->tags);
        if (b->rc) break;
        uint32_t at = literal(s, f->middle, grammar_add_call(b, rule, after));
        schema_push_node(s, &to, literal(s, f->open, literal(s, tools[i].name, at)));
    }
    if (!b->rc) grammar_define_alt(b, start, to.p, to.n);
    mem_free(to.p);
    return literal(s, f->mark, literal(s, f->head, start));
}

/* Adds the tools that may be called. */
static uint32_t list_tools(struct schema *s, const struct grammar_calls *c,
                           struct call_rules *out) {
    uint32_t n = 0;
    size_t i;
    json_t *tool;
    json_array_foreach(c->tools, i, tool) {
        const json_t *f = json_object_get(tool, "function");
        const char *name = json_string_value(json_object_get(f, "name"));
        const json_t *schema = json_object_get(f, "parameters");
        if (c->only && (!name || strcmp(name, c->only) != 0)) continue;
        if (!name || !json_is_object(schema)) {
            grammar_fail(&s->b, CHIMERE_EFORMAT, "expected a name and a schema");
            return 0;
        }
        out[n++] = (struct call_rules){name, schema, GRAMMAR_NONE, GRAMMAR_NONE};
    }
    return n;
}

static uint32_t emit(struct schema *s, void *arg) {
    const struct grammar_calls *c = arg;
    struct grammar_builder *b = &s->b;
    struct grammar_vec to = {NULL, 0, 0};
    uint32_t rule = grammar_add_rule(b), start = grammar_reserve(b), after = b->ret;
    struct call_rules *tools = mem_alloc_array(json_array_size(c->tools) + 1, sizeof *tools);
    if (!tools) grammar_nomem(b);
    uint32_t n = tools ? list_tools(s, c, tools) : 0;
    if (c->again) {
        uint32_t next[2] = {literal(s, c->again, start), b->ret};
        after = grammar_add_alt(b, next, 2);
    }
    for (size_t i = 0; i < c->n_form && !b->rc; i++)
        schema_push_node(s, &to, block(s, c, &c->forms[i], tools, n, after));
    if (!b->rc) {
        grammar_define_alt(b, start, to.p, to.n);
        grammar_set_entry(b, rule, start);
    }
    mem_free(to.p), mem_free(tools);
    return rule;
}

int grammar_from_calls(struct grammar **out, const struct grammar_calls *c,
                       const struct grammar_limits *lim, struct err *e) {
    return schema_build(out, emit, (void *)c, lim, e);
}
