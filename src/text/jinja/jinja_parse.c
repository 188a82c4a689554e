/* jinja_parse.c: parses tokens to a syntax tree by recursive descent; precedence from weak to strong:
 *
 *   a if b else c · or · and · not · comparisons and in · + - · ~ · * / // % · ** · unary - + ·
 *   .name [item] (call) · |filter and is test
 *
 * JINJA_MAX_HEIGHT bounds the recursion here and in the evaluator. */
#include <string.h>

#include "text/jinja/jinja_impl.h"

struct parser {
    struct jinja *j;
    struct jtok *t; /* current token */
    struct err *e;
    int rc;
    uint32_t depth;
    uint32_t n_loop;          /* number of open for loops, for break and continue */
    struct jmacro_def *macro; /* the macro being parsed; records varargs, kwargs, caller */
};

struct list { /* growing node list in the arena */
    struct jnode **v;
    uint32_t n, cap;
};

static struct jnode *parse_expr(struct parser *p, bool with_cond);
static struct jnode *parse_unary(struct parser *p, bool with_filter);
static struct jnode *parse_tuple(struct parser *p, bool with_cond, bool explicit_paren,
                                 const char *end);
static void parse_body(struct parser *p, struct list *out, const char *const *ends);

static void *fail(struct parser *p, uint32_t line, const char *what) {
    if (!p->rc) {
        p->rc = err_set(p->e, CHIMERE_EFORMAT, "%s", what);
        err_prefix(p->e, "template line %u", line);
    }
    return NULL;
}

static void *alloc(struct parser *p, size_t n) {
    void *m = arena_alloc(&p->j->arena, n);
    if (!m && !p->rc)
        p->rc = err_set(p->e, CHIMERE_ELIMIT, "template too large for its memory limit");
    return m;
}

static uint16_t max_height(uint16_t h, const struct jnode *n) {
    return n && n->height > h ? n->height : h;
}

static struct jnode *node(struct parser *p, enum jn_kind kind, uint32_t line, struct jnode *a,
                          struct jnode *b, struct jnode *c) {
    if (p->rc) return NULL;
    struct jnode *n = alloc(p, sizeof *n);
    if (!n) return NULL;
    n->kind = (uint8_t)kind;
    n->line = line;
    n->a = a;
    n->b = b;
    n->c = c;
    n->height = (uint16_t)(max_height(max_height(max_height(0, a), b), c) + 1);
    if (n->height > JINJA_MAX_HEIGHT) return fail(p, line, "an expression is nested too deep");
    return n;
}

static void push(struct parser *p, struct list *l, struct jnode *n) {
    if (p->rc) return;
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 4;
        struct jnode **v = alloc(p, cap * sizeof *v);
        if (!v) return;
        if (l->n) memcpy(v, l->v, l->n * sizeof *v);
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = n;
}

static struct jnode *with_list(struct parser *p, struct jnode *n, const struct list *l) {
    if (!n || p->rc) return NULL;
    n->list = l->v;
    n->n = l->n;
    uint16_t h = n->height;
    for (uint32_t i = 0; i < l->n; i++)
        if (l->v[i] && l->v[i]->height >= h) h = (uint16_t)(l->v[i]->height + 1);
    n->height = h;
    if (h > JINJA_MAX_HEIGHT) return fail(p, n->line, "an expression is nested too deep");
    return n;
}

static bool deeper(struct parser *p) {
    if (p->rc) return false;
    if (p->depth >= JINJA_MAX_HEIGHT) {
        fail(p, p->t->line, "nested too deep");
        return false;
    }
    p->depth++;
    return true;
}

static bool is_name(const struct jtok *t, const char *s) {
    return t->kind == JT_NAME && t->text.n == strlen(s) && memcmp(t->text.p, s, t->text.n) == 0;
}
static void next(struct parser *p) {
    if (p->t->kind != JT_EOF) p->t++;
}
static bool skip(struct parser *p, enum jtok_kind k) {
    if (p->rc || p->t->kind != k) return false;
    next(p);
    return true;
}
static bool skip_name(struct parser *p, const char *s) {
    if (p->rc || !is_name(p->t, s)) return false;
    next(p);
    return true;
}

static void unexpected(struct parser *p, const char *expected) {
    if (p->rc) return;
    const struct jtok *t = p->t;
    bool named = t->kind == JT_NAME || t->kind == JT_INT || t->kind == JT_FLOAT;
    p->rc = err_set(p->e, CHIMERE_EFORMAT, "template line %u: expected %s, got '%.*s'", t->line,
                    expected, named ? (int)(t->text.n > 60 ? 60 : t->text.n) : 40,
                    named ? t->text.p : jtok_name(t->kind));
}
static void expect(struct parser *p, enum jtok_kind k) {
    if (!skip(p, k)) unexpected(p, jtok_name(k));
}
static struct jtok *expect_name(struct parser *p) {
    struct jtok *t = p->t;
    if (!skip(p, JT_NAME)) {
        unexpected(p, "a name");
        return NULL;
    }
    return t;
}

