/* grammar_gbnf.c: compiles GBNF text to the automaton.
 *
 *   rules  := (name "::=" alternatives newline)*          alternatives continue after "|" and in "( )"
 *   alternatives := sequence ("|" sequence)*
 *   sequence     := (element repeat?)*                    repeat := * + ? {m} {m,} {m,n}
 *   element      := "literal" | [class] | [^class] | . | name | ( alternatives )
 *
 * The right side of each rule is parsed to a small tree. The tree is then emitted from its end to its start, so
 * that the node after each element is known. Repeated groups become separate rules, so that a repetition costs two
 * nodes per iteration. */
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "text/grammar/grammar_impl.h"

enum tree_kind { LITERAL, CLASS, NAME, SEQUENCE, CHOICE, REPEAT };

struct tree {
    uint8_t kind;
    uint32_t child, next; /* GRAMMAR_NONE: none */
    uint32_t a, b;        /* LITERAL, CLASS: first and count; NAME: rule; REPEAT: min, max */
};

struct gbnf {
    struct grammar_builder *b; /* borrowed */
    const char *text;          /* borrowed */
    size_t n, pos;
    struct map names;        /* name -> rule */
    struct grammar_vec refs; /* struct rule_ref of every rule */
    struct grammar_vec trees, bytes, ranges;
};

struct rule_ref {
    size_t name;
    uint32_t n_name;
    bool is_defined;
};

static void fail_at(struct gbnf *g, size_t pos, const char *what) {
    uint32_t line = 1;
    for (size_t i = 0; i < pos && i < g->n; i++) line += g->text[i] == '\n';
    grammar_fail(g->b, CHIMERE_EFORMAT, "GBNF line %u (byte %zu): %s", line, pos, what);
}

static int peek(const struct gbnf *g) {
    return g->pos < g->n ? (unsigned char)g->text[g->pos] : -1;
}

