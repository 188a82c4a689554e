/* grammar_schema_string.c: converts constraints on a string to a rule of the automaton.
 *
 * A spelling defines how the characters of a string are written and what is around them: JSON with escapes,
 * between quotes; JSON without unnecessary escapes, for texts that the schema names; the unescaped value of a
 * parameter in an XML call, between two line ends; or the name of such a parameter. */
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/chat/chat_types.h"
#include "text/grammar/grammar_case_impl.h"

/* Patterns of texts that are not allowed. Names: the parser strips quotes around them. Strings: an end mark on its
 * own line always ends the value, although the parser would take it as text if no tag followed. The reason: a
 * model that omits a required parameter writes </function> next, and must not be forced to continue within the
 * text. */
#define BLANKS "[ \\t\\r\\n]*"
const struct grammar_tags grammar_tags_qwen = {
    .begin = "<parameter",
    .between = "",
    .end = "</parameter>\n",
    .name_open = '=',
    .name_close = '>',
    .value_open = '\n',
    .value_close = '\n',
    .name = "[^>\"'\\u0000-\\u0020](?:[^>\\u0000-\\u001f]{0,120}[^>\"'\\u0000-\\u0020])?",
    .ends = "</parameter>" BLANKS "(?:<parameter=|</function>|</parameter>|</tool_call>|$)"
            "|</function>" BLANKS "</tool_call>|\\n<parameter=|\\n</parameter>|^\\r|\\r$|\\u0000",
};

struct spelt { /* the text around a string */
    char open, close;
    bool is_raw;
};
static struct spelt spelt(const struct schema *s, enum spelling spelling) {
    if (spelling == SPELL_VALUE)
        return (struct spelt){s->tags->value_open, s->tags->value_close, true};
    if (spelling == SPELL_NAME)
        return (struct spelt){s->tags->name_open, s->tags->name_close, true};
    return (struct spelt){'"', '"', false};
}

#define MAX_UNROLLED 4096 /* states of a product of an automaton with lengths */

/* ---- edges ---- */

/* Adds the edges for the characters r[n]; `ends`: the string may also end here. */
static void put_edges(struct schema *s, enum spelling spelling, const struct grammar_range *r,
                      uint32_t n, bool ends, struct grammar_edges *e) {
    struct grammar_builder *b = &s->b;
    uint8_t close = (uint8_t)spelt(s, spelling).close;
    if (!spelt(s, spelling).is_raw) {
        if (spelling == SPELL_KNOWN) grammar_known_edges(b, r, n, e);
        else grammar_json_edges(b, r, n, e);
        if (ends) e->e[e->n++] = (struct grammar_edge){close, close, 0, b->ret};
        return;
    }
    struct grammar_range *cut = mem_alloc_array((size_t)n + 3, sizeof *cut);
    uint32_t k = 0;
    if (!cut) grammar_nomem(b);
    for (uint32_t i = 0; i < n && !b->rc; i++) {
        struct grammar_range now = r[i];
        if (ends && now.lo > close) { /* only the end of the string */
            cut[k++] = (struct grammar_range){close, close, b->ret};
            ends = false;
        }
        if (ends && now.hi >= close) { /* a character of the string, or its end */
            uint32_t to[2] = {now.to, b->ret};
            if (now.lo < close) cut[k++] = (struct grammar_range){now.lo, close - 1u, now.to};
            cut[k++] = (struct grammar_range){close, close, grammar_add_alt(b, to, 2)};
            now.lo = close + 1u;
            ends = false;
            if (now.lo > now.hi) continue;
        }
        cut[k++] = now;
    }
    if (ends && !b->rc) cut[k++] = (struct grammar_range){close, close, b->ret};
    if (!b->rc) grammar_utf8_edges(b, cut, k, e);
    mem_free(cut);
}

static uint32_t open_byte(struct schema *s, enum spelling spelling, uint32_t next) {
    return grammar_add_byte(&s->b, (uint8_t)spelt(s, spelling).open, next);
}

static uint32_t close_byte(struct schema *s, enum spelling spelling) {
    return grammar_add_byte(&s->b, (uint8_t)spelt(s, spelling).close, s->b.ret);
}

/* ---- rules ---- */

/* Defines a node inside a string: any characters, then the closing quote. */
static void define_free_string(struct schema *s, uint32_t node) {
    struct grammar_range all = {0, 0x10FFFF, node};
    struct grammar_edges e = {.n = 0};
    grammar_json_edges(&s->b, &all, 1, &e);
    e.e[e.n++] = (struct grammar_edge){'"', '"', 0, s->b.ret};
    grammar_define_bytes(&s->b, node, e.e, e.n, GRAMMAR_NONE);
}

