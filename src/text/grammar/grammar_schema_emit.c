/* grammar_schema_emit.c: converts cases to rules of the automaton.
 *
 * Each string, array and object is a separate rule, because its frames may have a count or a set of properties.
 * Objects accept their properties in any order: every property has a branch that is open while the frame has not
 * seen it, and there is one branch per class of unnamed properties. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/chat/chat_types.h"
#include "text/grammar/grammar_case_impl.h"

#define MAX_NAME_CLASS 256   /* classes into which patternProperties divides names */
#define MAX_PLAIN_ITEMS 4096 /* items of an array without a bound, with limits.plain */

struct job {
    uint32_t rule, first, n; /* literals in s->sets */
};

/* How a conjunction is written: as JSON, as the arguments of a call in JSON or as its parameters in XML, or as the
 * value of a parameter. Stored in the set of literals as a literal without a schema. */
enum {
    WRITE_JSON = 0,
    WRITE_VALUE = 1 << 8 /* | types */,
    WRITE_PARAMS = 1 << 9,
    WRITE_ARGS = 1 << 10
};

static uint32_t call(struct schema *s, uint32_t rule, uint32_t next) {
    return grammar_add_call(&s->b, rule, next);
}

/* Optional whitespace, then next. */
static uint32_t space(struct schema *s, uint32_t next) { return call(s, s->space, next); }

/* Optional whitespace that plain texts do not have. */
static uint32_t odd_space(struct schema *s, uint32_t next) {
    return s->b.lim.plain ? next : space(s, next);
}

/* The end of a value after an element, where odd_space allowed no whitespace. Plain texts may have the end on its
 * own line. The caller must check first whether the end is allowed, because whitespace before an end that is not
 * allowed could not be undone. */
static uint32_t spaced_end(struct schema *s, uint32_t end) {
    return s->b.lim.plain ? space(s, end) : end;
}

static uint32_t colon(struct schema *s, uint32_t next) {
    struct grammar_builder *b = &s->b;
    if (!b->lim.plain) return space(s, grammar_add_byte(b, ':', space(s, next)));
    uint32_t to[2] = {grammar_add_byte(b, ' ', next), next};
    return grammar_add_byte(b, ':', grammar_add_alt(b, to, 2));
}

void schema_push_node(struct schema *s, struct grammar_vec *v, uint32_t node) {
    uint32_t i = grammar_vec_add(&s->b, v, 1, sizeof node, "alternatives", UINT32_MAX);
    if (i != GRAMMAR_NONE) ((uint32_t *)v->p)[i] = node;
}

void schema_emit_prelude(struct schema *s) {
    struct grammar_builder *b = &s->b;
    schema_emit_free_string(s);
    uint32_t node = b->ret;
    for (uint32_t i = b->lim.plain; i < b->lim.space && !b->rc; i++) {
        struct grammar_edge e[4] = {{'\t', '\t', 0, node},
                                    {' ', ' ', 0, node},
                                    {'\n', '\n', 0, node},
                                    {'\r', '\r', 0, node}};
        uint32_t to[2] = {grammar_add_bytes(b, e, b->lim.plain ? 2 : 4), b->ret};
        node = grammar_add_alt(b, to, 2);
    }
    if (b->lim.plain) { /* the nodes so far are the indent after a line end */
        struct grammar_edge e[2] = {{'\n', '\n', 0, node}, {' ', ' ', 0, b->ret}};
        uint32_t to[2] = {grammar_add_bytes(b, e, 2), b->ret};
        node = grammar_add_alt(b, to, 2);
    }
    s->space = grammar_add_rule(b);
    grammar_set_entry(b, s->space, node);
}

/* ---- arrays ---- */

/* The positions of an array with `contains`: one node per position and number of matching items. */
struct containing {
    struct schema *s;
    const struct item *items;
    uint32_t n;
    const json_t *contains;
    const struct type_facts *facts;
    /* limits of the number of matching items; max UINT32_MAX: no limit */
    uint32_t min, max;
    uint32_t n_place, n_match; /* nodes: positions 0..n_place with 0..n_match matches each */
    uint32_t *nodes;           /* owned [(n_place + 1) * (n_match + 1)] */
};

/* Emits an item at `place` that matches (negate: does not match; neither: any item), followed by the node of the
 * next position. */
static void containing_item(struct containing *c, uint32_t place, uint32_t match, bool matches,
                            bool negate, struct grammar_vec *to) {
    struct grammar_vec lits = {NULL, 0, 0};
    struct schema *s = c->s;
    uint32_t after = place < c->n_place ? place + 1 : place;
    if (matches && match < c->n_match) match++;
    case_item_literals(s, c->items, c->n, place, &lits);
    if (matches || negate) literal_push(s, &lits, c->contains, negate);
    uint32_t rule = schema_rule(s, lits.p, lits.n);
    uint32_t next = odd_space(s, c->nodes[after * (c->n_match + 1) + match]);
    uint32_t item = call(s, rule, next);
    schema_push_node(s, to, place ? grammar_add_byte(&s->b, ',', space(s, item)) : item);
    mem_free(lits.p);
}

