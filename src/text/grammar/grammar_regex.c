/* grammar_regex.c: compiles ECMA-262 patterns (flag u) to deterministic automata over code points.
 *
 * Thompson's construction, then the subset construction. Lookbehind, word boundaries and back references are
 * refused by name. A counted repetition parses its atom again for each iteration. `^` matches only before the
 * first character; `$` is only crossed when a state is tested for acceptance.
 *
 * A lookahead is a separate automaton over the same alphabet. It runs in parallel from its position on. A
 * configuration is an NFA node together with the states of the active lookaheads on this path. A configuration
 * without lookaheads has the number of its node. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "text/grammar/grammar_dfa.h"

#define MAX_NFA_NODE 100000
#define MAX_COUNT 10000
/* lookaheads of a pattern, counted once per iteration of a repetition */
#define MAX_LOOK 32
#define MAX_CONFIG (1 << 16) /* configurations with active lookaheads */

enum nfa_op { N_EMPTY, N_SPLIT, N_CLASS, N_BEGIN, N_END, N_LOOK, N_MATCH };

struct nfa_node {
    uint8_t op;
    uint32_t out, out2; /* GRAMMAR_NONE: not connected yet */
    uint32_t cls;       /* N_CLASS, N_LOOK: index of the class or lookahead */
};

/* table of a lookahead; a state that accepts every continuation leads to itself */
struct look_table {
    struct grammar_vec next; /* uint32_t [n_state, n_atom] */
    bool *accepts;           /* owned [n_state] */
};

struct look {
    uint32_t start; /* node */
    bool negate;
    /* [1]: used if the lookahead begins before the first character of the text */
    struct look_table table[2];
};

struct duty {             /* an active lookahead; compared as bytes */
    uint32_t look, state; /* look: 2 * index + table */
};

struct config {
    uint32_t node, first, n; /* in duties */
};

struct nfa_class {
    uint32_t first, n; /* in ranges: sorted, disjoint */
};

struct fragment {
    uint32_t start, end; /* end: an N_EMPTY node whose out is not connected */
};

struct regex {
    struct grammar_builder *b; /* borrowed */
    const char *what;          /* borrowed: for errors */
    struct slice p;
    size_t pos;
    uint32_t depth;
    struct grammar_vec nodes, ranges, classes;
    struct look looks[MAX_LOOK];
    uint32_t n_look;
};

static void refuse(struct regex *x, int code, const char *why) {
    grammar_fail(x->b, code, "%s: %s at byte %zu of '%.*s'", x->what, why, x->pos,
                 (int)(x->p.n < 80 ? x->p.n : 80), x->p.p);
}

static int peek(const struct regex *x) {
    return x->pos < x->p.n ? (unsigned char)x->p.p[x->pos] : -1;
}

static bool take(struct regex *x, const char *s) {
    size_t n = strlen(s);
    if (x->p.n - x->pos < n || memcmp(x->p.p + x->pos, s, n) != 0) return false;
    x->pos += n;
    return true;
}

static uint32_t add_node(struct regex *x, enum nfa_op op, uint32_t out, uint32_t out2,
                         uint32_t cls) {
    uint32_t i = grammar_vec_add(x->b, &x->nodes, 1, sizeof(struct nfa_node), "parts of a pattern",
                                 MAX_NFA_NODE);
    if (i == GRAMMAR_NONE || !grammar_tick(x->b, 1)) return 0;
    ((struct nfa_node *)x->nodes.p)[i] = (struct nfa_node){(uint8_t)op, out, out2, cls};
    return i;
}

static void connect(struct regex *x, uint32_t from, uint32_t to) {
    if (!x->b->rc) ((struct nfa_node *)x->nodes.p)[from].out = to;
}

static struct fragment empty_fragment(struct regex *x) {
    uint32_t n = add_node(x, N_EMPTY, GRAMMAR_NONE, GRAMMAR_NONE, 0);
    return (struct fragment){n, n};
}

/* ---- classes ---- */

enum { MAX_RANGE = 1 << 20 };

static void add_range(struct regex *x, uint32_t lo, uint32_t hi) {
    uint32_t i = grammar_vec_add(x->b, &x->ranges, 1, sizeof(struct grammar_range),
                                 "ranges in patterns", MAX_RANGE);
    if (i != GRAMMAR_NONE)
        ((struct grammar_range *)x->ranges.p)[i] = (struct grammar_range){lo, hi, 0};
}

static void tidy(struct regex *x, uint32_t first, bool negate) {
    grammar_tidy_ranges(x->b, &x->ranges, first, negate, MAX_RANGE);
}

static struct fragment class_fragment(struct regex *x, uint32_t first) {
    uint32_t c =
        grammar_vec_add(x->b, &x->classes, 1, sizeof(struct nfa_class), "classes", MAX_NFA_NODE);
    if (c == GRAMMAR_NONE) return (struct fragment){0, 0};
    ((struct nfa_class *)x->classes.p)[c] = (struct nfa_class){first, x->ranges.n - first};
    uint32_t end = add_node(x, N_EMPTY, GRAMMAR_NONE, GRAMMAR_NONE, 0);
    return (struct fragment){add_node(x, N_CLASS, end, GRAMMAR_NONE, c), end};
}