static struct jstr *text_value(struct parser *p, const char *s, size_t n, bool copy) {
    struct jstr *t = alloc(p, sizeof *t);
    if (!t) return NULL;
    if (copy) {
        char *q = alloc(p, n + 1);
        if (!q) return NULL;
        if (n) memcpy(q, s, n);
        s = q;
    }
    *t = (struct jstr){.p = s, .n = n, .n_char = SIZE_MAX, .tmpl = true};
    jstr_len(t); /* computed now, because concurrent renders share the string */
    return t;
}

static uint32_t intern(struct parser *p, const char *s, size_t n) {
    struct jinja *j = p->j;
    uint32_t id = 0;
    if (p->rc || map_find(&j->ids, s, n, &id)) return id;
    if (j->n_name == j->cap_name) {
        uint32_t cap = j->cap_name ? j->cap_name * 2 : 64;
        struct jstr **v = alloc(p, cap * sizeof *v);
        if (!v) return 0;
        if (j->n_name) memcpy(v, j->names, j->n_name * sizeof *v);
        j->names = v;
        j->cap_name = cap;
    }
    id = j->n_name;
    j->names[id] = text_value(p, s, n, true);
    if (p->rc) return 0;
    if (map_put(&j->ids, s, n, id) < 0) {
        p->rc = err_set(p->e, CHIMERE_ENOMEM, "template: out of memory");
        return 0;
    }
    j->n_name++;
    return id;
}

static struct jnode *constant(struct parser *p, uint32_t line, struct jv v) {
    struct jnode *n = node(p, JN_CONST, line, NULL, NULL, NULL);
    if (n) n->value = v;
    return n;
}

static void add_literal(struct parser *p, struct jstr *s) {
    struct jinja *j = p->j;
    if (p->rc || !s || !s->n) return;
    if (j->n_literal == j->cap_literal) {
        uint32_t cap = j->cap_literal ? j->cap_literal * 2 : 64;
        struct jstr **v = alloc(p, cap * sizeof *v);
        if (!v) return;
        if (j->n_literal) memcpy(v, j->literals, j->n_literal * sizeof *v);
        j->literals = v;
        j->cap_literal = cap;
    }
    j->literals[j->n_literal++] = s;
}

/* Adjacent string tokens are joined. */
static struct jnode *parse_strings(struct parser *p) {
    uint32_t line = p->t->line;
    size_t n = 0, at = 0;
    const struct jtok *first = p->t;
    for (const struct jtok *t = first; t->kind == JT_STRING; t++) n += t->text.n;
    char *s = alloc(p, n + 1);
    if (!s) return NULL;
    while (p->t->kind == JT_STRING) {
        if (p->t->text.n) memcpy(s + at, p->t->text.p, p->t->text.n);
        at += p->t->text.n;
        next(p);
    }
    struct jstr *v = text_value(p, s, n, false);
    add_literal(p, v);
    return constant(p, line, (struct jv){.kind = JV_STR, .s = v});
}

static struct jnode *name_node(struct parser *p, const struct jtok *t) {
    struct jnode *n = node(p, JN_NAME, t->line, NULL, NULL, NULL);
    if (!n) return NULL;
    n->name = intern(p, t->text.p, t->text.n);
    if (p->macro) {
        p->macro->uses_varargs |= n->name == p->j->id_varargs;
        p->macro->uses_kwargs |= n->name == p->j->id_kwargs;
        p->macro->uses_caller |= n->name == p->j->id_caller;
    }
    return n;
}

static struct jnode *parse_list(struct parser *p) {
    struct jnode *n = node(p, JN_LIST, p->t->line, NULL, NULL, NULL);
    struct list l = {0};
    next(p);
    while (!p->rc && p->t->kind != JT_RBRACKET) {
        if (l.n) expect(p, JT_COMMA);
        if (p->t->kind == JT_RBRACKET) break;
        push(p, &l, parse_expr(p, true));
    }
    expect(p, JT_RBRACKET);
    return with_list(p, n, &l);
}

static struct jnode *parse_dict(struct parser *p) {
    struct jnode *n = node(p, JN_DICT, p->t->line, NULL, NULL, NULL);
    struct list l = {0};
    next(p);
    while (!p->rc && p->t->kind != JT_RBRACE) {
        if (l.n) expect(p, JT_COMMA);
        if (p->t->kind == JT_RBRACE) break;
        push(p, &l, parse_expr(p, true));
        expect(p, JT_COLON);
        push(p, &l, parse_expr(p, true));
    }
    expect(p, JT_RBRACE);
    return with_list(p, n, &l);
}