static void containing_place(struct containing *c, uint32_t place, uint32_t match) {
    struct schema *s = c->s;
    struct grammar_vec to = {NULL, 0, 0};
    uint32_t close = grammar_add_byte(&s->b, ']', s->b.ret);
    if (place >= c->facts->min_items && match >= c->min)
        schema_push_node(s, &to, place ? spaced_end(s, close) : close);
    if (place < c->facts->max_items) {
        if (c->max == UINT32_MAX) { /* it is harmless to count fewer matches than there are */
            if (match < c->n_match) containing_item(c, place, match, true, false, &to);
            containing_item(c, place, match, false, false, &to);
        } else {
            if (match < c->max) containing_item(c, place, match, true, false, &to);
            containing_item(c, place, match, false, true, &to);
        }
    }
    if (!s->b.rc) grammar_define_alt(&s->b, c->nodes[place * (c->n_match + 1) + match], to.p, to.n);
    mem_free(to.p);
}

static uint32_t emit_containing(struct schema *s, const struct item *items, uint32_t n,
                                const struct type_facts *f, const json_t *holder) {
    struct containing c = {.s = s, .items = items, .n = n, .facts = f, .min = 1, .max = UINT32_MAX};
    const json_t *min = json_object_get(holder, "minContains");
    const json_t *max = json_object_get(holder, "maxContains");
    uint32_t rule = grammar_add_rule(&s->b), n_prefix = case_n_prefix(s, items, n);
    c.contains = json_object_get(holder, "contains");
    if (min) schema_count(min, &c.min);
    if (max) schema_count(max, &c.max);
    c.n_match = max ? c.max : c.min;
    c.n_place = f->min_items > n_prefix ? f->min_items : n_prefix;
    if (!c.n_place) c.n_place = 1; /* every item except the first follows a comma */
    if (f->max_items != UINT32_MAX) c.n_place = f->max_items;
    if (f->min_items > f->max_items || s->b.rc) return rule;
    if (c.n_place > SCHEMA_MAX_PLACE || c.n_match > SCHEMA_MAX_PLACE ||
        (c.n_place + 1) * (c.n_match + 1) > SCHEMA_MAX_PLACE) {
        schema_refuse(s, CHIMERE_EUNSUPPORTED, holder, "contains",
                      "not supported beside such large bounds");
        return rule;
    }
    uint32_t n_node = (c.n_place + 1) * (c.n_match + 1);
    c.nodes = mem_alloc_array(n_node, sizeof *c.nodes);
    if (!c.nodes) grammar_nomem(&s->b);
    for (uint32_t i = 0; i < n_node && !s->b.rc; i++) c.nodes[i] = grammar_reserve(&s->b);
    for (uint32_t i = 0; i < n_node && !s->b.rc; i++)
        containing_place(&c, i / (c.n_match + 1), i % (c.n_match + 1));
    if (!s->b.rc)
        grammar_set_entry(&s->b, rule, grammar_add_byte(&s->b, '[', space(s, c.nodes[0])));
    mem_free(c.nodes);
    return rule;
}

/* Emits an array of distinct items out of `values`: the frame stores seen items like the properties of an object. */
static uint32_t emit_distinct(struct schema *s, const struct item *items, uint32_t n,
                              const struct type_facts *f, const json_t *values) {
    struct grammar_builder *b = &s->b;
    uint32_t rule = grammar_add_rule(b), n_value = (uint32_t)json_array_size(values);
    struct grammar_vec lits = {NULL, 0, 0}, rules = {NULL, 0, 0}, to = {NULL, 0, 0};
    bool *required = mem_zalloc((size_t)n_value + 1);
    if (!required) grammar_nomem(b);
    for (uint32_t i = 0; i < n_value && !b->rc; i++) {
        lits.n = 0;
        case_item_literals(s, items, n, 0, &lits);
        literal_push(s, &lits, json_array_get(values, i), false);
        schema_push_node(s, &rules, schema_rule(s, lits.p, lits.n));
    }
    uint32_t object = b->rc ? 0
                            : grammar_add_object(b, rules.p, required, n_value, NULL, 0,
                                                 f->min_items, f->max_items);
    uint32_t item = grammar_reserve(b), close = grammar_add_byte(b, ']', b->ret);
    uint32_t end = grammar_add_node(b, G_CLOSE, 0, close, object);
    uint32_t comma = grammar_add_byte(b, ',', space(s, item));
    uint32_t after[2] = {grammar_add_node(b, G_CLOSE, 0, spaced_end(s, close), object),
                         grammar_add_node(b, G_MORE, 0, comma, object)};
    uint32_t next = grammar_add_alt(b, after, 2);
    for (uint32_t i = 0; i < n_value && !b->rc; i++) {
        uint32_t take = grammar_add_node(b, G_TAKE, i, odd_space(s, next), object);
        uint32_t value = call(s, ((uint32_t *)rules.p)[i], take);
        schema_push_node(s, &to, grammar_add_node(b, G_FREE, i, value, object));
    }
    if (!b->rc) {
        uint32_t start[2] = {end, item};
        grammar_define_alt(b, item, to.p, to.n);
        grammar_set_entry(b, rule,
                          grammar_add_byte(b, '[', space(s, grammar_add_alt(b, start, 2))));
        ((struct grammar_rule *)b->rules.p)[rule].object = object;
    }
    mem_free(lits.p), mem_free(rules.p), mem_free(to.p), mem_free(required);
    return rule;
}

