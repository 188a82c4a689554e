/* grammar_schema_emit.c: cases -> rules of the automaton.
 *
 * Each string, array and object is a rule of its own, since its frames may carry a count or a set of
 * properties. Objects take their properties in any order: every property has a branch that is open
 * while the frame does not know it as seen, and one branch per class of unnamed properties. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/grammar/grammar_case_impl.h"

#define MAX_NAME_CLASS 256 /* classes that patternProperties cut names into */

struct job {
    uint32_t rule, first, n; /* literals in s->sets */
};

static uint32_t call(struct schema *s, uint32_t rule, uint32_t next) {
    return grammar_add_call(&s->b, rule, next);
}

/* Optional whitespace, then next. */
static uint32_t space(struct schema *s, uint32_t next) { return call(s, s->space, next); }

/* Optional whitespace where plain texts have none. */
static uint32_t odd_space(struct schema *s, uint32_t next) {
    return s->b.lim.plain ? next : space(s, next);
}

/* An end behind an element, where odd_space left off: plain texts may set it on a line of its own. What
 * must hold for it is asked before: blanks that lead nowhere could not be taken back. */
static uint32_t spaced_end(struct schema *s, uint32_t end) {
    return s->b.lim.plain ? space(s, end) : end;
}

static uint32_t colon(struct schema *s, uint32_t next) {
    struct grammar_builder *b = &s->b;
    if (!b->lim.plain) return space(s, grammar_add_byte(b, ':', space(s, next)));
    uint32_t to[2] = {grammar_add_byte(b, ' ', next), next};
    return grammar_add_byte(b, ':', grammar_add_alt(b, to, 2));
}

static void to_push(struct schema *s, struct grammar_vec *v, uint32_t node) {
    uint32_t i = grammar_vec_add(&s->b, v, 1, sizeof node, "alternatives", UINT32_MAX);
    if (i != GRAMMAR_NONE) ((uint32_t *)v->p)[i] = node;
}

/* ---- strings ---- */

/* Inside a string: any characters, then the closing quote. */
static void define_free_string(struct schema *s, uint32_t node) {
    struct grammar_range all = {0, 0x10FFFF, node};
    struct grammar_edges e = {.n = 0};
    grammar_json_edges(&s->b, &all, 1, &e);
    e.e[e.n++] = (struct grammar_edge){'"', '"', 0, s->b.ret};
    grammar_define_bytes(&s->b, node, e.e, e.n, GRAMMAR_NONE);
}

void schema_emit_prelude(struct schema *s) {
    struct grammar_builder *b = &s->b;
    b->free_string = grammar_reserve(b);
    define_free_string(s, b->free_string);
    s->free_string = grammar_add_rule(b);
    grammar_set_entry(b, s->free_string, grammar_add_byte(b, '"', b->free_string));
    uint32_t node = b->ret;
    for (uint32_t i = b->lim.plain; i < b->lim.space && !b->rc; i++) {
        struct grammar_edge e[4] = {{'\t', '\t', 0, node},
                                    {' ', ' ', 0, node},
                                    {'\n', '\n', 0, node},
                                    {'\r', '\r', 0, node}};
        uint32_t to[2] = {grammar_add_bytes(b, e, b->lim.plain ? 2 : 4), b->ret};
        node = grammar_add_alt(b, to, 2);
    }
    if (b->lim.plain) { /* so far the indent behind a line end */
        struct grammar_edge e[2] = {{'\n', '\n', 0, node}, {' ', ' ', 0, b->ret}};
        uint32_t to[2] = {grammar_add_bytes(b, e, 2), b->ret};
        node = grammar_add_alt(b, to, 2);
    }
    s->space = grammar_add_rule(b);
    grammar_set_entry(b, s->space, node);
}

/* A string of min..max characters. Its frame counts; it stops counting where that tells nothing. */
static uint32_t emit_counted_string(struct schema *s, uint32_t min, uint32_t max) {
    struct grammar_builder *b = &s->b;
    uint32_t rule = grammar_add_rule(b), loop = grammar_reserve(b), n = 0, to[2];
    struct grammar_range all = {0, 0x10FFFF, grammar_add_node(b, G_INC, 0, loop, GRAMMAR_NONE)};
    struct grammar_edges e = {.n = 0};
    grammar_json_edges(b, &all, 1, &e);
    uint32_t content = grammar_reserve(b), close = grammar_add_byte(b, '"', b->ret);
    grammar_define_bytes(b, content, e.e, e.n, b->free_string);
    to[n++] = max == UINT32_MAX ? content : grammar_add_node(b, G_LT, max, content, GRAMMAR_NONE);
    to[n++] = min == 0 ? close : grammar_add_node(b, G_GE, min, close, GRAMMAR_NONE);
    grammar_define_alt(b, loop, to, n);
    grammar_set_entry(b, rule, grammar_add_byte(b, '"', loop));
    if (b->rc) return 0;
    struct grammar_rule *r = (struct grammar_rule *)b->rules.p + rule;
    r->counts = true;
    r->min = min;
    r->max = max;
    return rule;
}