static struct jnode *parse_primary(struct parser *p, bool with_ns) {
    const struct jtok *t = p->t;
    if (p->rc) return NULL;
    switch (t->kind) {
    case JT_NAME:
        next(p);
        if (is_name(t, "true") || is_name(t, "True")) return constant(p, t->line, jv_bool(true));
        if (is_name(t, "false") || is_name(t, "False")) return constant(p, t->line, jv_bool(false));
        if (is_name(t, "none") || is_name(t, "None")) return constant(p, t->line, jv_none());
        if (with_ns && skip(p, JT_DOT)) {
            const struct jtok *attr = expect_name(p);
            struct jnode *n = node(p, JN_NSREF, t->line, NULL, NULL, NULL);
            if (!n) return NULL;
            n->name = intern(p, t->text.p, t->text.n);
            n->name2 = intern(p, attr->text.p, attr->text.n);
            return n;
        }
        return name_node(p, t);
    case JT_STRING: return parse_strings(p);
    case JT_INT: next(p); return constant(p, t->line, jv_int(t->i));
    case JT_FLOAT: next(p); return constant(p, t->line, jv_float(t->f));
    case JT_LPAREN: {
        next(p);
        struct jnode *n = parse_tuple(p, true, true, NULL);
        expect(p, JT_RPAREN);
        return p->rc ? NULL : n;
    }
    case JT_LBRACKET: return parse_list(p);
    case JT_LBRACE: return parse_dict(p);
    default: unexpected(p, "an expression"); return NULL;
    }
}

static bool tuple_ends(const struct parser *p, const char *end) {
    enum jtok_kind k = p->t->kind;
    return k == JT_VAR_END || k == JT_BLOCK_END || k == JT_RPAREN || (end && is_name(p->t, end));
}

static struct jnode *parse_tuple(struct parser *p, bool with_cond, bool explicit_paren,
                                 const char *end) {
    uint32_t line = p->t->line;
    struct list l = {0};
    bool is_tuple = false;
    while (!p->rc) {
        if (l.n) expect(p, JT_COMMA);
        if (tuple_ends(p, end)) break;
        push(p, &l, parse_expr(p, with_cond));
        if (p->t->kind != JT_COMMA) break;
        is_tuple = true;
    }
    if (p->rc) return NULL;
    if (!is_tuple && l.n) return l.v[0];
    if (!is_tuple && !explicit_paren) {
        unexpected(p, "an expression");
        return NULL;
    }
    return with_list(p, node(p, JN_TUPLE, line, NULL, NULL, NULL), &l);
}

static void parse_args(struct parser *p, struct jargs **out) {
    struct jargs *a = *out = alloc(p, sizeof *a);
    struct list pos = {0};
    uint32_t cap_kw = 0;
    uint32_t line = p->t->line;
    expect(p, JT_LPAREN);
    for (bool first = true; !p->rc && p->t->kind != JT_RPAREN; first = false) {
        if (!first) {
            expect(p, JT_COMMA);
            if (p->t->kind == JT_RPAREN) break;
        }
        bool bad = false;
        if (skip(p, JT_MUL)) {
            bad = a->star || a->star2;
            a->star = parse_expr(p, true);
        } else if (skip(p, JT_POW)) {
            bad = a->star2 != NULL;
            a->star2 = parse_expr(p, true);
        } else if (p->t->kind == JT_NAME && p->t[1].kind == JT_ASSIGN) {
            bad = a->star2 != NULL;
            if (a->n_kw == cap_kw) {
                cap_kw = cap_kw ? cap_kw * 2 : 4;
                struct jkw *kw = alloc(p, cap_kw * sizeof *kw);
                if (!kw) return;
                if (a->n_kw) memcpy(kw, a->kw, a->n_kw * sizeof *kw);
                a->kw = kw;
            }
            struct jkw *kw = &a->kw[a->n_kw];
            uint32_t name = intern(p, p->t->text.p, p->t->text.n);
            if (p->rc) return;
            kw->name = p->j->names[name]; /* after intern, which may move the array */
            next(p);
            next(p);
            kw->value = parse_expr(p, true);
            if (!p->rc) a->n_kw++;
        } else {
            bad = a->star || a->star2 || a->n_kw;
            push(p, &pos, parse_expr(p, true));
        }
        if (bad) fail(p, line, "arguments of a call are in an order that is not allowed");
    }
    expect(p, JT_RPAREN);
    if (p->rc) return;
    a->pos = pos.v;
    a->n_pos = pos.n;
}

static uint16_t args_height(const struct jargs *a, uint16_t h) {
    if (!a) return h;
    for (uint32_t i = 0; i < a->n_pos; i++) h = max_height(h, a->pos[i]);
    for (uint32_t i = 0; i < a->n_kw; i++) h = max_height(h, a->kw[i].value);
    return max_height(max_height(h, a->star), a->star2);
}