static bool is_name_byte(int c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static void skip_space(struct gbnf *g, bool lines) {
    for (int c; (c = peek(g)) >= 0; g->pos++) {
        if (c == '#')
            while (g->pos + 1 < g->n && g->text[g->pos + 1] != '\n') g->pos++;
        else if (c != ' ' && c != '\t' && !(lines && (c == '\n' || c == '\r'))) return;
    }
}

static uint32_t add_tree(struct gbnf *g, struct tree t) {
    uint32_t i = grammar_vec_add(g->b, &g->trees, 1, sizeof t, "elements", g->b->lim.n_node);
    if (i == GRAMMAR_NONE) return 0;
    ((struct tree *)g->trees.p)[i] = t;
    return i;
}

static struct tree *tree_at(const struct gbnf *g, uint32_t i) {
    return (struct tree *)g->trees.p + i;
}

/* Returns the rule with that name; declares it at its first occurrence. */
static uint32_t rule_named(struct gbnf *g, size_t name, size_t n_name) {
    uint32_t rule;
    if (map_find(&g->names, g->text + name, n_name, &rule)) return rule;
    rule = grammar_add_rule(g->b);
    uint32_t i =
        grammar_vec_add(g->b, &g->refs, 1, sizeof(struct rule_ref), "rules", g->b->lim.n_rule);
    if (i == GRAMMAR_NONE) return 0;
    ((struct rule_ref *)g->refs.p)[i] = (struct rule_ref){name, (uint32_t)n_name, false};
    if (map_put(&g->names, g->text + name, n_name, rule) < 0) grammar_nomem(g->b);
    return rule;
}

static size_t take_name(struct gbnf *g) {
    size_t start = g->pos;
    while (is_name_byte(peek(g))) g->pos++;
    return g->pos - start;
}

/* Reads one character of a literal or class and resolves escapes. */
static uint32_t take_char(struct gbnf *g) {
    uint32_t cp = 0;
    size_t at = g->pos;
    if (peek(g) != '\\') {
        int len = utf8_decode(g->text + g->pos, g->n - g->pos, &cp);
        if (len <= 0) fail_at(g, at, "not UTF-8");
        g->pos += len > 0 ? (size_t)len : 1;
        return cp;
    }
    g->pos++;
    int c = peek(g), n_hex = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    g->pos++;
    for (int i = 0; i < n_hex; i++, g->pos++) {
        int d = peek(g), low = d | 32;
        if (d >= '0' && d <= '9') cp = cp * 16 + (uint32_t)(d - '0');
        else if (low >= 'a' && low <= 'f') cp = cp * 16 + (uint32_t)(low - 'a' + 10);
        else {
            fail_at(g, at, "expected hexadecimal digits after \\x, \\u or \\U");
            return 0;
        }
    }
    if (n_hex) {
        char ignored[4];
        if (!utf8_encode(cp, ignored)) fail_at(g, at, "not a Unicode character");
        return cp;
    }
    switch (c) {
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case '\\':
    case '"':
    case '[':
    case ']':
    case '^':
    case '-': return (uint32_t)c;
    default: fail_at(g, at, "unknown escape"); return 0;
    }
}

static uint32_t parse_literal(struct gbnf *g) {
    uint32_t first = g->bytes.n;
    size_t start = g->pos++;
    while (!g->b->rc && peek(g) != '"') {
        if (peek(g) < 0 || peek(g) == '\n') {
            fail_at(g, start, "string without closing quote");
            return 0;
        }
        char out[4];
        int n = utf8_encode(take_char(g), out);
        uint32_t i = grammar_vec_add(g->b, &g->bytes, (uint32_t)n, 1, "bytes", UINT32_MAX);
        if (i != GRAMMAR_NONE) memcpy((char *)g->bytes.p + i, out, (size_t)n);
    }
    g->pos++;
    return add_tree(g,
                    (struct tree){LITERAL, GRAMMAR_NONE, GRAMMAR_NONE, first, g->bytes.n - first});
}

static void add_range(struct gbnf *g, uint32_t lo, uint32_t hi) {
    uint32_t i =
        grammar_vec_add(g->b, &g->ranges, 1, sizeof(struct grammar_range), "ranges", UINT32_MAX);
    if (i != GRAMMAR_NONE)
        ((struct grammar_range *)g->ranges.p)[i] = (struct grammar_range){lo, hi, 0};
}

static uint32_t parse_class(struct gbnf *g) {
    uint32_t first = g->ranges.n;
    size_t start = g->pos++;
    bool negate = peek(g) == '^';
    g->pos += negate;
    while (!g->b->rc && peek(g) != ']') {
        if (peek(g) < 0 || peek(g) == '\n') {
            fail_at(g, start, "class without closing bracket");
            return 0;
        }
        uint32_t lo = take_char(g), hi = lo;
        if (peek(g) == '-' && g->pos + 1 < g->n && g->text[g->pos + 1] != ']') {
            g->pos++;
            hi = take_char(g);
        }
        if (hi < lo) fail_at(g, start, "class range out of order");
        add_range(g, lo, hi);
    }
    g->pos++;
    grammar_tidy_ranges(g->b, &g->ranges, first, negate, UINT32_MAX);
    return add_tree(g,
                    (struct tree){CLASS, GRAMMAR_NONE, GRAMMAR_NONE, first, g->ranges.n - first});
}

static bool take_number(struct gbnf *g, uint32_t *out) {
    size_t start = g->pos;
    uint64_t v = 0;
    for (; peek(g) >= '0' && peek(g) <= '9'; g->pos++)
        if (v < UINT32_MAX) v = v * 10 + (uint64_t)(peek(g) - '0');
    *out = v < UINT32_MAX ? (uint32_t)v : UINT32_MAX - 1;
    return g->pos > start;
}

/* Applies the repetition operators after `child`. */
static uint32_t parse_repeat(struct gbnf *g, uint32_t child) {
    for (uint32_t n = 0; !g->b->rc; n++) {
        uint32_t min = 0, max = GRAMMAR_NONE;
        size_t start = g->pos;
        int c = peek(g);
        if (n >= g->b->lim.depth)
            grammar_fail(g->b, CHIMERE_ELIMIT, "GBNF: repetitions nested too deep");
        if (c != '*' && c != '+' && c != '?' && c != '{') break;
        g->pos++;
        if (c == '+') min = 1;
        if (c == '?') max = 1;
        if (c == '{') {
            skip_space(g, false);
            bool has_min = take_number(g, &min);
            max = min;
            skip_space(g, false);
            if (peek(g) == ',') {
                g->pos++;
                skip_space(g, false);
                if (!take_number(g, &max)) max = GRAMMAR_NONE;
                skip_space(g, false);
            } else if (!has_min) {
                fail_at(g, start, "expected {m}, {m,} or {m,n}");
            }
            if (peek(g) != '}') fail_at(g, start, "expected {m}, {m,} or {m,n}");
            g->pos++;
            if (max < min) fail_at(g, start, "repetition with a maximum below its minimum");
        }
        child = add_tree(g, (struct tree){REPEAT, child, GRAMMAR_NONE, min, max});
    }
    return child;
}

static uint32_t parse_choice(struct gbnf *g, uint32_t depth);

static uint32_t parse_element(struct gbnf *g, uint32_t depth) {
    int c = peek(g);
    size_t start = g->pos;
    if (c == '"') return parse_literal(g);
    if (c == '[') return parse_class(g);
    if (c == '.') {
        g->pos++;
        uint32_t first = g->ranges.n;
        add_range(g, 0, 0x10FFFF);
        return add_tree(g, (struct tree){CLASS, GRAMMAR_NONE, GRAMMAR_NONE, first, 1});
    }
    if (c == '(') {
        g->pos++;
        uint32_t t = parse_choice(g, depth + 1);
        skip_space(g, true);
        if (peek(g) != ')') fail_at(g, start, "group without closing parenthesis");
        g->pos++;
        return t;
    }
    if (c == '<' || c == '!') {
        grammar_fail(g->b, CHIMERE_EUNSUPPORTED,
                     "GBNF byte %zu: token references are not supported", start);
        return 0;
    }
    size_t n = take_name(g);
    if (n == 0) {
        fail_at(g, start, "expected a literal, class, name or group");
        return 0;
    }
    return add_tree(g, (struct tree){NAME, GRAMMAR_NONE, GRAMMAR_NONE, rule_named(g, start, n), 0});
}

/* Returns true if the text continues with "name ::=", the start of the next rule. */
static bool at_rule(const struct gbnf *g) {
    struct gbnf ahead = *g;
    if (take_name(&ahead) == 0) return false;
    skip_space(&ahead, false);
    return ahead.n - ahead.pos >= 3 && memcmp(ahead.text + ahead.pos, "::=", 3) == 0;
}

static uint32_t parse_sequence(struct gbnf *g, uint32_t depth) {
    uint32_t seq = add_tree(g, (struct tree){SEQUENCE, GRAMMAR_NONE, GRAMMAR_NONE, 0, 0});
    uint32_t last = GRAMMAR_NONE;
    while (grammar_tick(g->b, 1)) {
        skip_space(g, depth > 0);
        int c = peek(g);
        if (c < 0 || c == '|' || c == ')' || c == '\n' || c == '\r') break;
        if (at_rule(g)) { /* after "|" at the end of a line: the alternative is empty */
            if (depth > 0)
                fail_at(g, g->pos, "group without closing parenthesis before the next rule");
            break;
        }
        uint32_t t = parse_repeat(g, parse_element(g, depth));
        if (g->b->rc) break;
        if (last == GRAMMAR_NONE) tree_at(g, seq)->child = t;
        else tree_at(g, last)->next = t;
        last = t;
    }
    return seq;
}

static uint32_t parse_choice(struct gbnf *g, uint32_t depth) {
    if (depth > g->b->lim.depth) {
        grammar_fail(g->b, CHIMERE_ELIMIT, "GBNF: groups nested deeper than %u", g->b->lim.depth);
        return 0;
    }
    uint32_t first = parse_sequence(g, depth), last = first;
    while (!g->b->rc && peek(g) == '|') {
        g->pos++;
        skip_space(g, true); /* an alternative may start on the next line */
        uint32_t t = parse_sequence(g, depth);
        if (g->b->rc) return 0;
        tree_at(g, last)->next = t;
        last = t;
    }
    return first == last || g->b->rc
               ? first
               : add_tree(g, (struct tree){CHOICE, first, GRAMMAR_NONE, 0, 0});
}

static uint32_t emit(struct gbnf *g, uint32_t i, uint32_t next);

/* Emits the children of a sequence from the last to the first. */
static uint32_t emit_sequence(struct gbnf *g, uint32_t first, uint32_t next) {
    uint32_t n = 0;
    for (uint32_t c = first; c != GRAMMAR_NONE; c = tree_at(g, c)->next) n++;
    uint32_t *child = mem_alloc_array(n + 1, sizeof *child);
    if (!child) {
        grammar_nomem(g->b);
        return 0;
    }
    n = 0;
    for (uint32_t c = first; c != GRAMMAR_NONE; c = tree_at(g, c)->next) child[n++] = c;
    while (n-- && !g->b->rc) next = emit(g, child[n], next);
    mem_free(child);
    return next;
}

static uint32_t emit_choice(struct gbnf *g, uint32_t first, uint32_t next) {
    struct grammar_vec to = {NULL, 0, 0};
    for (uint32_t c = first; c != GRAMMAR_NONE && !g->b->rc; c = tree_at(g, c)->next) {
        uint32_t node = emit(g, c, next);
        uint32_t i = grammar_vec_add(g->b, &to, 1, sizeof node, "alternatives", UINT32_MAX);
        if (i != GRAMMAR_NONE) ((uint32_t *)to.p)[i] = node;
    }
    uint32_t node = g->b->rc ? 0 : grammar_add_alt(g->b, to.p, to.n);
    mem_free(to.p);
    return node;
}

/* Emits one iteration of a repetition. Anything larger than a class or a rule call was made a rule by the caller. */
static uint32_t emit_turn(struct gbnf *g, uint32_t child, uint32_t rule, uint32_t next) {
    return rule == GRAMMAR_NONE ? emit(g, child, next) : grammar_add_call(g->b, rule, next);
}

static uint32_t emit_repeat(struct gbnf *g, const struct tree *t, uint32_t next) {
    struct grammar_builder *b = g->b;
    uint32_t child = t->child, min = t->a, max = t->b, rule = GRAMMAR_NONE;
    uint8_t kind = tree_at(g, child)->kind;
    if (kind != CLASS && kind != NAME && max != 1) {
        rule = grammar_add_rule(b);
        grammar_set_entry(b, rule, emit(g, child, b->ret));
    }
    uint32_t node = next;
    if (max == GRAMMAR_NONE) {
        uint32_t loop = grammar_reserve(b);
        uint32_t to[2] = {emit_turn(g, child, rule, loop), next};
        grammar_define_alt(b, loop, to, 2);
        node = loop;
    } else {
        for (uint32_t i = min; i < max && !b->rc; i++) {
            uint32_t to[2] = {emit_turn(g, child, rule, node), next};
            node = grammar_add_alt(b, to, 2);
        }
    }
    for (uint32_t i = 0; i < min && !b->rc; i++) {
        node = emit_turn(g, child, rule, node);
        grammar_tick(b, 1);
    }
    return node;
}

/* Returns a node that matches tree i and then continues with `next`. */
static uint32_t emit(struct gbnf *g, uint32_t i, uint32_t next) {
    if (g->b->rc) return 0;
    struct tree t = *tree_at(g, i);
    switch ((enum tree_kind)t.kind) {
    case LITERAL: return grammar_add_literal(g->b, (char *)g->bytes.p + t.a, t.b, next);
    case CLASS: {
        struct grammar_edges edges = {.n = 0};
        struct grammar_range *r = (struct grammar_range *)g->ranges.p + t.a;
        for (uint32_t k = 0; k < t.b; k++) r[k].to = next;
        grammar_utf8_edges(g->b, r, t.b, &edges);
        return grammar_add_bytes(g->b, edges.e, edges.n);
    }
    case NAME: return grammar_add_call(g->b, t.a, next);
    case SEQUENCE: return emit_sequence(g, t.child, next);
    case CHOICE: return emit_choice(g, t.child, next);
    case REPEAT: return emit_repeat(g, &t, next);
    }
    return 0;
}

static void parse_rule(struct gbnf *g) {
    size_t start = g->pos, n = take_name(g);
    if (n == 0) {
        fail_at(g, start, "expected a rule name");
        return;
    }
    skip_space(g, false);
    if (g->n - g->pos < 3 || memcmp(g->text + g->pos, "::=", 3) != 0) {
        fail_at(g, g->pos, "expected ::=");
        return;
    }
    g->pos += 3;
    skip_space(g, true);
    uint32_t rule = rule_named(g, start, n), at = rule;
    if (g->b->rc) return;
    /* refs is indexed by rule numbers, so anonymous rules are added only after all names are known */
    struct rule_ref *ref = (struct rule_ref *)g->refs.p + rule;
    if (ref->is_defined) {
        fail_at(g, start, "rule defined twice");
        return;
    }
    ref->is_defined = true;
    uint32_t tree = parse_choice(g, 0);
    if (g->b->rc) return;
    if (peek(g) >= 0 && peek(g) != '\n' && peek(g) != '\r' && !at_rule(g)) {
        fail_at(g, g->pos, "unexpected character");
        return;
    }
    ((struct grammar_rule *)g->b->rules.p)[at].entry = tree; /* replaced by emit_all */
}

static int emit_all(struct gbnf *g) {
    struct rule_ref *refs = g->refs.p;
    uint32_t n = g->refs.n;
    for (uint32_t r = 0; r < n && !g->b->rc; r++) {
        if (!refs[r].is_defined)
            return grammar_fail(g->b, CHIMERE_EFORMAT, "GBNF: rule '%.*s' is used but not defined",
                                (int)(refs[r].n_name < 100 ? refs[r].n_name : 100),
                                g->text + refs[r].name);
        uint32_t tree = ((struct grammar_rule *)g->b->rules.p)[r].entry;
        uint32_t node = emit(g, tree, g->b->ret);
        grammar_set_entry(g->b, r, node);
    }
    return g->b->rc;
}

int grammar_from_gbnf(struct grammar **out, const char *text, size_t n,
                      const struct grammar_limits *lim, struct err *e) {
    struct grammar_builder b;
    struct gbnf g = {.b = &b, .text = text, .n = n};
    *out = NULL;
    int rc = grammar_builder_init(&b, lim, e);
    map_init(&g.names, (size_t)64 << 20);
    if (!rc && n > b.lim.text_bytes)
        rc = grammar_fail(&b, CHIMERE_ELIMIT, "GBNF: longer than %zu bytes", b.lim.text_bytes);
    grammar_vec_add(&b, &g.bytes, 0, 1, "bytes", UINT32_MAX);
    grammar_vec_add(&b, &g.ranges, 0, sizeof(struct grammar_range), "ranges", UINT32_MAX);
    while (!b.rc) {
        skip_space(&g, true);
        if (peek(&g) < 0) break;
        parse_rule(&g);
    }
    uint32_t root = 0;
    if (!b.rc && !map_find(&g.names, "root", 4, &root))
        grammar_fail(&b, CHIMERE_EFORMAT, "GBNF: no rule named 'root'");
    if (!b.rc) emit_all(&g);
    rc = grammar_finish(&b, root, out);
    if (rc && b.bad_rule != GRAMMAR_NONE) {
        const struct rule_ref *ref = (struct rule_ref *)g.refs.p + b.bad_rule;
        if (b.bad_rule < g.refs.n)
            err_set(e, rc, "GBNF: rule '%.*s' is left-recursive",
                    (int)(ref->n_name < 100 ? ref->n_name : 100), text + ref->name);
        else err_set(e, rc, "GBNF: a repeated group is left-recursive or repeats the empty text");
        err_hint(e, "let each rule consume something before it calls itself");
    }
    map_fini(&g.names);
    mem_free(g.refs.p), mem_free(g.trees.p), mem_free(g.bytes.p), mem_free(g.ranges.p);
    grammar_builder_fini(&b);
    return rc;
}