void schema_emit_free_string(struct schema *s) {
    struct grammar_builder *b = &s->b;
    b->free_string = grammar_reserve(b);
    define_free_string(s, b->free_string);
    s->free_string = grammar_add_rule(b);
    grammar_set_entry(b, s->free_string, grammar_add_byte(b, '"', b->free_string));
}

/* Emits a string of min..max characters. Its frame counts, but not after the minimum if there is no maximum. */
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

/* Collects the ranges of code points for which the state has a transition; adjacent ranges are joined; targets are
 * states. */
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

/* Returns the state that most characters lead to. */
static uint32_t heaviest(const struct grammar_range *r, uint32_t n, uint64_t *weights) {
    uint32_t best = GRAMMAR_NONE;
    for (uint32_t i = 0; i < n; i++) weights[r[i].to] = 0;
    for (uint32_t i = 0; i < n; i++) {
        weights[r[i].to] += r[i].hi - r[i].lo + 1;
        if (best == GRAMMAR_NONE || weights[r[i].to] > weights[best]) best = r[i].to;
    }
    return best;
}

uint32_t schema_emit_dfa(struct schema *s, const struct dfa *d, enum spelling spelling) {
    struct grammar_builder *b = &s->b;
    bool is_json = spelling == SPELL_JSON;
    uint32_t rule = grammar_add_rule(b);
    if (b->rc || dfa_is_empty(d)) return rule;
    struct grammar_range *r = mem_alloc_array((size_t)d->n_interval + 1, sizeof *r);
    uint32_t *node = mem_alloc_array((size_t)d->n_state + 1, sizeof *node);
    uint64_t *weights = mem_alloc_array((size_t)d->n_state + 1, sizeof *weights);
    if (!r || !node || !weights) grammar_nomem(b);
    for (uint32_t i = 0; !b->rc && i < d->n_state; i++)
        node[i] = is_json && dfa_is_universal(d, i) ? b->free_string : grammar_reserve(b);
    for (uint32_t i = 0; !b->rc && i < d->n_state; i++) {
        struct grammar_edges e = {.n = 0};
        if (node[i] == b->free_string) continue;
        uint32_t n = state_ranges(d, i, r), base = heaviest(r, n, weights);
        if (base == i) base = is_json ? b->free_string : GRAMMAR_NONE;
        else if (base != GRAMMAR_NONE) base = node[base];
        for (uint32_t k = 0; k < n; k++) r[k].to = node[r[k].to];
        put_edges(s, spelling, r, n, d->accepts[i], &e);
        grammar_define_bytes(b, node[i], e.e, e.n, base);
    }
    if (!b->rc) grammar_set_entry(b, rule, open_byte(s, spelling, node[0]));
    mem_free(r), mem_free(node), mem_free(weights);
    return rule;
}

/* Computes the smallest number of characters from each state to an accepting one; a trimmed automaton always has
 * one. */
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

/* Emits the transitions of one state of an automaton with a length limit: a character is allowed if its target can
 * still be completed within max. Targets at the same distance share a guard. */
static uint32_t emit_limited_state(struct schema *s, const struct dfa *d, uint32_t state,
                                   const uint32_t *node, const uint32_t *dist, uint32_t max,
                                   struct grammar_range *r, enum spelling spelling) {
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
        put_edges(s, spelling, part, k, false, &e);
        schema_push_node(
            s, &to,
            grammar_add_node(b, G_LT, max - far, grammar_add_bytes(b, e.e, e.n), GRAMMAR_NONE));
    }
    if (d->accepts[state]) schema_push_node(s, &to, close_byte(s, spelling));
    if (!b->rc) made = grammar_add_alt(b, to.p, to.n);
    mem_free(to.p), mem_free(part);
    return made;
}

/* Emits a string that the automaton accepts, with at most max characters. */
static uint32_t emit_limited_string(struct schema *s, const struct dfa *d, uint32_t max,
                                    enum spelling spelling) {
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
        uint32_t node = emit_limited_state(s, d, i, count, dist, max, r, spelling);
        if (!b->rc) grammar_define_alt(b, state[i], &node, 1);
    }
    if (!b->rc) {
        grammar_set_entry(b, rule, open_byte(s, spelling, state[0]));
        struct grammar_rule *gr = (struct grammar_rule *)b->rules.p + rule;
        gr->counts = true;
        gr->max = max - farthest; /* the smallest limit that the count is compared with */
    }
    mem_free(dist), mem_free(r), mem_free(state), mem_free(count);
    return rule;
}

#define NUMBER_LIKE "[-+]?(?:[0-9._]+(?:[eE][-+]?[0-9]+)?|NaN|nan|Infinity|inf)" BLANKS "$"