static struct jnode *with_args(struct parser *p, struct jnode *n, struct jargs *a) {
    if (!n || p->rc) return NULL;
    n->args = a;
    uint16_t h = args_height(a, 0);
    if (h >= n->height) n->height = (uint16_t)(h + 1);
    if (n->height > JINJA_MAX_HEIGHT) return fail(p, n->line, "an expression is nested too deep");
    return n;
}

static struct jnode *parse_slice_or_expr(struct parser *p) {
    struct jnode *part[3] = {NULL, NULL, NULL};
    uint32_t line = p->t->line;
    if (p->t->kind != JT_COLON) {
        part[0] = parse_expr(p, true);
        if (p->rc || p->t->kind != JT_COLON) return part[0];
    }
    for (int i = 1; i < 3 && skip(p, JT_COLON); i++) {
        enum jtok_kind k = p->t->kind;
        if (k != JT_COLON && k != JT_RBRACKET && k != JT_COMMA) part[i] = parse_expr(p, true);
    }
    return node(p, JN_SLICE, line, part[0], part[1], part[2]);
}

static struct jnode *parse_postfix(struct parser *p, struct jnode *n) {
    while (!p->rc) {
        uint32_t line = p->t->line;
        if (skip(p, JT_DOT)) {
            const struct jtok *t = p->t;
            next(p);
            if (t->kind == JT_INT) {
                n = node(p, JN_GETITEM, line, n, constant(p, line, jv_int(t->i)), NULL);
            } else if (t->kind == JT_NAME) {
                n = node(p, JN_GETATTR, line, n, NULL, NULL);
                if (n) n->name = intern(p, t->text.p, t->text.n);
            } else {
                fail(p, line, "expected a name or a number behind '.'");
            }
        } else if (skip(p, JT_LBRACKET)) {
            struct jnode *key = parse_slice_or_expr(p);
            if (p->t->kind == JT_COMMA) {
                struct list l = {0};
                push(p, &l, key);
                while (skip(p, JT_COMMA) && p->t->kind != JT_RBRACKET)
                    push(p, &l, parse_expr(p, true));
                key = with_list(p, node(p, JN_TUPLE, line, NULL, NULL, NULL), &l);
            }
            expect(p, JT_RBRACKET);
            n = node(p, JN_GETITEM, line, n, key, NULL);
        } else if (p->t->kind == JT_LPAREN) {
            struct jargs *a;
            parse_args(p, &a);
            n = with_args(p, node(p, JN_CALL, line, n, NULL, NULL), a);
        } else {
            return n;
        }
    }
    return NULL;
}

static struct jnode *dotted(struct parser *p, struct jnode *n, char *name, size_t size) {
    size_t len = 0;
    do {
        const struct jtok *t = expect_name(p);
        if (!t) return NULL;
        if (len + t->text.n + 2 > size) return fail(p, t->line, "a filter's name is too long");
        if (len) name[len++] = '.';
        memcpy(name + len, t->text.p, t->text.n);
        len += t->text.n;
    } while (skip(p, JT_DOT));
    name[len] = 0;
    if (n) n->name = intern(p, name, len);
    return p->rc ? NULL : n;
}

/* Parses a chain of filters on n; inline_start: the first one has no '|' before it. */
static struct jnode *parse_filters(struct parser *p, struct jnode *n, bool inline_start) {
    while (!p->rc && (inline_start || skip(p, JT_PIPE))) {
        inline_start = false;
        char name[128];
        n = dotted(p, node(p, JN_FILTER, p->t->line, n, NULL, NULL), name, sizeof name);
        if (!n) return NULL;
        n->fn = j_find_filter(name, strlen(name));
        if (p->t->kind == JT_LPAREN) {
            struct jargs *a;
            parse_args(p, &a);
            n = with_args(p, n, a);
        }
    }
    return p->rc ? NULL : n;
}

static struct jnode *parse_test(struct parser *p, struct jnode *a) {
    char name[128];
    uint32_t line = p->t->line;
    next(p); /* skips `is` */
    bool negated = skip_name(p, "not");
    struct jnode *n = dotted(p, node(p, JN_TEST, line, a, NULL, NULL), name, sizeof name);
    if (!n) return NULL;
    n->fn = j_find_test(name, strlen(name));
    enum jtok_kind k = p->t->kind;
    if (k == JT_LPAREN) {
        struct jargs *args;
        parse_args(p, &args);
        n = with_args(p, n, args);
    } else if ((k == JT_NAME || k == JT_STRING || k == JT_INT || k == JT_FLOAT ||
                k == JT_LBRACKET || k == JT_LBRACE) &&
               !is_name(p->t, "else") && !is_name(p->t, "or") && !is_name(p->t, "and")) {
        if (is_name(p->t, "is")) return fail(p, line, "tests with 'is' cannot be chained");
        struct jargs *args = alloc(p, sizeof *args);
        struct list l = {0};
        push(p, &l, parse_postfix(p, parse_primary(p, false)));
        if (!args || p->rc) return NULL;
        args->pos = l.v;
        args->n_pos = 1;
        n = with_args(p, n, args);
    }
    return negated ? node(p, JN_NOT, line, n, NULL, NULL) : n;
}