static void add_shorthand(struct regex *x, int c) {
    static const struct grammar_range digit[] = {{'0', '9', 0}};
    static const struct grammar_range word[] = {
        {'0', '9', 0}, {'A', 'Z', 0}, {'_', '_', 0}, {'a', 'z', 0}};
    static const struct grammar_range space[] = {
        {9, 13, 0},          {32, 32, 0},         {0xA0, 0xA0, 0},     {0x1680, 0x1680, 0},
        {0x2000, 0x200A, 0}, {0x2028, 0x2029, 0}, {0x202F, 0x202F, 0}, {0x205F, 0x205F, 0},
        {0x3000, 0x3000, 0}, {0xFEFF, 0xFEFF, 0}};
    const struct grammar_range *r = (c | 32) == 'd' ? digit : (c | 32) == 'w' ? word : space;
    size_t n = (c | 32) == 'd' ? 1 : (c | 32) == 'w' ? 4 : sizeof space / sizeof *space;
    uint32_t first = x->ranges.n;
    for (size_t i = 0; i < n; i++) add_range(x, r[i].lo, r[i].hi);
    if (c < 'a') tidy(x, first, true);
}

/* General categories in the order of utf8proc; a one-letter name means all categories that start with it. */
static const struct {
    const char *name, *full;
} categories[] = {{"Cn", "Unassigned"},
                  {"Lu", "Uppercase_Letter"},
                  {"Ll", "Lowercase_Letter"},
                  {"Lt", "Titlecase_Letter"},
                  {"Lm", "Modifier_Letter"},
                  {"Lo", "Other_Letter"},
                  {"Mn", "Nonspacing_Mark"},
                  {"Mc", "Spacing_Mark"},
                  {"Me", "Enclosing_Mark"},
                  {"Nd", "Decimal_Number"},
                  {"Nl", "Letter_Number"},
                  {"No", "Other_Number"},
                  {"Pc", "Connector_Punctuation"},
                  {"Pd", "Dash_Punctuation"},
                  {"Ps", "Open_Punctuation"},
                  {"Pe", "Close_Punctuation"},
                  {"Pi", "Initial_Punctuation"},
                  {"Pf", "Final_Punctuation"},
                  {"Po", "Other_Punctuation"},
                  {"Sm", "Math_Symbol"},
                  {"Sc", "Currency_Symbol"},
                  {"Sk", "Modifier_Symbol"},
                  {"So", "Other_Symbol"},
                  {"Zs", "Space_Separator"},
                  {"Zl", "Line_Separator"},
                  {"Zp", "Paragraph_Separator"},
                  {"Cc", "Control"},
                  {"Cf", "Format"},
                  {"Cs", "Surrogate"},
                  {"Co", "Private_Use"},
                  {"L", "Letter"},
                  {"M", "Mark"},
                  {"N", "Number"},
                  {"P", "Punctuation"},
                  {"S", "Symbol"},
                  {"Z", "Separator"},
                  {"C", "Other"}};

static void add_property(struct regex *x, bool negate) {
    size_t end = x->pos;
    while (end < x->p.n && x->p.p[end] != '}') end++;
    if (peek(x) != '{' || end == x->p.n) {
        refuse(x, CHIMERE_EFORMAT, "expected {name} after \\p");
        return;
    }
    x->pos++;
    if (!take(x, "General_Category=")) take(x, "gc=");
    struct slice name = {x->p.p + x->pos, end - x->pos};
    uint32_t first = x->ranges.n;
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++) {
        const char *s = categories[i].name, *f = categories[i].full;
        if (!(strlen(s) == name.n && !memcmp(s, name.p, name.n)) &&
            !(strlen(f) == name.n && !memcmp(f, name.p, name.n)))
            continue;
        for (uint32_t cp = 0, lo = GRAMMAR_NONE; cp <= 0x110000; cp++) {
            utf8proc_category_t at = cp <= 0x10FFFF ? utf8proc_category((utf8proc_int32_t)cp) : 0;
            bool in = cp <= 0x10FFFF &&
                      (i < 30 ? at == (utf8proc_category_t)i : categories[at].name[0] == s[0]);
            if (in && lo == GRAMMAR_NONE) lo = cp;
            if (!in && lo != GRAMMAR_NONE) add_range(x, lo, cp - 1), lo = GRAMMAR_NONE;
        }
        grammar_tick(x->b, 4096);
        x->pos = end + 1;
        if (negate) tidy(x, first, true);
        return;
    }
    refuse(x, CHIMERE_EUNSUPPORTED, "only general categories are supported in \\p{}");
}

static uint32_t take_hex(struct regex *x, int n) {
    uint32_t v = 0;
    for (int i = 0; i < n; i++, x->pos++) {
        int c = peek(x), low = c | 32;
        if (c >= '0' && c <= '9') v = v * 16 + (uint32_t)(c - '0');
        else if (low >= 'a' && low <= 'f') v = v * 16 + (uint32_t)(low - 'a' + 10);
        else {
            refuse(x, CHIMERE_EFORMAT, "expected a hexadecimal digit");
            return 0;
        }
    }
    return v;
}