/* Ranges of code points that lead from state to others, neighbours joined; targets are states. */
static uint32_t state_ranges(const struct dfa *d, uint32_t state, struct grammar_range *out) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_interval; i++) {
        uint32_t to = d->next[(size_t)state * d->n_atom + d->intervals[i].to];
        if (to == GRAMMAR_NONE) continue;
        if (n && out[n - 1].to == to && out[n - 1].hi + 1 == d->intervals[i].lo)
            out[n - 1].hi = d->intervals[i].hi;
        else out[n++] = (struct grammar_range){d->intervals[i].lo, d->intervals[i].hi, to};
    }
    return n;
}

/* The state to which most characters lead. */
static uint32_t heaviest(const struct grammar_range *r, uint32_t n, uint64_t *weights) {
    uint32_t best = GRAMMAR_NONE;
    for (uint32_t i = 0; i < n; i++) weights[r[i].to] = 0;
    for (uint32_t i = 0; i < n; i++) {
        weights[r[i].to] += r[i].hi - r[i].lo + 1;
        if (best == GRAMMAR_NONE || weights[r[i].to] > weights[best]) best = r[i].to;
    }
    return best;
}

/* A string whose content the automaton accepts. */
static uint32_t emit_dfa_string(struct schema *s, const struct dfa *d) {
    struct grammar_builder *b = &s->b;
    uint32_t rule = grammar_add_rule(b);
    if (b->rc || dfa_is_empty(d)) return rule;
    struct grammar_range *r = mem_alloc_array((size_t)d->n_interval + 1, sizeof *r);
    uint32_t *node = mem_alloc_array((size_t)d->n_state + 1, sizeof *node);
    uint64_t *weights = mem_alloc_array((size_t)d->n_state + 1, sizeof *weights);
    if (!r || !node || !weights) grammar_nomem(b);
    for (uint32_t i = 0; !b->rc && i < d->n_state; i++)
        node[i] = dfa_is_universal(d, i) ? b->free_string : grammar_reserve(b);
    for (uint32_t i = 0; !b->rc && i < d->n_state; i++) {
        struct grammar_edges e = {.n = 0};
        if (node[i] == b->free_string) continue;
        uint32_t n = state_ranges(d, i, r), base = heaviest(r, n, weights);
        if (base != GRAMMAR_NONE) base = base == i ? b->free_string : node[base];
        for (uint32_t k = 0; k < n; k++) r[k].to = node[r[k].to];
        grammar_json_edges(b, r, n, &e);
        if (d->accepts[i]) e.e[e.n++] = (struct grammar_edge){'"', '"', 0, b->ret};
        grammar_define_bytes(b, node[i], e.e, e.n, base);
    }
    if (!b->rc) grammar_set_entry(b, rule, grammar_add_byte(b, '"', node[0]));
    mem_free(r), mem_free(node), mem_free(weights);
    return rule;
}

/* Fewest characters from each state to an accepting one; trimmed automata always have a way. */
static uint32_t *distances(struct schema *s, const struct dfa *d) {
    uint32_t *dist = mem_alloc_array((size_t)d->n_state + 1, sizeof *dist);
    if (!dist) {
        grammar_nomem(&s->b);
        return NULL;
    }
    for (uint32_t i = 0; i < d->n_state; i++) dist[i] = d->accepts[i] ? 0 : GRAMMAR_NONE;
    for (bool changed = true; changed && grammar_tick(&s->b, d->n_state);) {
        changed = false;
        for (uint32_t i = d->n_state; i-- > 0;)
            for (uint32_t a = 0; a < d->n_atom; a++) {
                uint32_t to = d->next[(size_t)i * d->n_atom + a];
                if (to == GRAMMAR_NONE || dist[to] == GRAMMAR_NONE || dist[to] + 1 >= dist[i])
                    continue;
                dist[i] = dist[to] + 1;
                changed = true;
            }
    }
    return dist;
}

/* The transitions of one state of a counted automaton: a character may come while its target can still
 * be completed within max. Targets at the same distance share a guard. */