static struct jnode *parse_filter_expr(struct parser *p, struct jnode *n) {
    while (!p->rc) {
        if (p->t->kind == JT_PIPE) {
            n = parse_filters(p, n, false);
        } else if (is_name(p->t, "is")) {
            n = parse_test(p, n);
        } else if (p->t->kind == JT_LPAREN) {
            struct jargs *a;
            uint32_t line = p->t->line;
            parse_args(p, &a);
            n = with_args(p, node(p, JN_CALL, line, n, NULL, NULL), a);
        } else {
            return n;
        }
    }
    return NULL;
}

static struct jnode *parse_unary(struct parser *p, bool with_filter) {
    if (!deeper(p)) return NULL;
    uint32_t line = p->t->line;
    struct jnode *n;
    if (skip(p, JT_SUB)) n = node(p, JN_NEG, line, parse_unary(p, false), NULL, NULL);
    else if (skip(p, JT_ADD)) n = node(p, JN_POS, line, parse_unary(p, false), NULL, NULL);
    else n = parse_primary(p, false);
    n = parse_postfix(p, n);
    if (with_filter) n = parse_filter_expr(p, n);
    p->depth--;
    return n;
}

static struct jnode *binary(struct parser *p, uint32_t line, enum jtok_kind op, struct jnode *a,
                            struct jnode *b) {
    struct jnode *n = node(p, JN_BINARY, line, a, b, NULL);
    if (n) n->op = (uint8_t)op;
    return n;
}

static struct jnode *parse_pow(struct parser *p) {
    struct jnode *left = parse_unary(p, true);
    for (uint32_t line = p->t->line; skip(p, JT_POW); line = p->t->line)
        left = binary(p, line, JT_POW, left, parse_unary(p, true));
    return left;
}

static struct jnode *parse_product(struct parser *p) {
    struct jnode *left = parse_pow(p);
    for (;;) {
        enum jtok_kind k = p->t->kind;
        uint32_t line = p->t->line;
        if (p->rc || (k != JT_MUL && k != JT_DIV && k != JT_FLOORDIV && k != JT_MOD)) return left;
        next(p);
        left = binary(p, line, k, left, parse_pow(p));
    }
}

static struct jnode *parse_concat(struct parser *p) {
    uint32_t line = p->t->line;
    struct jnode *first = parse_product(p);
    if (p->rc || p->t->kind != JT_TILDE) return first;
    struct list l = {0};
    push(p, &l, first);
    while (skip(p, JT_TILDE)) push(p, &l, parse_product(p));
    return with_list(p, node(p, JN_CONCAT, line, NULL, NULL, NULL), &l);
}

static struct jnode *parse_sum(struct parser *p) {
    struct jnode *left = parse_concat(p);
    for (;;) {
        enum jtok_kind k = p->t->kind;
        uint32_t line = p->t->line;
        if (p->rc || (k != JT_ADD && k != JT_SUB)) return left;
        next(p);
        left = binary(p, line, k, left, parse_concat(p));
    }
}

static struct jnode *parse_compare(struct parser *p) {
    uint32_t line = p->t->line;
    struct jnode *first = parse_sum(p);
    struct list l = {0};
    while (!p->rc) {
        enum jtok_kind k = p->t->kind;
        uint32_t op_line = p->t->line;
        if (k == JT_EQ || k == JT_NE || k == JT_LT || k == JT_LE || k == JT_GT || k == JT_GE) {
            next(p);
        } else if (skip_name(p, "in")) {
            k = JT_IN;
        } else if (is_name(p->t, "not") && is_name(&p->t[1], "in")) {
            next(p);
            next(p);
            k = JT_NOTIN;
        } else {
            break;
        }
        struct jnode *n = node(p, JN_OPERAND, op_line, parse_sum(p), NULL, NULL);
        if (n) n->op = (uint8_t)k;
        push(p, &l, n);
    }
    if (!l.n) return p->rc ? NULL : first;
    return with_list(p, node(p, JN_COMPARE, line, first, NULL, NULL), &l);
}