/* Reads what follows "\u": \u{X}, \uXXXX or a surrogate pair. */
static uint32_t take_unicode(struct regex *x) {
    if (take(x, "{")) {
        uint32_t v = 0;
        do v = v <= 0x10FFFF ? v * 16 + take_hex(x, 1) : v;
        while (!x->b->rc && peek(x) != '}' && peek(x) >= 0);
        if (!take(x, "}") || v > 0x10FFFF) refuse(x, CHIMERE_EFORMAT, "not a Unicode character");
        return v;
    }
    uint32_t v = take_hex(x, 4);
    if (v >= 0xD800 && v < 0xDC00 && take(x, "\\u")) {
        uint32_t low = take_hex(x, 4);
        if (low < 0xDC00 || low > 0xDFFF)
            refuse(x, CHIMERE_EFORMAT, "surrogate without its other half");
        return 0x10000 + ((v - 0xD800) << 10) + ((low - 0xDC00) & 0x3ff);
    }
    return v;
}

/* Reads the character of an escape; the backslash was already read. */
static uint32_t take_escape(struct regex *x, bool in_class) {
    int c = peek(x);
    x->pos++;
    switch (c) {
    case 't': return '\t';
    case 'n': return '\n';
    case 'v': return '\v';
    case 'f': return '\f';
    case 'r': return '\r';
    case 'b':
        if (in_class) return '\b';
        break;
    case '0':
        if (peek(x) < '0' || peek(x) > '9') return 0;
        break;
    case 'x': return take_hex(x, 2);
    case 'u': return take_unicode(x);
    case 'c':
        c = peek(x);
        x->pos++;
        if ((c | 32) >= 'a' && (c | 32) <= 'z') return (uint32_t)c & 31;
        break;
    default: /* punctuation, as in Python and in ECMAScript without flag u */
        if (c > ' ' && c < 0x7f && !(c >= '0' && c <= '9') &&
            !((c | 32) >= 'a' && (c | 32) <= 'z') && c != '_')
            return (uint32_t)c;
    }
    x->pos--;
    if (c == 'b' || c == 'B')
        refuse(x, CHIMERE_EUNSUPPORTED, "word boundaries (\\b) are not supported");
    else if ((c >= '0' && c <= '9') || c == 'k')
        refuse(x, CHIMERE_EUNSUPPORTED, "back references are not supported");
    else refuse(x, CHIMERE_EFORMAT, "unknown escape");
    return 0;
}

/* Reads one unescaped character. */
static uint32_t take_char(struct regex *x) {
    uint32_t cp = 0;
    int n = utf8_decode(x->p.p + x->pos, x->p.n - x->pos, &cp);
    if (n <= 0) refuse(x, CHIMERE_EFORMAT, "not UTF-8");
    x->pos += n > 0 ? (size_t)n : 1;
    return cp;
}

/* Reads a member of a class or a plain element. Returns true and sets *cp if it is a single character, which may
 * start a range. */
static bool take_member(struct regex *x, bool in_class, uint32_t *cp) {
    if (peek(x) != '\\') {
        *cp = take_char(x);
        return true;
    }
    x->pos++;
    int c = peek(x);
    if (c > 0 && strchr("dDwWsS", c)) {
        x->pos++;
        add_shorthand(x, c);
        return false;
    }
    if (c == 'p' || c == 'P') {
        x->pos++;
        add_property(x, c == 'P');
        return false;
    }
    *cp = take_escape(x, in_class);
    return true;
}

static struct fragment parse_class(struct regex *x) {
    uint32_t first = x->ranges.n;
    bool negate = take(x, "^");
    while (!x->b->rc && peek(x) != ']') {
        uint32_t lo = 0, hi;
        if (peek(x) < 0) {
            refuse(x, CHIMERE_EFORMAT, "class without closing bracket");
            break;
        }
        if (!take_member(x, true, &lo)) continue;
        hi = lo;
        if (peek(x) == '-' && x->pos + 1 < x->p.n && x->p.p[x->pos + 1] != ']') {
            x->pos++;
            if (!take_member(x, true, &hi)) {
                refuse(x, CHIMERE_EFORMAT, "class range ends in a set");
                break;
            }
        }
        if (hi < lo) refuse(x, CHIMERE_EFORMAT, "class range out of order");
        add_range(x, lo, hi);
    }
    x->pos++;
    tidy(x, first, negate);
    return class_fragment(x, first);
}

/* ---- structure of the pattern ---- */

static struct fragment parse_choice(struct regex *x);

/* Makes a lookahead from a parsed group, which must match (negate: must not match) from here on and consumes
 * nothing. */