static uint32_t emit_limited_state(struct schema *s, const struct dfa *d, uint32_t state,
                                   const uint32_t *node, const uint32_t *dist, uint32_t max,
                                   struct grammar_range *r) {
    struct grammar_builder *b = &s->b;
    struct grammar_vec to = {NULL, 0, 0};
    uint32_t n = state_ranges(d, state, r), made = 0;
    struct grammar_range *part = mem_alloc_array((size_t)n + 1, sizeof *part);
    if (!part) grammar_nomem(b);
    for (uint32_t i = 0; i < n && !b->rc; i++) {
        uint32_t far = dist[r[i].to], k = 0;
        bool is_first = true;
        for (uint32_t j = 0; j < i; j++) is_first &= dist[r[j].to] != far;
        if (!is_first || far >= max) continue;
        for (uint32_t j = i; j < n; j++)
            if (dist[r[j].to] == far) part[k] = r[j], part[k++].to = node[r[j].to];
        struct grammar_edges e = {.n = 0};
        grammar_json_edges(b, part, k, &e);
        to_push(s, &to,
                grammar_add_node(b, G_LT, max - far, grammar_add_bytes(b, e.e, e.n), GRAMMAR_NONE));
    }
    if (d->accepts[state]) to_push(s, &to, grammar_add_byte(b, '"', b->ret));
    if (!b->rc) made = grammar_add_alt(b, to.p, to.n);
    mem_free(to.p), mem_free(part);
    return made;
}

/* A string that the automaton accepts, of at most max characters. */
static uint32_t emit_limited_string(struct schema *s, const struct dfa *d, uint32_t max) {
    struct grammar_builder *b = &s->b;
    uint32_t rule = grammar_add_rule(b), farthest = 0;
    uint32_t *dist = b->rc || dfa_is_empty(d) ? NULL : distances(s, d);
    if (!dist || dist[0] > max) {
        mem_free(dist);
        return rule;
    }
    struct grammar_range *r = mem_alloc_array((size_t)d->n_interval + 1, sizeof *r);
    uint32_t *state = mem_alloc_array((size_t)d->n_state + 1, sizeof *state);
    uint32_t *count = mem_alloc_array((size_t)d->n_state + 1, sizeof *count);
    if (!r || !state || !count) grammar_nomem(b);
    for (uint32_t i = 0; !b->rc && i < d->n_state; i++) {
        state[i] = grammar_reserve(b);
        count[i] = grammar_add_node(b, G_INC, 0, state[i], GRAMMAR_NONE);
        if (dist[i] > farthest && dist[i] <= max) farthest = dist[i];
    }
    for (uint32_t i = 0; !b->rc && i < d->n_state; i++) {
        uint32_t node = emit_limited_state(s, d, i, count, dist, max, r);
        if (!b->rc) grammar_define_alt(b, state[i], &node, 1);
    }
    if (!b->rc) {
        grammar_set_entry(b, rule, grammar_add_byte(b, '"', state[0]));
        struct grammar_rule *gr = (struct grammar_rule *)b->rules.p + rule;
        gr->counts = true;
        gr->max = max - farthest; /* the lowest of the limits compared with */
    }
    mem_free(dist), mem_free(r), mem_free(state), mem_free(count);
    return rule;
}

static uint32_t emit_string(struct schema *s, const struct item *items, uint32_t n,
                            struct type_facts *f) {
    struct dfa d = {.n_state = 0}, length, both;
    bool has_dfa;
    uint32_t rule;
    case_string_dfa(s, items, n, f, &has_dfa, &d);
    if (f->min_length > f->max_length) rule = grammar_add_rule(&s->b);
    else if (!has_dfa && f->min_length == 0 && f->max_length == UINT32_MAX) rule = s->free_string;
    else if (!has_dfa) rule = emit_counted_string(s, f->min_length, f->max_length);
    else if (f->min_length == 0 && f->max_length == UINT32_MAX) rule = emit_dfa_string(s, &d);
    else if (f->min_length == 0) rule = emit_limited_string(s, &d, f->max_length);
    else {
        dfa_from_length(&s->b, f->min_length, f->max_length, &length);
        dfa_intersect(&s->b, &d, &length, false, &both);
        rule = emit_dfa_string(s, &both);
        dfa_free(&length), dfa_free(&both);
    }
    dfa_free(&d);
    return rule;
}