static struct jnode *parse_not(struct parser *p) {
    uint32_t line = p->t->line;
    if (!is_name(p->t, "not")) return parse_compare(p);
    if (!deeper(p)) return NULL;
    next(p);
    struct jnode *n = node(p, JN_NOT, line, parse_not(p), NULL, NULL);
    p->depth--;
    return n;
}

static struct jnode *parse_and(struct parser *p) {
    struct jnode *left = parse_not(p);
    for (uint32_t line = p->t->line; skip_name(p, "and"); line = p->t->line)
        left = node(p, JN_AND, line, left, parse_not(p), NULL);
    return left;
}

static struct jnode *parse_or(struct parser *p) {
    struct jnode *left = parse_and(p);
    for (uint32_t line = p->t->line; skip_name(p, "or"); line = p->t->line)
        left = node(p, JN_OR, line, left, parse_and(p), NULL);
    return left;
}

static struct jnode *parse_expr(struct parser *p, bool with_cond) {
    if (!deeper(p)) return NULL;
    uint32_t line = p->t->line;
    struct jnode *n = parse_or(p);
    while (with_cond && skip_name(p, "if")) {
        struct jnode *test = parse_or(p);
        struct jnode *other = skip_name(p, "else") ? parse_expr(p, true) : NULL;
        n = node(p, JN_COND, line, n, test, other);
    }
    p->depth--;
    return p->rc ? NULL : n;
}

/* ---- statements ---- */

static struct jnode *parse_target(struct parser *p, bool with_ns, const char *end) {
    uint32_t line = p->t->line;
    struct list l = {0};
    bool is_tuple = false;
    while (!p->rc) {
        if (l.n) expect(p, JT_COMMA);
        if (tuple_ends(p, end)) break;
        struct jnode *n;
        if (p->t->kind == JT_LPAREN) {
            if (!deeper(p)) return NULL;
            next(p);
            n = parse_target(p, with_ns, NULL);
            expect(p, JT_RPAREN);
            p->depth--;
        } else {
            n = parse_primary(p, with_ns);
        }
        if (n && n->kind != JN_NAME && n->kind != JN_NSREF && n->kind != JN_TUPLE)
            fail(p, line, "cannot assign to this");
        push(p, &l, n);
        if (p->t->kind != JT_COMMA) break;
        is_tuple = true;
    }
    if (p->rc) return NULL;
    if (!is_tuple && l.n) return l.v[0];
    if (!l.n) {
        unexpected(p, "a name to assign to");
        return NULL;
    }
    return with_list(p, node(p, JN_TUPLE, line, NULL, NULL, NULL), &l);
}

static const char *const end_for[] = {"endfor", "else", NULL};
static const char *const end_for_else[] = {"endfor", NULL};
static const char *const end_if[] = {"elif", "else", "endif", NULL};
static const char *const end_else[] = {"endif", NULL};

static struct jnode *parse_block(struct parser *p, struct jnode *n, const char *end) {
    const char *const ends[] = {end, NULL};
    struct list body = {0};
    parse_body(p, &body, ends);
    next(p);
    return with_list(p, n, &body);
}

static struct jnode *parse_for(struct parser *p, uint32_t line) {
    struct jnode *target = parse_target(p, false, "in");
    if (!skip_name(p, "in")) {
        unexpected(p, "in");
        return NULL;
    }
    struct jnode *items = parse_tuple(p, false, false, "recursive");
    struct jnode *test = skip_name(p, "if") ? parse_expr(p, true) : NULL;
    bool recursive = skip_name(p, "recursive");
    struct list body = {0}, other = {0};
    p->n_loop++;
    parse_body(p, &body, end_for);
    p->n_loop--;
    if (skip_name(p, "else")) parse_body(p, &other, end_for_else);
    next(p);
    struct jnode *n = with_list(p, node(p, JN_FOR, line, target, items, test), &body);
    if (!n || !(n->args = alloc(p, sizeof *n->args))) return NULL;
    n->op = recursive;
    n->args->pos = other.v;
    n->args->n_pos = other.n;
    return with_args(p, n, n->args);
}

static struct jnode *parse_if(struct parser *p, uint32_t line) {
    struct jnode *first = NULL, *last = NULL;
    uint16_t height = 0;
    for (bool more = true; more && !p->rc;) {
        struct jnode *n = node(p, JN_IF, line, parse_tuple(p, false, false, NULL), NULL, NULL);
        struct list body = {0};
        parse_body(p, &body, end_if);
        n = with_list(p, n, &body);
        if (!n) return NULL;
        if (last) last->c = n;
        else first = n;
        last = n;
        if (n->height > height) height = n->height;
        line = p->t->line;
        more = skip_name(p, "elif");
    }
    if (skip_name(p, "else")) {
        struct jnode *n = node(p, JN_BODY, line, NULL, NULL, NULL);
        struct list body = {0};
        parse_body(p, &body, end_else);
        n = with_list(p, n, &body);
        if (!n) return NULL;
        last->c = n;
        if (n->height > height) height = n->height;
    }
    next(p);
    if (first) first->height = height;
    return p->rc ? NULL : first;
}