/* Emits an array with uniqueItems, contains or both, if it is small enough for the automaton. */
static uint32_t emit_special_array(struct schema *s, const struct item *items, uint32_t n,
                                   const struct type_facts *f, const json_t *unique,
                                   const json_t *contains) {
    if (!unique) return emit_containing(s, items, n, f, contains);
    struct grammar_vec lits = {NULL, 0, 0};
    json_t *values = json_array();
    uint32_t rule = 0, n_prefix = case_n_prefix(s, items, n);
    case_item_literals(s, items, n, 0, &lits);
    bool is_finite = !n_prefix && !contains && schema_values(s, lits.p, lits.n, values);
    mem_free(lits.p);
    if (is_finite && !s->b.rc) {
        const json_t *kept = schema_keep(s, values);
        if (kept) rule = emit_distinct(s, items, n, f, kept);
        return rule;
    }
    json_decref(values);
    schema_refuse(
        s, CHIMERE_EUNSUPPORTED, unique, "uniqueItems",
        "supported only for items of at most 256 values (enum, const, integers between two "
        "limits); leave it out and check the answer");
    return rule;
}

static uint32_t emit_array(struct schema *s, const struct item *items, uint32_t n,
                           const struct type_facts *f) {
    struct grammar_builder *b = &s->b;
    const json_t *unique = f->max_items > 1 ? case_special(s, items, n, I_UNIQUE) : NULL;
    const json_t *contains = case_special(s, items, n, I_CONTAINS);
    if (unique || contains) return emit_special_array(s, items, n, f, unique, contains);
    uint32_t rule = grammar_add_rule(b), n_prefix = case_n_prefix(s, items, n);
    uint32_t min = f->min_items, max = f->max_items;
    if (min > max || b->rc) return rule;
    if (b->lim.plain && max == UINT32_MAX && min <= MAX_PLAIN_ITEMS) max = MAX_PLAIN_ITEMS;
    if (n_prefix > max) n_prefix = max;
    struct grammar_vec lits = {NULL, 0, 0};
    uint32_t close = grammar_add_byte(b, ']', b->ret), item = GRAMMAR_NONE;
    /* after the prefix: one rule for all items, counted if there is a bound */
    if (max > n_prefix) {
        bool counts = min > n_prefix + 1 || max != UINT32_MAX;
        case_item_literals(s, items, n, n_prefix, &lits);
        uint32_t rest = schema_rule(s, lits.p, lits.n), to[2];
        uint32_t after = grammar_reserve(b);
        uint32_t again = odd_space(s, after);
        if (counts) again = grammar_add_node(b, G_INC, 0, again, GRAMMAR_NONE);
        item = call(s, rest, again);
        uint32_t low = min > n_prefix ? min - n_prefix : 0,
                 high = max == UINT32_MAX ? max : max - n_prefix;
        uint32_t end = spaced_end(s, close);
        to[0] = counts && low ? grammar_add_node(b, G_GE, low, end, rest) : end;
        to[1] = grammar_add_byte(b, ',', space(s, item));
        if (high != UINT32_MAX) to[1] = grammar_add_node(b, G_LT, high, to[1], GRAMMAR_NONE);
        grammar_define_alt(b, after, to, 2);
        if (counts && !b->rc) {
            struct grammar_rule *r = (struct grammar_rule *)b->rules.p + rule;
            r->counts = true;
            r->min = low;
            r->max = high;
        }
    }
    /* the prefix, from its last item to its first */
    for (uint32_t i = n_prefix; i-- > 0 && !b->rc;) {
        uint32_t to[2], k = 0;
        if (i + 1 >= min) to[k++] = spaced_end(s, close);
        if (item != GRAMMAR_NONE) to[k++] = grammar_add_byte(b, ',', space(s, item));
        lits.n = 0;
        case_item_literals(s, items, n, i, &lits);
        uint32_t one = schema_rule(s, lits.p, lits.n);
        uint32_t after = grammar_reserve(b);
        grammar_define_alt(b, after, to, k);
        item = call(s, one, odd_space(s, after));
    }
    uint32_t to[2], k = 0;
    if (min == 0) to[k++] = close;
    if (item != GRAMMAR_NONE) to[k++] = item;
    uint32_t start = grammar_reserve(b);
    grammar_define_alt(b, start, to, k);
    grammar_set_entry(b, rule, grammar_add_byte(b, '[', space(s, start)));
    mem_free(lits.p);
    return rule;
}