/* The same constraints on strings give the same rule wherever they stand. */
static uint32_t string_rule(struct schema *s, const struct item *items, uint32_t n,
                            struct type_facts *f) {
    struct buf key;
    uint32_t rule = 0;
    buf_init(&key, 4 << 20);
    buf_printf(&key, "%u %u", f->min_length, f->max_length);
    for (uint32_t i = 0; i < n; i++) {
        if (items[i].kind == I_TEXTS)
            buf_printf(&key, " t%d%p", items[i].negate, (const void *)items[i].json);
        if (items[i].kind == I_PATTERN || items[i].kind == I_FORMAT) {
            buf_printf(&key, " %c%d%zu:", items[i].kind == I_PATTERN ? 'p' : 'f', items[i].negate,
                       json_string_length(items[i].json));
            buf_put(&key, json_string_value(items[i].json), json_string_length(items[i].json));
        }
    }
    if (key.failed) {
        grammar_nomem(&s->b);
    } else if (!map_find(&s->strings, key.p, key.n, &rule)) {
        rule = emit_string(s, items, n, f);
        if (!s->b.rc && map_put(&s->strings, key.p, key.n, rule) < 0) grammar_nomem(&s->b);
    }
    buf_fini(&key);
    return rule;
}

/* ---- arrays ---- */

/* The places of an array with `contains`, one node per place and number of matching items. */
struct containing {
    struct schema *s;
    const struct item *items;
    uint32_t n;
    const json_t *contains;
    const struct type_facts *facts;
    uint32_t min, max;         /* matching items; max UINT32_MAX: no end */
    uint32_t n_place, n_match; /* nodes: places 0..n_place with 0..n_match matches each */
    uint32_t *nodes;           /* owned [(n_place + 1) * (n_match + 1)] */
};

/* An item at `place` that matches (negate: does not; neither: any), then the node of the next place. */
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
    to_push(s, to, place ? grammar_add_byte(&s->b, ',', space(s, item)) : item);
    mem_free(lits.p);
}

static void containing_place(struct containing *c, uint32_t place, uint32_t match) {
    struct schema *s = c->s;
    struct grammar_vec to = {NULL, 0, 0};
    uint32_t close = grammar_add_byte(&s->b, ']', s->b.ret);
    if (place >= c->facts->min_items && match >= c->min)
        to_push(s, &to, place ? spaced_end(s, close) : close);
    if (place < c->facts->max_items) {
        if (c->max == UINT32_MAX) { /* counting fewer than there are does no harm */
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
    if (!c.n_place) c.n_place = 1; /* a comma stands before every item but the first */
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

/* An array of distinct items out of `values`: the frame knows them as the properties of an object. */
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
        to_push(s, &rules, schema_rule(s, lits.p, lits.n));
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
        to_push(s, &to, grammar_add_node(b, G_FREE, i, value, object));
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

/* An array under uniqueItems, contains or both: what is small enough for the automaton. */
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
    schema_refuse(s, CHIMERE_EUNSUPPORTED, unique, "uniqueItems",
                  "not supported unless the items have few values");
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
    if (n_prefix > max) n_prefix = max;
    struct grammar_vec lits = {NULL, 0, 0};
    uint32_t close = grammar_add_byte(b, ']', b->ret), item = GRAMMAR_NONE;
    /* behind the prefix: one rule, counted where a bound lies ahead */
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
    bool *required;                 /* owned [names.n] */
    const char *patterns[64];       /* views: keys of patternProperties, without doubles */
    uint32_t n_pattern;
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

/* Literals of the value of an unnamed property that matches exactly the patterns in `matched`. */
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
            return GRAMMAR_NONE; /* false: no such property */
        }
    }
    uint32_t rule = schema_rule(o->s, lits.p, lits.n);
    mem_free(lits.p);
    return rule;
}