static struct jnode *parse_set(struct parser *p, uint32_t line) {
    struct jnode *target = parse_target(p, true, NULL);
    if (skip(p, JT_ASSIGN))
        return node(p, JN_SET, line, target, parse_tuple(p, true, false, NULL), NULL);
    struct jnode *filter = parse_filters(p, NULL, false);
    return parse_block(p, node(p, JN_SET_BLOCK, line, target, filter, NULL), "endset");
}

static void parse_signature(struct parser *p, struct jmacro_def *m) {
    uint32_t cap = 0;
    bool has_default = false;
    expect(p, JT_LPAREN);
    while (!p->rc && p->t->kind != JT_RPAREN) {
        if (m->n_param) expect(p, JT_COMMA);
        const struct jtok *t = expect_name(p);
        if (!t) return;
        if (m->n_param == cap) {
            cap = cap ? cap * 2 : 4;
            struct jparam *v = alloc(p, cap * sizeof *v);
            if (!v) return;
            if (m->n_param) memcpy(v, m->params, m->n_param * sizeof *v);
            m->params = v;
        }
        struct jparam *q = &m->params[m->n_param];
        q->name = intern(p, t->text.p, t->text.n);
        if (p->rc) return;
        q->text = p->j->names[q->name];
        m->has_caller_param |= q->name == p->j->id_caller;
        if (skip(p, JT_ASSIGN)) {
            q->def = parse_expr(p, true);
            has_default = true;
        } else if (has_default) {
            fail(p, t->line, "a parameter without default follows one with default");
        }
        m->n_param++;
    }
    expect(p, JT_RPAREN);
}

/* Parses the body of a macro, call block or generation block: it has its own names, and break cannot leave it. */
static void parse_macro_body(struct parser *p, struct jmacro_def *m, const char *end) {
    const char *const ends[] = {end, NULL};
    struct list body = {0};
    uint32_t loops = p->n_loop;
    p->n_loop = 0;
    parse_body(p, &body, ends);
    p->n_loop = loops;
    next(p);
    m->body = body.v;
    m->n_body = body.n;
}

static struct jnode *parse_macro(struct parser *p, uint32_t line, bool is_call) {
    struct jmacro_def *outer = p->macro, *m = alloc(p, sizeof *m);
    struct jnode *call = NULL;
    if (!m) return NULL;
    if (is_call) {
        if (p->t->kind == JT_LPAREN) parse_signature(p, m);
        call = parse_expr(p, true);
        if (call && call->kind != JN_CALL) return fail(p, line, "a call block needs a call");
    }
    struct jnode *n = node(p, is_call ? JN_CALL_BLOCK : JN_MACRO, line, call, NULL, NULL);
    if (!n) return NULL;
    n->macro = m;
    p->macro = m;
    if (!is_call) {
        const struct jtok *t = expect_name(p);
        if (!t) return NULL;
        n->name = intern(p, t->text.p, t->text.n);
        if (p->rc) return NULL;
        m->name = p->j->names[n->name];
        parse_signature(p, m);
    }
    parse_macro_body(p, m, is_call ? "endcall" : "endmacro");
    p->macro = outer;
    /* a call block's use of caller, varargs and kwargs counts for the macro around it */
    if (outer) {
        outer->uses_caller |= m->uses_caller && is_call;
        outer->uses_varargs |= m->uses_varargs && is_call;
        outer->uses_kwargs |= m->uses_kwargs && is_call;
    }
    return p->rc ? NULL : n;
}

static struct jnode *parse_with(struct parser *p, uint32_t line) {
    struct list pairs = {0};
    while (!p->rc && p->t->kind != JT_BLOCK_END) {
        if (pairs.n) expect(p, JT_COMMA);
        push(p, &pairs, parse_target(p, false, NULL));
        expect(p, JT_ASSIGN);
        push(p, &pairs, parse_expr(p, true));
    }
    struct jnode *n = parse_block(p, node(p, JN_WITH, line, NULL, NULL, NULL), "endwith");
    if (!n || !(n->args = alloc(p, sizeof *n->args))) return NULL;
    n->args->pos = pairs.v;
    n->args->n_pos = pairs.n;
    return with_args(p, n, n->args);
}

static struct jnode *parse_print(struct parser *p, uint32_t line) {
    struct list l = {0};
    while (!p->rc && p->t->kind != JT_BLOCK_END) {
        if (l.n) expect(p, JT_COMMA);
        push(p, &l, parse_expr(p, true));
    }
    return with_list(p, node(p, JN_OUTPUT, line, NULL, NULL, NULL), &l);
}