/* ---- objects ---- */

struct object {
    struct schema *s;
    const struct item *items;
    uint32_t n;
    struct grammar_vec names;       /* struct slice */
    struct grammar_vec rules;       /* value rule per name */
    struct grammar_vec other_rules; /* value rule per class of unnamed properties */
    struct grammar_vec other_keys;  /* key rule per class */
    bool is_raw;                    /* the parameters of an XML call */
    bool is_call;                   /* the arguments of a call, in any form */
    bool *required;                 /* owned [names.n] */
    const char *patterns[64];       /* views: keys of patternProperties, without duplicates */
    uint32_t n_pattern, min_props;
    struct dfa writable; /* owned: names that can be written in an XML call; with is_raw */
};

static void collect_patterns(struct object *o) {
    const char *key;
    json_t *child;
    for (uint32_t i = 0; i < o->n; i++) {
        if (o->items[i].kind != I_OBJECT) continue;
        json_object_foreach(json_object_get(o->items[i].json, "patternProperties"), key, child) {
            bool is_known = false;
            for (uint32_t k = 0; k < o->n_pattern; k++)
                is_known |= strcmp(o->patterns[k], key) == 0;
            if (is_known) continue;
            if (o->n_pattern == 64) {
                grammar_fail(&o->s->b, CHIMERE_ELIMIT,
                             "schema: more than 64 patterns of properties in one object");
                return;
            }
            o->patterns[o->n_pattern++] = key;
        }
    }
}

/* Returns the rule for a parameter's value. name NULL: a parameter that the schema does not name. */
static uint32_t param_rule(struct schema *s, struct grammar_vec *lits, const char *name) {
    unsigned types = chat_schema_types((json_t *)s->given, name ? name : "");
    static const struct {
        unsigned chat;
        uint32_t own;
    } rows[] = {{CHAT_T_INTEGER, T_INT}, {CHAT_T_NUMBER, T_NUM}, {CHAT_T_BOOLEAN, T_BOOL},
                {CHAT_T_NULL, T_NULL},   {CHAT_T_OBJECT, T_OBJ}, {CHAT_T_ARRAY, T_ARR}};
    struct literal how = {NULL, WRITE_VALUE | T_STR};
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !chat_is_text(types); i++)
        if (types & rows[i].chat) how.negate |= rows[i].own;
    uint32_t k = grammar_vec_add(&s->b, lits, 1, sizeof how, "constraints on one value", 1 << 20);
    if (k == GRAMMAR_NONE) return 0;
    ((struct literal *)lits->p)[k] = how;
    return schema_rule(s, lits->p, lits->n);
}

/* Returns the rule for the value of an unnamed property that matches exactly the patterns in `matched`. */
static uint32_t other_value_rule(struct object *o, uint64_t matched) {
    struct grammar_vec lits = {NULL, 0, 0};
    for (uint32_t i = 0; i < o->n; i++) {
        if (o->items[i].kind != I_OBJECT) continue;
        const json_t *props = json_object_get(o->items[i].json, "patternProperties");
        const json_t *rest = json_object_get(o->items[i].json, "additionalProperties");
        bool is_matched = false;
        for (uint32_t k = 0; k < o->n_pattern; k++) {
            const json_t *one = matched >> k & 1 ? json_object_get(props, o->patterns[k]) : NULL;
            if (one) literal_push(o->s, &lits, one, false), is_matched = true;
        }
        if (!is_matched && rest) literal_push(o->s, &lits, rest, false);
    }
    for (uint32_t k = 0; k < lits.n; k++) {
        const struct literal *l = (struct literal *)lits.p + k;
        if (json_is_boolean(l->json) && json_is_true(l->json) == (bool)l->negate) {
            mem_free(lits.p);
            return GRAMMAR_NONE; /* schema false: there is no such property */
        }
    }
    uint32_t rule = o->is_raw ? param_rule(o->s, &lits, NULL) : schema_rule(o->s, lits.p, lits.n);
    mem_free(lits.p);
    return rule;
}