/* Computes the texts that a parameter of these types may have as its value and that the parser reads as strings. */
static void readable_texts(struct schema *s, uint32_t types, struct dfa *out) {
    static const struct {
        uint32_t types;
        const char *pattern;
    } rows[] = {{T_NUM, NUMBER_LIKE},
                {T_BOOL, "(?:[tT]rue|[fF]alse)" BLANKS "$"},
                {T_NULL, "(?:null|None)" BLANKS "$"},
                {T_ARR, "\\["},
                {T_OBJ, "\\{"}};
    struct buf pattern;
    struct dfa all, bad;
    buf_init(&pattern, 4096);
    buf_printf(&pattern, "%s", s->tags->ends);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (types & rows[i].types) buf_printf(&pattern, "|^" BLANKS "%s", rows[i].pattern);
    if (pattern.failed) grammar_nomem(&s->b);
    dfa_from_length(&s->b, 0, UINT32_MAX, &all);
    dfa_from_regex(&s->b, (struct slice){pattern.p, pattern.n}, true, "schema: text", &bad);
    dfa_intersect(&s->b, &all, &bad, true, out);
    dfa_free(&all), dfa_free(&bad), buf_fini(&pattern);
}

static void narrow(struct schema *s, struct dfa *d, bool has_dfa, struct dfa more) {
    struct dfa both = more;
    if (has_dfa) {
        dfa_intersect(&s->b, d, &more, false, &both);
        dfa_free(d), dfa_free(&more);
    }
    *d = both;
}

uint32_t schema_emit_names(struct schema *s, const struct dfa *d) {
    struct dfa names, both;
    dfa_from_regex(&s->b, (struct slice){s->tags->name, strlen(s->tags->name)}, false,
                   "schema: name", &names);
    dfa_intersect(&s->b, d, &names, false, &both);
    uint32_t rule = schema_emit_dfa(s, &both, SPELL_NAME);
    dfa_free(&names), dfa_free(&both);
    return rule;
}

/* Returns true if the product with all lengths up to max is small enough, so that the frame need not count. */
static bool may_unroll(const struct dfa *d, uint32_t max) {
    return max < MAX_UNROLLED && (uint64_t)d->n_state * (max + 1) <= MAX_UNROLLED;
}

/* raw 0: in JSON; otherwise the types of the XML call's parameter that has this value. */
static uint32_t emit_string(struct schema *s, const struct item *items, uint32_t n,
                            struct type_facts *f, uint32_t raw) {
    enum spelling spelling = raw ? SPELL_VALUE : SPELL_JSON;
    struct dfa d = {.n_state = 0}, more;
    bool has_dfa;
    uint32_t rule, max = f->max_length;
    case_string_dfa(s, items, n, f, &has_dfa, &d);
    if (s->b.lim.plain && !raw)
        for (uint32_t i = 0; i < n; i++)
            if (items[i].kind == I_TEXTS && !items[i].negate) spelling = SPELL_KNOWN;
    if (raw) {
        readable_texts(s, raw & ~(uint32_t)T_STR, &more);
        narrow(s, &d, has_dfa, more);
        has_dfa = true;
    }
    max = f->max_length;
    if (f->min_length > max) {
        rule = grammar_add_rule(&s->b);
    } else if (!has_dfa && f->min_length == 0 && max == UINT32_MAX) {
        rule = s->free_string;
    } else if (!has_dfa) {
        rule = emit_counted_string(s, f->min_length, max);
    } else {
        bool unroll = max == UINT32_MAX || may_unroll(&d, max);
        if (f->min_length || (unroll && max != UINT32_MAX)) {
            dfa_from_length(&s->b, f->min_length, unroll ? max : UINT32_MAX, &more);
            narrow(s, &d, true, more);
        }
        rule =
            unroll ? schema_emit_dfa(s, &d, spelling) : emit_limited_string(s, &d, max, spelling);
    }
    dfa_free(&d);
    return rule;
}

/* Returns the rule for constraints on a string; equal constraints share a rule. */
uint32_t schema_string_rule(struct schema *s, const struct item *items, uint32_t n,
                            struct type_facts *f, uint32_t raw) {
    struct buf key;
    uint32_t rule = 0;
    buf_init(&key, 4 << 20);
    buf_printf(&key, "%u %u %u", raw, f->min_length, f->max_length);
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
        rule = emit_string(s, items, n, f, raw);
        if (!s->b.rc && map_put(&s->strings, key.p, key.n, rule) < 0) grammar_nomem(&s->b);
    }
    buf_fini(&key);
    return rule;
}