static struct jnode *parse_generation(struct parser *p, uint32_t line) {
    struct jnode *n = node(p, JN_SCOPE, line, NULL, NULL, NULL);
    struct jmacro_def m = {0};
    parse_macro_body(p, &m, "endgeneration");
    struct list l = {m.body, m.n_body, m.n_body};
    return with_list(p, n, &l);
}

static struct jnode *parse_jump(struct parser *p, uint32_t line, enum jn_kind kind) {
    if (!p->n_loop) return fail(p, line, "break or continue outside of a loop");
    return node(p, kind, line, NULL, NULL, NULL);
}

static struct jnode *parse_statement(struct parser *p) {
    const struct jtok *t = expect_name(p);
    if (!t) return NULL;
    uint32_t line = t->line;
    if (is_name(t, "for")) return parse_for(p, line);
    if (is_name(t, "if")) return parse_if(p, line);
    if (is_name(t, "set")) return parse_set(p, line);
    if (is_name(t, "macro")) return parse_macro(p, line, false);
    if (is_name(t, "call")) return parse_macro(p, line, true);
    if (is_name(t, "with")) return parse_with(p, line);
    if (is_name(t, "print")) return parse_print(p, line);
    if (is_name(t, "generation")) return parse_generation(p, line);
    if (is_name(t, "break")) return parse_jump(p, line, JN_BREAK);
    if (is_name(t, "continue")) return parse_jump(p, line, JN_CONTINUE);
    if (is_name(t, "filter")) {
        struct jnode *f = parse_filters(p, NULL, true);
        return parse_block(p, node(p, JN_FILTER_BLOCK, line, NULL, f, NULL), "endfilter");
    }
    static const char *const left_out[] = {"include",    "import", "from", "extends", "block",
                                           "autoescape", "trans",  "do",   "debug"};
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (is_name(t, left_out[i])) {
            p->rc = err_set(p->e, CHIMERE_EUNSUPPORTED, "template line %u: '%s' is not supported",
                            line, left_out[i]);
            return NULL;
        }
    p->rc = err_set(p->e, CHIMERE_EFORMAT, "template line %u: unknown or misplaced tag '%.*s'",
                    line, (int)(t->text.n > 60 ? 60 : t->text.n), t->text.p);
    return NULL;
}

static bool at_end(const struct parser *p, const char *const *ends) {
    for (; ends && *ends; ends++)
        if (is_name(p->t, *ends)) return true;
    return false;
}

static void parse_data(struct parser *p, struct list *out) {
    struct jnode *n = node(p, JN_DATA, p->t->line, NULL, NULL, NULL);
    struct jstr *s = text_value(p, p->t->text.p, p->t->text.n, false);
    if (!n || !s) return;
    add_literal(p, s);
    n->value = (struct jv){.kind = JV_STR, .s = s};
    push(p, out, n);
    next(p);
}

/* Parses statements up to an end tag, which remains the current token; ends NULL: up to the end of the template. */
static void parse_body(struct parser *p, struct list *out, const char *const *ends) {
    if (!deeper(p)) return;
    if (ends) {
        skip(p, JT_COLON);
        expect(p, JT_BLOCK_END);
    }
    while (!p->rc) {
        if (p->t->kind == JT_EOF) {
            if (ends && !p->rc)
                p->rc =
                    err_set(p->e, CHIMERE_EFORMAT, "template line %u: expected '%s', got the end",
                            p->t->line, ends[0]);
            break;
        }
        if (p->t->kind == JT_DATA) {
            parse_data(p, out);
        } else if (p->t->kind == JT_VAR_BEGIN) {
            uint32_t line = p->t->line;
            next(p);
            struct list l = {0};
            push(p, &l, parse_tuple(p, true, false, NULL));
            push(p, out, with_list(p, node(p, JN_OUTPUT, line, NULL, NULL, NULL), &l));
            expect(p, JT_VAR_END);
        } else {
            expect(p, JT_BLOCK_BEGIN);
            if (at_end(p, ends)) break;
            push(p, out, parse_statement(p));
            expect(p, JT_BLOCK_END);
        }
    }
    p->depth--;
}

int jinja_parse(struct jinja *j, struct jtok *toks, size_t n_tok, struct err *e) {
    (void)n_tok;
    struct parser p = {.j = j, .t = toks, .e = e};
    j->id_loop = intern(&p, "loop", 4);
    j->id_caller = intern(&p, "caller", 6);
    j->id_varargs = intern(&p, "varargs", 7);
    j->id_kwargs = intern(&p, "kwargs", 6);
    struct list body = {0};
    parse_body(&p, &body, NULL);
    j->body = body.v;
    j->n_body = body.n;
    if (!p.rc) jinja_scopes(j);
    return p.rc;
}