/* Returns a rule for the names in d. */
static uint32_t other_keys(struct object *o, const struct dfa *d) {
    if (o->is_raw) return schema_emit_names(o->s, d);
    return dfa_is_universal(d, 0) ? o->s->free_string : schema_emit_dfa(o->s, d, SPELL_JSON);
}

/* Divides the names in d by the patterns from `at` on; each class gets a rule for keys and one for values. */
static void cut_names(struct object *o, const struct dfa *d, uint32_t at, uint64_t matched) {
    struct grammar_builder *b = &o->s->b;
    if (b->rc || dfa_is_empty(d)) return;
    if (at == o->n_pattern) {
        uint32_t value = other_value_rule(o, matched);
        if (value == GRAMMAR_NONE) return;
        if (o->other_rules.n == MAX_NAME_CLASS)
            grammar_fail(b, CHIMERE_ELIMIT,
                         "schema: patterns cut the properties of one object into too many classes");
        schema_push_node(o->s, &o->other_rules, value);
        schema_push_node(o->s, &o->other_keys, other_keys(o, d));
        return;
    }
    struct dfa pattern, part;
    dfa_from_regex(b, (struct slice){o->patterns[at], strlen(o->patterns[at])}, true,
                   "schema: keyword 'patternProperties'", &pattern);
    for (int no = 0; no < 2; no++) {
        dfa_intersect(b, d, &pattern, no, &part);
        cut_names(o, &part, at + 1, no ? matched : matched | 1ULL << at);
        dfa_free(&part);
    }
    dfa_free(&pattern);
}

/* A call may only have arguments that its schema mentions, because a small model invents others without end. */
static bool allows_others(const struct object *o) {
    bool mentioned = !o->is_call || !o->names.n || o->min_props > o->names.n;
    for (uint32_t i = 0; i < o->n; i++) {
        if (o->items[i].kind != I_OBJECT) continue;
        mentioned |= json_object_get(o->items[i].json, "additionalProperties") ||
                     json_object_get(o->items[i].json, "patternProperties");
        if (json_is_false(json_object_get(o->items[i].json, "additionalProperties")) &&
            !json_object_get(o->items[i].json, "patternProperties"))
            return false;
    }
    return mentioned;
}

static void collect_others(struct object *o) {
    struct grammar_builder *b = &o->s->b;
    struct dfa names, texts, all;
    bool has_dfa;
    if (!allows_others(o)) return;
    collect_patterns(o);
    case_names_dfa(o->s, o->items, o->n, &has_dfa, &all);
    if (!has_dfa) dfa_from_length(b, 0, UINT32_MAX, &all);
    dfa_from_texts(b, o->names.p, o->names.n, &texts);
    dfa_intersect(b, &all, &texts, true, &names);
    cut_names(o, &names, 0, 0);
    dfa_free(&all), dfa_free(&texts), dfa_free(&names);
}

/* Returns the rule for the value of a named property. The rule has no entry if the property cannot occur. */
static uint32_t named_rule(struct object *o, struct slice name, bool is_allowed,
                           struct grammar_vec *lits) {
    struct schema *s = o->s;
    if (!is_allowed || (o->is_raw && !dfa_matches(&o->writable, name)))
        return grammar_add_rule(&s->b);
    return o->is_raw ? param_rule(s, lits, name.p) : schema_rule(s, lits->p, lits->n);
}

/* Collects the rules for the values of the named properties; a name that propertyNames forbids cannot occur. */
static void collect_named(struct object *o) {
    struct schema *s = o->s;
    struct dfa allowed;
    bool has_dfa;
    struct grammar_vec lits = {NULL, 0, 0};
    case_names(s, o->items, o->n, &o->names);
    case_names_dfa(s, o->items, o->n, &has_dfa, &allowed);
    o->required = mem_alloc_array((size_t)o->names.n + 1, sizeof *o->required);
    if (!o->required) grammar_nomem(&s->b);
    for (uint32_t i = 0; i < o->names.n && !s->b.rc; i++) {
        struct slice name = ((struct slice *)o->names.p)[i];
        lits.n = 0;
        case_prop_literals(s, o->items, o->n, name, &lits);
        bool is_allowed = !has_dfa || dfa_matches(&allowed, name);
        schema_push_node(s, &o->rules, named_rule(o, name, is_allowed, &lits));
        o->required[i] = case_is_required(o->items, o->n, name);
        grammar_tick(&s->b, o->n);
    }
    dfa_free(&allowed);
    mem_free(lits.p);
}