static struct fragment look_fragment(struct regex *x, struct fragment group, bool negate) {
    if (x->n_look == MAX_LOOK)
        grammar_fail(x->b, CHIMERE_EUNSUPPORTED, "%s: more than %d lookaheads are not supported",
                     x->what, MAX_LOOK);
    if (x->b->rc) return group;
    connect(x, group.end, add_node(x, N_MATCH, GRAMMAR_NONE, GRAMMAR_NONE, 0));
    x->looks[x->n_look] = (struct look){.start = group.start, .negate = negate};
    uint32_t end = add_node(x, N_EMPTY, GRAMMAR_NONE, GRAMMAR_NONE, 0);
    return (struct fragment){add_node(x, N_LOOK, end, GRAMMAR_NONE, x->n_look++), end};
}

static struct fragment parse_group(struct regex *x) {
    bool looks = false, negate = false;
    if (take(x, "?")) {
        if (peek(x) == '=' || peek(x) == '!') {
            looks = true;
            negate = take(x, "!");
            if (!negate) take(x, "=");
        } else if (take(x, "<")) {
            if (peek(x) == '=' || peek(x) == '!')
                refuse(x, CHIMERE_EUNSUPPORTED, "lookbehind is not supported");
            while (peek(x) >= 0 && peek(x) != '>') x->pos++;
            take(x, ">");
        } else if (!take(x, ":")) {
            refuse(x, CHIMERE_EUNSUPPORTED, "this kind of group is not supported");
        }
    }
    struct fragment f = {0, 0};
    if (x->depth >= x->b->lim.depth) {
        grammar_fail(x->b, CHIMERE_ELIMIT, "%s: groups nested deeper than %u", x->what,
                     x->b->lim.depth);
        return f;
    }
    x->depth++;
    if (!x->b->rc) f = parse_choice(x);
    x->depth--;
    if (!x->b->rc && !take(x, ")")) refuse(x, CHIMERE_EFORMAT, "group without closing parenthesis");
    return looks && !x->b->rc ? look_fragment(x, f, negate) : f;
}

static struct fragment parse_atom(struct regex *x) {
    uint32_t first = x->ranges.n;
    int c = peek(x);
    if (c == '^' || c == '$') {
        x->pos++;
        uint32_t end = add_node(x, N_EMPTY, GRAMMAR_NONE, GRAMMAR_NONE, 0);
        return (struct fragment){add_node(x, c == '^' ? N_BEGIN : N_END, end, GRAMMAR_NONE, 0),
                                 end};
    }
    if (c == '(') {
        x->pos++;
        return parse_group(x);
    }
    if (c == '[') {
        x->pos++;
        return parse_class(x);
    }
    if (c == '.') {
        x->pos++;
        add_range(x, '\n', '\n'), add_range(x, '\r', '\r'), add_range(x, 0x2028, 0x2029);
        tidy(x, first, true);
        return class_fragment(x, first);
    }
    if (c == '*' || c == '+' || c == '?') {
        refuse(x, CHIMERE_EFORMAT, "nothing to repeat");
        return (struct fragment){0, 0};
    }
    uint32_t cp;
    if (take_member(x, false, &cp)) add_range(x, cp, cp);
    tidy(x, first, false);
    return class_fragment(x, first);
}

static bool take_number(struct regex *x, uint32_t *out) {
    size_t start = x->pos;
    uint32_t v = 0;
    for (; peek(x) >= '0' && peek(x) <= '9'; x->pos++)
        v = v > MAX_COUNT ? v : v * 10 + (uint32_t)(peek(x) - '0');
    *out = v;
    return x->pos > start;
}

/* Reads a quantifier, if there is one; max GRAMMAR_NONE: no limit. */
static bool take_quantifier(struct regex *x, uint32_t *min, uint32_t *max) {
    size_t start = x->pos;
    *min = 0, *max = GRAMMAR_NONE;
    if (take(x, "+")) *min = 1;
    else if (take(x, "?")) *max = 1;
    else if (!take(x, "*")) {
        if (!take(x, "{")) return false;
        bool ok = take_number(x, min);
        *max = *min;
        if (ok && take(x, ",") && !take_number(x, max)) *max = GRAMMAR_NONE;
        if (!ok || !take(x, "}")) { /* a brace that does not begin a quantifier is a literal */
            x->pos = start;
            return false;
        }
        if (*min > MAX_COUNT || (*max != GRAMMAR_NONE && *max > MAX_COUNT))
            grammar_fail(x->b, CHIMERE_ELIMIT, "%s: more than %u repetitions", x->what, MAX_COUNT);
        if (*max < *min) refuse(x, CHIMERE_EFORMAT, "repetition with a maximum below its minimum");
    }
    take(x, "?"); /* ignore laziness: the same texts match */
    return true;
}

static struct fragment star(struct regex *x, struct fragment f) {
    uint32_t end = add_node(x, N_EMPTY, GRAMMAR_NONE, GRAMMAR_NONE, 0);
    uint32_t split = add_node(x, N_SPLIT, f.start, end, 0);
    connect(x, f.end, split);
    return (struct fragment){split, end};
}