/* Cuts the names in d by pattern `at` and those behind it; each class gets a key and a value rule. */
static void cut_names(struct object *o, const struct dfa *d, uint32_t at, uint64_t matched) {
    struct grammar_builder *b = &o->s->b;
    if (b->rc || dfa_is_empty(d)) return;
    if (at == o->n_pattern) {
        uint32_t value = other_value_rule(o, matched);
        if (value == GRAMMAR_NONE) return;
        if (o->other_rules.n == MAX_NAME_CLASS)
            grammar_fail(b, CHIMERE_ELIMIT,
                         "schema: patterns cut the properties of one object into too many classes");
        to_push(o->s, &o->other_rules, value);
        to_push(o->s, &o->other_keys,
                dfa_is_universal(d, 0) ? o->s->free_string : emit_dfa_string(o->s, d));
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

static bool allows_others(const struct object *o) {
    for (uint32_t i = 0; i < o->n; i++) {
        if (o->items[i].kind != I_OBJECT) continue;
        if (json_is_false(json_object_get(o->items[i].json, "additionalProperties")) &&
            !json_object_get(o->items[i].json, "patternProperties"))
            return false;
    }
    return true;
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

/* Value rules of the named properties; a name that propertyNames forbids cannot come. */
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
        to_push(s, &o->rules,
                is_allowed ? schema_rule(s, lits.p, lits.n) : grammar_add_rule(&s->b));
        o->required[i] = case_is_required(o->items, o->n, name);
        grammar_tick(&s->b, o->n);
    }
    dfa_free(&allowed);
    mem_free(lits.p);
}

/* The name as JSON writers spell it, then next. */
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

/* The name between quotes, any spelling, then next. */
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

/* A colon, the value, then next. */
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
        to_push(s, &to, grammar_add_node(b, G_FREE, i, name, object));
    }
    for (uint32_t i = 0; i < o->other_rules.n && !b->rc; i++) {
        uint32_t value = emit_value(s, ((uint32_t *)o->other_rules.p)[i], after);
        uint32_t key = call(s, ((uint32_t *)o->other_keys.p)[i], value);
        to_push(s, &to, grammar_add_node(b, G_ROOM, 0, key, object));
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

static uint32_t emit_object(struct schema *s, const struct item *items, uint32_t n,
                            const struct type_facts *f) {
    struct object o = {.s = s, .items = items, .n = n};
    uint32_t rule = grammar_add_rule(&s->b);
    if (f->min_props <= f->max_props && !s->b.rc) {
        collect_named(&o);
        if (!s->b.rc) collect_others(&o);
        if (!s->b.rc) emit_members(&o, rule, f);
    }
    mem_free(o.names.p), mem_free(o.rules.p), mem_free(o.other_rules.p), mem_free(o.other_keys.p);
    mem_free(o.required);
    return rule;
}

/* ---- conjunctions ---- */

static void emit_case(struct schema *s, void *arg, const struct item *items, uint32_t n) {
    struct grammar_vec *to = arg;
    struct grammar_builder *b = &s->b;
    struct type_facts f;
    case_facts(s, items, n, &f);
    if (b->rc) return;
    if (f.types & T_NULL) to_push(s, to, grammar_add_literal(b, "null", 4, b->ret));
    if (f.types & T_TRUE) to_push(s, to, grammar_add_literal(b, "true", 4, b->ret));
    if (f.types & T_FALSE) to_push(s, to, grammar_add_literal(b, "false", 5, b->ret));
    if ((f.types & T_NUM) && !number_is_empty(&f.number))
        to_push(s, to, grammar_add_number(b, &f.number));
    if (f.types & T_STR) to_push(s, to, call(s, string_rule(s, items, n, &f), b->ret));
    if (f.types & T_ARR) to_push(s, to, call(s, emit_array(s, items, n, &f), b->ret));
    if (f.types & T_OBJ) to_push(s, to, call(s, emit_object(s, items, n, &f), b->ret));
}

static int by_content(const void *x, const void *y) { return memcmp(x, y, sizeof(struct literal)); }

uint32_t schema_rule(struct schema *s, struct literal *lits, uint32_t n) {
    uint32_t rule, k = 0;
    for (uint32_t i = 0; i < n; i++) /* what is always true says nothing */
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
    for (uint32_t i = 0; i < s->jobs.n && grammar_tick(&s->b, 8); i++) {
        struct job job = ((struct job *)s->jobs.p)[i];
        struct grammar_vec to = {NULL, 0, 0};
        struct literal *lits = mem_alloc_array((size_t)job.n + 1, sizeof *lits);
        if (!lits) {
            grammar_nomem(&s->b);
            return;
        }
        if (job.n) memcpy(lits, (struct literal *)s->sets.p + job.first, job.n * sizeof *lits);
        schema_cases(s, lits, job.n, emit_case, &to);
        if (!s->b.rc) {
            uint32_t node = grammar_reserve(&s->b);
            grammar_define_alt(&s->b, node, to.p, to.n);
            grammar_set_entry(&s->b, job.rule, node);
        }
        mem_free(to.p), mem_free(lits);
    }
}

uint32_t schema_emit_root(struct schema *s, uint32_t value) {
    uint32_t rule = grammar_add_rule(&s->b);
    uint32_t entry =
        s->b.lim.plain ? call(s, value, s->b.ret) : space(s, call(s, value, space(s, s->b.ret)));
    grammar_set_entry(&s->b, rule, entry);
    return rule;
}