/* Emits the name in its usual JSON spelling, then next. */
static uint32_t emit_plain_name(struct schema *s, struct slice name, uint32_t next) {
    json_t *json = json_stringn(name.p, name.n);
    size_t n = json_dumpb(json, NULL, 0, JSON_ENCODE_ANY);
    char *text = n ? mem_alloc(n) : NULL;
    if (text && json_dumpb(json, text, n, JSON_ENCODE_ANY) == n)
        next = grammar_add_literal(&s->b, text, n, next);
    else grammar_nomem(&s->b);
    mem_free(text);
    json_decref(json);
    return next;
}

/* Emits the name between quotes in any spelling, then next. */
static uint32_t emit_name(struct schema *s, struct slice name, uint32_t next) {
    struct grammar_builder *b = &s->b;
    if (b->lim.plain) return emit_plain_name(s, name, next);
    struct grammar_vec cps = {NULL, 0, 0};
    for (size_t i = 0; i < name.n && !b->rc;) {
        uint32_t cp = 0, k = grammar_vec_add(b, &cps, 1, 4, "characters", UINT32_MAX);
        int n = utf8_decode(name.p + i, name.n - i, &cp);
        if (k != GRAMMAR_NONE) ((uint32_t *)cps.p)[k] = cp;
        i += n > 0 ? (size_t)n : 1;
    }
    next = grammar_add_byte(b, '"', next);
    for (uint32_t k = cps.n; k-- > 0 && !b->rc;) {
        struct grammar_range one = {((uint32_t *)cps.p)[k], ((uint32_t *)cps.p)[k], next};
        struct grammar_edges e = {.n = 0};
        grammar_json_edges(b, &one, 1, &e);
        next = grammar_add_bytes(b, e.e, e.n);
    }
    mem_free(cps.p);
    return grammar_add_byte(b, '"', next);
}

/* Emits a colon, the value, then next. */
static uint32_t emit_value(struct schema *s, uint32_t rule, uint32_t next) {
    return colon(s, call(s, rule, next));
}

static void emit_members(struct object *o, uint32_t rule, const struct type_facts *f) {
    struct schema *s = o->s;
    struct grammar_builder *b = &s->b;
    struct grammar_vec to = {NULL, 0, 0};
    uint32_t object = grammar_add_object(b, o->rules.p, o->required, o->names.n, o->other_rules.p,
                                         o->other_rules.n, f->min_props, f->max_props);
    uint32_t members = grammar_reserve(b), end[2];
    end[0] = grammar_add_node(b, G_CLOSE, 0, grammar_add_byte(b, '}', b->ret), object);
    end[1] = grammar_add_node(b, G_MORE, 0, grammar_add_byte(b, ',', space(s, members)), object);
    uint32_t close = grammar_add_byte(b, '}', b->ret);
    uint32_t behind[2] = {grammar_add_node(b, G_CLOSE, 0, spaced_end(s, close), object), end[1]};
    uint32_t after = odd_space(s, grammar_add_alt(b, behind, 2));
    for (uint32_t i = 0; i < o->names.n && !b->rc; i++) {
        uint32_t value = emit_value(s, ((uint32_t *)o->rules.p)[i], after);
        uint32_t take = grammar_add_node(b, G_TAKE, i, value, object);
        uint32_t name = emit_name(s, ((struct slice *)o->names.p)[i], take);
        schema_push_node(s, &to, grammar_add_node(b, G_FREE, i, name, object));
    }
    for (uint32_t i = 0; i < o->other_rules.n && !b->rc; i++) {
        uint32_t value = emit_value(s, ((uint32_t *)o->other_rules.p)[i], after);
        uint32_t key = call(s, ((uint32_t *)o->other_keys.p)[i], value);
        schema_push_node(s, &to, grammar_add_node(b, G_ROOM, 0, key, object));
    }
    if (b->rc) {
        mem_free(to.p);
        return;
    }
    grammar_define_alt(b, members, to.p, to.n);
    uint32_t start[2] = {end[0], members};
    grammar_set_entry(b, rule, grammar_add_byte(b, '{', space(s, grammar_add_alt(b, start, 2))));
    if (!b->rc) ((struct grammar_rule *)b->rules.p)[rule].object = object;
    mem_free(to.p);
}

static uint32_t literal(struct grammar_builder *b, const char *text, uint32_t next) {
    return grammar_add_literal(b, text, strlen(text), next);
}

/* Returns the text between the name and the value of a parameter; name NULL: a parameter without its own schema. */
static const char *between(const struct object *o, const struct slice *name) {
    const struct grammar_tags *t = o->s->tags;
    char text[160];
    if (!t->between_text) return t->between;
    snprintf(text, sizeof text, "%.*s", name ? (int)(name->n < 159 ? name->n : 159) : 1,
             name ? name->p : "\001");
    return chat_is_text(chat_schema_types((json_t *)o->s->root, text)) ? t->between_text
                                                                       : t->between;
}