static struct fragment parse_term(struct regex *x) {
    size_t start = x->pos, after;
    struct fragment f = parse_atom(x);
    uint32_t min, max;
    size_t atom_end = x->pos;
    if (x->b->rc || !take_quantifier(x, &min, &max)) return f;
    after = x->pos;
    struct fragment all = empty_fragment(x);
    uint32_t n = max == GRAMMAR_NONE ? min + 1 : max, skip = empty_fragment(x).end;
    for (uint32_t i = 0; i < n && !x->b->rc; i++) {
        if (i > 0) {
            x->pos = start;
            f = parse_atom(x);
            if (x->pos != atom_end) refuse(x, CHIMERE_EINTERNAL, "repetition");
        }
        if (i >= min && max == GRAMMAR_NONE) f = star(x, f);
        uint32_t from = f.start;
        if (i >= min && max != GRAMMAR_NONE) from = add_node(x, N_SPLIT, f.start, skip, 0);
        connect(x, all.end, from);
        all.end = f.end;
    }
    connect(x, all.end, skip);
    all.end = skip;
    x->pos = after;
    return all;
}

static struct fragment parse_choice(struct regex *x) {
    struct fragment all = {GRAMMAR_NONE, 0};
    uint32_t end = add_node(x, N_EMPTY, GRAMMAR_NONE, GRAMMAR_NONE, 0);
    do {
        struct fragment seq = empty_fragment(x);
        while (!x->b->rc && peek(x) >= 0 && peek(x) != '|' && peek(x) != ')') {
            struct fragment f = parse_term(x);
            connect(x, seq.end, f.start);
            seq.end = f.end;
        }
        connect(x, seq.end, end);
        all.start =
            all.start == GRAMMAR_NONE ? seq.start : add_node(x, N_SPLIT, all.start, seq.start, 0);
    } while (!x->b->rc && take(x, "|"));
    all.end = end;
    return all;
}

/* ---- subset construction ---- */

struct subset {
    struct regex *x;
    struct map sets;        /* sorted list of configurations -> state */
    struct grammar_vec set; /* lists of configurations, stored back to back */
    struct grammar_vec at;  /* per state: its first configuration in set */
    struct map known;       /* a configuration with lookaheads, as bytes -> its number */
    struct grammar_vec configs, duties;
    uint32_t *seen, stamp;  /* owned, indexed by configuration */
    uint32_t *list, *stack; /* owned, of the same size */
    uint32_t n_list;
    uint32_t n_atom;
    bool search;
};

static struct config config_of(const struct subset *s, uint32_t i) {
    if (i < s->x->nodes.n) return (struct config){i, 0, 0};
    return ((struct config *)s->configs.p)[i - s->x->nodes.n];
}

static const struct nfa_node *node_of(const struct subset *s, uint32_t i) {
    return (struct nfa_node *)s->x->nodes.p + config_of(s, i).node;
}

static const struct look_table *table_of(const struct subset *s, struct duty d) {
    return &s->x->looks[d.look / 2].table[d.look % 2];
}

enum duty_fate { DUTY_OPEN, DUTY_DONE, DUTY_FAILED };

/* Returns whether the result of a lookahead in this state no longer depends on the text after it. */
static enum duty_fate fate_of(const struct subset *s, struct duty d) {
    bool negate = s->x->looks[d.look / 2].negate;
    const struct look_table *t = table_of(s, d);
    if (d.state == GRAMMAR_NONE || !t->next.n) return negate ? DUTY_DONE : DUTY_FAILED;
    const uint32_t *row = (uint32_t *)t->next.p + (size_t)d.state * s->n_atom;
    bool stays = t->accepts[d.state];
    for (uint32_t a = 0; stays && a < s->n_atom; a++) stays = row[a] == d.state;
    if (!stays) return DUTY_OPEN;
    return negate ? DUTY_FAILED : DUTY_DONE;
}

static int by_bytes(const void *a, const void *b) { return memcmp(a, b, sizeof(struct duty)); }

/* Returns the configuration of a node with these lookaheads; GRAMMAR_NONE: a lookahead has failed. */
static uint32_t config_with(struct subset *s, uint32_t node, const struct duty *duties,
                            uint32_t n) {
    struct grammar_builder *b = s->x->b;
    struct duty key[2 * MAX_LOOK + 2]; /* the first entry holds the node */
    uint32_t k = 1, i;
    memset(key, 0, sizeof key);
    for (i = 0; i < n; i++) {
        enum duty_fate fate = fate_of(s, duties[i]);
        if (fate == DUTY_FAILED) return GRAMMAR_NONE;
        bool is_new = fate == DUTY_OPEN;
        for (uint32_t m = 1; m < k; m++) is_new &= by_bytes(&key[m], &duties[i]) != 0;
        if (is_new && k == sizeof key / sizeof *key) {
            grammar_fail(b, CHIMERE_ELIMIT, "%s: too many lookaheads at one place", s->x->what);
            return GRAMMAR_NONE;
        }
        if (is_new) key[k++] = duties[i];
    }
    if (k == 1) return node;
    key[0].look = node;
    qsort(key + 1, k - 1, sizeof *key, by_bytes);
    if (map_find(&s->known, (char *)key, k * sizeof *key, &i)) return i;
    uint32_t at =
        grammar_vec_add(b, &s->configs, 1, sizeof(struct config), "lookaheads", MAX_CONFIG);
    uint32_t first = grammar_vec_add(b, &s->duties, k - 1, sizeof *key, "lookaheads", UINT32_MAX);
    if (at == GRAMMAR_NONE || first == GRAMMAR_NONE) return GRAMMAR_NONE;
    memcpy((struct duty *)s->duties.p + first, key + 1, (k - 1) * sizeof *key);
    ((struct config *)s->configs.p)[at] = (struct config){node, first, k - 1};
    i = s->x->nodes.n + at;
    if (map_put(&s->known, (char *)key, k * sizeof *key, i) < 0) grammar_nomem(b);
    return i;
}