/* Emits the parameters of a call as tags. The bytes next to a value are part of its rule. */
static void emit_params(struct object *o, uint32_t rule, const struct type_facts *f) {
    struct schema *s = o->s;
    const struct grammar_tags *t = s->tags;
    struct grammar_builder *b = &s->b;
    struct grammar_vec to = {NULL, 0, 0};
    uint32_t object = grammar_add_object(b, o->rules.p, o->required, o->names.n, o->other_rules.p,
                                         o->other_rules.n, f->min_props, f->max_props);
    uint32_t members = grammar_reserve(b), close = grammar_add_node(b, G_CLOSE, 0, b->ret, object);
    uint32_t behind[2] = {close, grammar_add_node(b, G_MORE, 0, members, object)};
    uint32_t after = literal(b, t->end, grammar_add_alt(b, behind, 2));
    for (uint32_t i = 0; i < o->names.n && !b->rc; i++) {
        struct slice name = ((struct slice *)o->names.p)[i];
        const char *gap = between(o, &name);
        uint32_t value = literal(b, gap, call(s, ((uint32_t *)o->rules.p)[i], after));
        value = grammar_add_byte(b, (uint8_t)t->name_close, value);
        uint32_t take = grammar_add_node(b, G_TAKE, i, value, object);
        uint32_t key = grammar_add_literal(b, name.p, name.n, take);
        key = literal(b, t->begin, grammar_add_byte(b, (uint8_t)t->name_open, key));
        schema_push_node(s, &to, grammar_add_node(b, G_FREE, i, key, object));
    }
    for (uint32_t i = 0; i < o->other_rules.n && !b->rc; i++) {
        const char *gap = between(o, NULL);
        uint32_t value = literal(b, gap, call(s, ((uint32_t *)o->other_rules.p)[i], after));
        uint32_t key = literal(b, t->begin, call(s, ((uint32_t *)o->other_keys.p)[i], value));
        schema_push_node(s, &to, grammar_add_node(b, G_ROOM, 0, key, object));
    }
    if (!b->rc) {
        grammar_define_alt(b, members, to.p, to.n);
        uint32_t start[2] = {close, members};
        grammar_set_entry(b, rule, grammar_add_byte(b, '\n', grammar_add_alt(b, start, 2)));
        ((struct grammar_rule *)b->rules.p)[rule].object = object;
    }
    mem_free(to.p);
}

static uint32_t emit_object(struct schema *s, const struct item *items, uint32_t n,
                            const struct type_facts *f, uint32_t how) {
    bool is_raw = how == WRITE_PARAMS, is_call = is_raw || how == WRITE_ARGS;
    struct object o = {.s = s,
                       .items = items,
                       .n = n,
                       .is_raw = is_raw,
                       .is_call = is_call,
                       .min_props = f->min_props};
    uint32_t rule = grammar_add_rule(&s->b);
    if (is_raw)
        dfa_from_regex(&s->b, (struct slice){s->tags->name, strlen(s->tags->name)}, false,
                       "schema: name", &o.writable);
    if (f->min_props <= f->max_props && !s->b.rc) {
        collect_named(&o);
        if (!s->b.rc) collect_others(&o);
        if (!s->b.rc && is_raw) emit_params(&o, rule, f);
        else if (!s->b.rc) emit_members(&o, rule, f);
    }
    mem_free(o.names.p), mem_free(o.rules.p), mem_free(o.other_rules.p), mem_free(o.other_keys.p);
    mem_free(o.required), dfa_free(&o.writable);
    return rule;
}

/* ---- conjunctions ---- */

struct written {
    struct grammar_vec to; /* nodes of the cases */
    uint32_t how;          /* one of WRITE_* */
};

/* Adds the value of a parameter that is not a string; it is between the same bytes as a string. */
static void push_value(struct schema *s, struct written *w, bool has, uint32_t node) {
    if (has && w->how) node = grammar_add_byte(&s->b, (uint8_t)s->tags->value_open, node);
    if (has) schema_push_node(s, &w->to, node);
}

static void emit_case(struct schema *s, void *arg, const struct item *items, uint32_t n) {
    struct written *w = arg;
    struct grammar_builder *b = &s->b;
    struct type_facts f;
    case_facts(s, items, n, &f);
    if (b->rc) return;
    if (w->how == WRITE_PARAMS || w->how == WRITE_ARGS) {
        if (f.types & T_OBJ)
            schema_push_node(s, &w->to, call(s, emit_object(s, items, n, &f, w->how), b->ret));
        return;
    }
    uint32_t types = f.types & (w->how ? w->how : T_ANY), raw = w->how & T_ANY, end = b->ret;
    if (types & T_STR)
        schema_push_node(s, &w->to, call(s, schema_string_rule(s, items, n, &f, raw), b->ret));
    if (w->how) end = grammar_add_byte(b, (uint8_t)s->tags->value_close, b->ret);
    push_value(s, w, types & T_NULL, grammar_add_literal(b, "null", 4, end));
    push_value(s, w, types & T_TRUE, grammar_add_literal(b, "true", 4, end));
    push_value(s, w, types & T_FALSE, grammar_add_literal(b, "false", 5, end));
    f.number.is_int &= (types & T_INT) != 0;
    f.number.is_fraction &= (types & T_FRAC) != 0;
    if ((types & T_NUM) && !number_is_empty(&f.number)) {
        uint32_t node = grammar_add_number(b, &f.number);
        if (w->how) { /* the nodes of a number return from their rule */
            uint32_t number = grammar_add_rule(b);
            grammar_set_entry(b, number, node);
            node = call(s, number, end);
        }
        push_value(s, w, true, node);
    }
    if (types & T_ARR) push_value(s, w, true, call(s, emit_array(s, items, n, &f), end));
    if (types & T_OBJ)
        push_value(s, w, true, call(s, emit_object(s, items, n, &f, WRITE_JSON), end));
}

static int by_content(const void *x, const void *y) { return memcmp(x, y, sizeof(struct literal)); }

uint32_t schema_rule(struct schema *s, struct literal *lits, uint32_t n) {
    uint32_t rule, k = 0;
    for (uint32_t i = 0; i < n; i++) /* drop schemas that are always true */
        if (!json_is_boolean(lits[i].json) || json_is_true(lits[i].json) == (bool)lits[i].negate)
            lits[k++] = lits[i];
    if (k) qsort(lits, k, sizeof *lits, by_content);
    const char *key = k ? (const char *)lits : "";
    if (s->b.rc) return 0;
    if (map_find(&s->rules, key, k * sizeof *lits, &rule)) return rule;
    rule = grammar_add_rule(&s->b);
    uint32_t first = grammar_vec_add(&s->b, &s->sets, k, sizeof *lits, "constraints", UINT32_MAX);
    uint32_t job =
        grammar_vec_add(&s->b, &s->jobs, 1, sizeof(struct job), "schemas", s->b.lim.n_rule);
    if (job == GRAMMAR_NONE) return 0;
    if (k) memcpy((struct literal *)s->sets.p + first, lits, k * sizeof *lits);
    ((struct job *)s->jobs.p)[job] = (struct job){rule, first, k};
    if (map_put(&s->rules, key, k * sizeof *lits, rule) < 0) grammar_nomem(&s->b);
    return rule;
}

void schema_emit_jobs(struct schema *s) {
    for (; s->n_done < s->jobs.n && grammar_tick(&s->b, 8); s->n_done++) {
        struct job job = ((struct job *)s->jobs.p)[s->n_done];
        struct written w = {.how = WRITE_JSON};
        struct literal *lits = mem_alloc_array((size_t)job.n + 1, sizeof *lits);
        if (!lits) {
            grammar_nomem(&s->b);
            return;
        }
        if (job.n) memcpy(lits, (struct literal *)s->sets.p + job.first, job.n * sizeof *lits);
        bool has_how = job.n && !lits[0].json; /* NULL is sorted to the front */
        if (has_how) w.how = (uint32_t)lits[0].negate;
        schema_cases(s, lits + has_how, job.n - has_how, emit_case, &w);
        if (!s->b.rc) {
            uint32_t node = grammar_reserve(&s->b);
            grammar_define_alt(&s->b, node, w.to.p, w.to.n);
            grammar_set_entry(&s->b, job.rule, node);
        }
        mem_free(w.to.p), mem_free(lits);
    }
}

uint32_t schema_args_rule(struct schema *s, const json_t *root, bool tags) {
    if (!schema_set_root(s, root)) return 0;
    struct literal lits[2] = {{NULL, tags ? WRITE_PARAMS : WRITE_ARGS}, {s->root, 0}};
    uint32_t rule = schema_rule(s, lits, 2);
    schema_emit_jobs(s);
    return rule;
}

uint32_t schema_emit_root(struct schema *s, uint32_t value) {
    uint32_t rule = grammar_add_rule(&s->b);
    uint32_t entry =
        s->b.lim.plain ? call(s, value, s->b.ret) : space(s, call(s, value, space(s, s->b.ret)));
    grammar_set_entry(&s->b, rule, entry);
    return rule;
}