/* Returns configuration i moved to another node; `more`: an additional lookahead. */
static uint32_t moved(struct subset *s, uint32_t i, uint32_t node, const struct duty *more) {
    struct config c = config_of(s, i);
    if (node == GRAMMAR_NONE || (!c.n && !more)) return node;
    struct duty duties[2 * MAX_LOOK + 2];
    uint32_t n = c.n < 2 * MAX_LOOK + 1 ? c.n : 2 * MAX_LOOK + 1;
    if (n) memcpy(duties, (struct duty *)s->duties.p + c.first, n * sizeof *duties);
    if (more) duties[n++] = *more;
    return config_with(s, node, duties, n);
}

/* Adds configuration i and the configurations that it reaches without input. */
static void close_over(struct subset *s, uint32_t i, bool at_begin, bool at_end) {
    uint32_t n = 0;
    s->stack[n++] = i;
    while (n && !s->x->b->rc) {
        i = s->stack[--n];
        if (i == GRAMMAR_NONE || s->seen[i] == s->stamp) continue;
        s->seen[i] = s->stamp;
        const struct nfa_node *node = node_of(s, i);
        struct duty duty = {2 * node->cls + at_begin, 0};
        bool looks = node->op == N_LOOK;
        bool crosses = looks || node->op == N_EMPTY || node->op == N_SPLIT ||
                       (node->op == N_BEGIN && at_begin) || (node->op == N_END && at_end);
        if (node->op == N_CLASS || node->op == N_MATCH || node->op == N_END)
            s->list[s->n_list++] = i;
        if (!crosses) continue;
        s->stack[n++] = moved(s, i, node->out, looks ? &duty : NULL);
        if (node->op == N_SPLIT) s->stack[n++] = moved(s, i, node->out2, NULL);
    }
}

static int by_value(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* Returns true if configuration i matches whatever text follows. */
static bool is_match(const struct subset *s, uint32_t i) {
    return i < s->x->nodes.n && ((struct nfa_node *)s->x->nodes.p)[i].op == N_MATCH;
}

/* Returns the state for the set in s->list. */
static uint32_t set_state(struct subset *s) {
    struct grammar_builder *b = s->x->b;
    uint32_t state;
    if (s->n_list == 0) return GRAMMAR_NONE;
    for (uint32_t i = 0; s->search && i < s->n_list; i++)
        if (is_match(s, s->list[i])) {
            s->list[0] = s->list[i]; /* it matches whatever follows */
            s->n_list = 1;
        }
    qsort(s->list, s->n_list, 4, by_value);
    if (map_find(&s->sets, (const char *)s->list, s->n_list * 4, &state)) return state;
    uint32_t first = grammar_vec_add(b, &s->set, s->n_list, 4, "states of a pattern", 8u << 20);
    state = grammar_vec_add(b, &s->at, 1, 4, "states of a pattern", DFA_MAX_STATE);
    if (state == GRAMMAR_NONE) return GRAMMAR_NONE;
    memcpy((uint32_t *)s->set.p + first, s->list, s->n_list * 4);
    ((uint32_t *)s->at.p)[state] = first;
    if (map_put(&s->sets, (const char *)s->list, s->n_list * 4, state) < 0) grammar_nomem(b);
    return state;
}

/* Divides the alphabet at all borders of classes; intervals in the same classes get the same atom. member[atom] is
 * a bitset over classes. */
struct alphabet {
    struct grammar_range *iv; /* owned */
    uint64_t *member;         /* owned [n_atom, n_word] */
    uint32_t n_iv, n_atom, n_word;
};

static void cut_alphabet(struct regex *x, struct alphabet *a) {
    const struct nfa_class *classes = x->classes.p;
    const struct grammar_range *ranges = x->ranges.p;
    uint32_t n_cut = 0, n_class = x->classes.n;
    a->n_word = (n_class + 63) / 64 + 1;
    size_t total = 2;
    for (uint32_t c = 0; c < n_class; c++) total += 2 * (size_t)classes[c].n;
    uint32_t *cuts = mem_alloc_array(total, 4);
    uint64_t *now = mem_alloc_array(a->n_word, 8);
    struct map atoms;
    map_init(&atoms, (size_t)64 << 20);
    if (!cuts || !now) grammar_nomem(x->b);
    if (!x->b->rc) {
        cuts[n_cut++] = 0;
        for (uint32_t c = 0; c < n_class; c++)
            for (uint32_t k = 0; k < classes[c].n; k++) {
                cuts[n_cut++] = ranges[classes[c].first + k].lo;
                cuts[n_cut++] = ranges[classes[c].first + k].hi + 1;
            }
        qsort(cuts, n_cut, 4, by_value);
        uint32_t n = 0;
        for (uint32_t i = 0; i < n_cut; i++)
            if (cuts[i] <= 0x10FFFF && (n == 0 || cuts[i] != cuts[n - 1])) cuts[n++] = cuts[i];
        n_cut = n;
        a->iv = mem_alloc_array((size_t)n_cut + 1, sizeof *a->iv);
        a->member = mem_alloc_array((size_t)n_cut * a->n_word + 1, 8);
        if (!a->iv || !a->member || (uint64_t)n_cut * n_class > 64u << 20) grammar_nomem(x->b);
    }
    for (uint32_t i = 0; !x->b->rc && i < n_cut && grammar_tick(x->b, n_class / 4 + 1); i++) {
        memset(now, 0, a->n_word * 8);
        for (uint32_t c = 0; c < n_class; c++) {
            uint32_t lo = classes[c].first, hi = lo + classes[c].n, end = hi;
            while (lo < hi) {
                uint32_t mid = (lo + hi) / 2;
                if (ranges[mid].hi < cuts[i]) lo = mid + 1;
                else hi = mid;
            }
            if (lo < end && ranges[lo].lo <= cuts[i]) now[c / 64] |= 1ULL << c % 64;
        }
        uint32_t atom;
        if (!map_find(&atoms, (char *)now, a->n_word * 8, &atom)) {
            atom = a->n_atom++;
            memcpy(a->member + (size_t)atom * a->n_word, now, a->n_word * 8);
            if (map_put(&atoms, (char *)now, a->n_word * 8, atom) < 0) grammar_nomem(x->b);
        }
        a->iv[a->n_iv++] =
            (struct grammar_range){cuts[i], i + 1 < n_cut ? cuts[i + 1] - 1 : 0x10FFFF, atom};
    }
    map_fini(&atoms);
    mem_free(cuts), mem_free(now);
}

static uint32_t set_end(const struct subset *s, uint32_t state) {
    return state + 1 < s->at.n ? ((uint32_t *)s->at.p)[state + 1] : s->set.n;
}

/* Returns true if configuration i matches at the end of the text. */
static bool matches_at_end(const struct subset *s, uint32_t i) {
    struct config c = config_of(s, i);
    if (node_of(s, i)->op != N_MATCH) return false;
    for (uint32_t k = 0; k < c.n; k++) {
        struct duty d = ((struct duty *)s->duties.p)[c.first + k];
        if (table_of(s, d)->accepts[d.state] == s->x->looks[d.look / 2].negate) return false;
    }
    return true;
}

static bool set_accepts(struct subset *s, uint32_t state) {
    s->stamp++;
    s->n_list = 0;
    for (uint32_t k = ((uint32_t *)s->at.p)[state]; k < set_end(s, state); k++)
        close_over(s, ((uint32_t *)s->set.p)[k], false, true);
    for (uint32_t k = 0; k < s->n_list; k++)
        if (matches_at_end(s, s->list[k])) return true;
    return false;
}

/* Returns configuration i after a character; GRAMMAR_NONE: the character is not allowed. */
static uint32_t step(struct subset *s, const struct alphabet *a, uint32_t i, uint32_t atom) {
    const uint64_t *member = a->member + (size_t)atom * a->n_word;
    const struct nfa_node *node = node_of(s, i);
    struct config c = config_of(s, i);
    uint32_t to = node->out;
    /* the match is complete; only its lookaheads continue */
    if (node->op == N_MATCH && s->search) to = c.node;
    else if (node->op != N_CLASS || !(member[node->cls / 64] >> node->cls % 64 & 1))
        return GRAMMAR_NONE;
    if (!c.n) return to;
    struct duty duties[2 * MAX_LOOK + 2];
    for (uint32_t k = 0; k < c.n; k++) {
        duties[k] = ((struct duty *)s->duties.p)[c.first + k];
        duties[k].state = ((uint32_t *)table_of(s, duties[k])
                               ->next.p)[(size_t)duties[k].state * a->n_atom + atom];
    }
    return config_with(s, to, duties, c.n);
}

/* Explores the sets that can be reached from the start; writes the table to *next (n_atom columns). */
static void explore(struct subset *s, const struct alphabet *a, uint32_t start, bool at_begin,
                    struct grammar_vec *next) {
    struct grammar_builder *b = s->x->b;
    s->stamp++;
    s->n_list = 0;
    close_over(s, start, at_begin, false);
    set_state(s);
    for (uint32_t state = 0; state < s->at.n && grammar_tick(b, a->n_atom); state++) {
        uint32_t row = grammar_vec_add(b, next, a->n_atom, 4, "states of a pattern", DFA_MAX_TABLE);
        for (uint32_t atom = 0; atom < a->n_atom && !b->rc; atom++) {
            uint32_t first = ((uint32_t *)s->at.p)[state], end = set_end(s, state);
            uint32_t to = GRAMMAR_NONE;
            if (s->search && is_match(s, ((uint32_t *)s->set.p)[first])) {
                to = state;
            } else {
                s->stamp++;
                s->n_list = 0;
                for (uint32_t k = first; k < end; k++) {
                    uint32_t i = step(s, a, ((uint32_t *)s->set.p)[k], atom);
                    if (i != GRAMMAR_NONE) close_over(s, i, false, false);
                }
                grammar_tick(b, (end - first) / 8 + 1);
                to = set_state(s);
            }
            if (!b->rc) ((uint32_t *)next->p)[row + atom] = to;
        }
    }
}

/* Computes the states reachable from node `start`. Returns their number; *next: their rows; *accepts: which of
 * them accept. The caller owns both. */
static uint32_t determine(struct regex *x, const struct alphabet *a, uint32_t start, bool search,
                          bool at_begin, struct look_table *out) {
    struct grammar_builder *b = x->b;
    struct subset s = {.x = x, .search = search, .n_atom = a->n_atom};
    size_t n = (size_t)x->nodes.n + (x->n_look ? MAX_CONFIG : 0) + 1;
    map_init(&s.sets, (size_t)128 << 20);
    map_init(&s.known, (size_t)128 << 20);
    s.seen = mem_alloc_array(n, 4);
    s.list = mem_alloc_array(n, 4);
    s.stack = mem_alloc_array(2 * n + 2, 4);
    if (!s.seen || !s.list || !s.stack) grammar_nomem(b);
    else explore(&s, a, start, at_begin, &out->next);
    out->accepts = mem_alloc_array((size_t)s.at.n + 1, sizeof *out->accepts);
    if (!out->accepts) grammar_nomem(b);
    for (uint32_t i = 0; i < s.at.n && !b->rc; i++) out->accepts[i] = set_accepts(&s, i);
    mem_free(s.seen), mem_free(s.list), mem_free(s.stack), mem_free(s.set.p), mem_free(s.at.p);
    mem_free(s.configs.p), mem_free(s.duties.p);
    map_fini(&s.sets), map_fini(&s.known);
    return s.at.n;
}

static void build_table(struct regex *x, uint32_t start, bool search, struct dfa *out) {
    struct grammar_builder *b = x->b;
    struct alphabet a = {.n_iv = 0};
    struct look_table t = {.accepts = NULL};
    uint32_t n_state = 0;
    cut_alphabet(x, &a);
    for (uint32_t i = 0; i < x->n_look && !b->rc; i++) /* inner lookaheads come before outer ones */
        for (int begin = 0; begin < 2 && !b->rc; begin++)
            determine(x, &a, x->looks[i].start, true, begin, &x->looks[i].table[begin]);
    if (!b->rc) n_state = determine(x, &a, start, search, true, &t);
    if (!b->rc && dfa_alloc(b, out, n_state, a.n_atom, a.n_iv)) {
        memcpy(out->intervals, a.iv, a.n_iv * sizeof *a.iv);
        if (t.next.n) memcpy(out->next, t.next.p, (size_t)t.next.n * 4);
        if (n_state) memcpy(out->accepts, t.accepts, n_state * sizeof *t.accepts);
    }
    for (uint32_t i = 0; i < x->n_look; i++)
        for (int k = 0; k < 2; k++) {
            mem_free(x->looks[i].table[k].next.p);
            mem_free(x->looks[i].table[k].accepts);
        }
    mem_free(a.iv), mem_free(a.member), mem_free(t.next.p), mem_free(t.accepts);
    dfa_trim(b, out);
}

void dfa_from_regex(struct grammar_builder *b, struct slice pattern, bool search, const char *what,
                    struct dfa *out) {
    struct regex x = {.b = b, .what = what, .p = pattern};
    *out = (struct dfa){.n_state = 0};
    if (b->rc) return;
    grammar_vec_add(b, &x.ranges, 0, sizeof(struct grammar_range), "ranges", 1);
    grammar_vec_add(b, &x.classes, 0, sizeof(struct nfa_class), "classes", 1);
    struct fragment f = parse_choice(&x);
    if (!b->rc && x.pos < x.p.n) refuse(&x, CHIMERE_EFORMAT, "unexpected )");
    uint32_t match = add_node(&x, N_MATCH, GRAMMAR_NONE, GRAMMAR_NONE, 0);
    connect(&x, f.end, match);
    if (search && !b->rc) { /* any text may precede the match */
        uint32_t first = x.ranges.n;
        add_range(&x, 0, 0x10FFFF);
        struct fragment any = star(&x, class_fragment(&x, first));
        connect(&x, any.end, f.start);
        f.start = any.start;
    }
    if (!b->rc) build_table(&x, f.start, search, out);
    mem_free(x.nodes.p), mem_free(x.ranges.p), mem_free(x.classes.p);
}
