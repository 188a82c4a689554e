#include "tools/calc.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

enum token {
    T_END,
    T_NUMBER,
    T_NAME,
    T_PLUS,
    T_MINUS,
    T_TIMES,
    T_DIVIDE,
    T_POWER,
    T_PERCENT,
    T_OF,
    T_MODULO,
    T_BANG,
    T_OPEN,
    T_CLOSE,
    T_COMMA,
    T_BAD,
};

struct parser {
    const char *s;
    size_t n, at; /* at: offset after the current token */
    size_t from;  /* where the current token begins */
    enum token kind;
    struct slice text; /* text of a number or a name */
    int depth, in_call;
    struct err *e;
    int n_step;
};

/* Spellings of operators. The first match wins, so a longer spelling is listed before its prefixes. */
static const struct {
    const char *text;
    enum token kind;
} spellings[] = {
    {"**", T_POWER},
    {"^", T_POWER},
    {"+", T_PLUS},
    {"-", T_MINUS},
    {"\xe2\x88\x92", T_MINUS},
    {"\xe2\x80\x93", T_MINUS},
    {"*", T_TIMES},
    {"\xc3\x97", T_TIMES},
    {"\xc2\xb7", T_TIMES},
    {"\xe2\x8b\x85", T_TIMES},
    {"//", T_BAD},
    {"/", T_DIVIDE},
    {"\xc3\xb7", T_DIVIDE},
    {":", T_DIVIDE},
    {"%", T_PERCENT},
    {"!", T_BANG},
    {"(", T_OPEN},
    {"[", T_OPEN},
    {")", T_CLOSE},
    {"]", T_CLOSE},
    {",", T_COMMA},
    {";", T_COMMA},
};

static const struct {
    const char *text;
    enum token kind;
} words[] = {
    {"plus", T_PLUS},
    {"minus", T_MINUS},
    {"moins", T_MINUS},
    {"less", T_MINUS},
    {"times", T_TIMES},
    {"fois", T_TIMES},
    {"multiplied by", T_TIMES},
    {"multiplie par", T_TIMES},
    {"multipli\xc3\xa9 par", T_TIMES},
    {"x", T_TIMES},
    {"over", T_DIVIDE},
    {"divided by", T_DIVIDE},
    {"divise par", T_DIVIDE},
    {"divis\xc3\xa9 par", T_DIVIDE},
    {"of", T_OF},
    {"de", T_OF},
    {"mod", T_MODULO},
};

static int fail(struct parser *p, const char *what) {
    size_t n = p->n - p->from < 24 ? p->n - p->from : 24;
    return err_set(p->e, CHIMERE_EFORMAT, "expression: %s at byte %zu, got \"%.*s\"", what, p->from,
                   (int)n, p->s + p->from);
}

static bool is_digit_at(const struct parser *p, size_t i) {
    return i < p->n && p->s[i] >= '0' && p->s[i] <= '9';
}

/* Returns true if the separator at i is followed by exactly three digits. */
static bool groups(const struct parser *p, size_t i) {
    return is_digit_at(p, i + 1) && is_digit_at(p, i + 2) && is_digit_at(p, i + 3) &&
           !is_digit_at(p, i + 4);
}

static void scan_number(struct parser *p) {
    size_t i = p->at, first = i;
    while (is_digit_at(p, i)) ++i;
    size_t lead = i - first;
    /* thousands: 1,234,567 and 1 234 567; within the brackets of a call a comma separates arguments */
    while (lead <= 3 && lead > 0 && i < p->n &&
           ((p->s[i] == ',' && !p->in_call) || p->s[i] == ' ' || p->s[i] == '_') && groups(p, i))
        i += 4;
    bool comma = i < p->n && p->s[i] == ',' && !p->in_call && is_digit_at(p, i + 1);
    if (i < p->n && (p->s[i] == '.' || comma)) {
        ++i;
        while (is_digit_at(p, i)) ++i;
    }
    if (i < p->n && (p->s[i] == 'e' || p->s[i] == 'E')) {
        size_t k = i + 1;
        if (k < p->n && (p->s[k] == '+' || p->s[k] == '-')) ++k;
        if (is_digit_at(p, k)) {
            while (is_digit_at(p, k)) ++k;
            i = k;
        }
    }
    p->kind = T_NUMBER;
    p->text = (struct slice){p->s + first, i - first};
    p->at = i;
}

static bool word_at(const struct parser *p, size_t i, const char *word) {
    size_t n = strlen(word);
    if (p->n - i < n) return false;
    for (size_t k = 0; k < n; ++k)
        if ((p->s[i + k] | (word[k] >= 'a' ? 0x20 : 0)) != word[k]) return false;
    unsigned char next = i + n < p->n ? (unsigned char)p->s[i + n] : 0;
    /* 3x4: a digit may follow "x" directly; other words end before letters and digits */
    return n == 1 ? !isalpha(next) && next < 0x80 : !isalnum(next) && next < 0x80;
}

static void advance(struct parser *p) {
    while (p->at < p->n && (isspace((unsigned char)p->s[p->at]) ||
                            (p->n - p->at >= 2 && !memcmp(p->s + p->at, "\xc2\xa0", 2))))
        p->at += p->s[p->at] == '\xc2' ? 2 : 1;
    p->from = p->at;
    p->kind = T_END;
    if (p->at >= p->n) return;
    unsigned char c = (unsigned char)p->s[p->at];
    if (isdigit(c) || (c == '.' && is_digit_at(p, p->at + 1))) {
        scan_number(p);
        return;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; ++i)
        if (word_at(p, p->at, words[i].text)) {
            p->at += strlen(words[i].text);
            p->kind = words[i].kind;
            return;
        }
    if (isalpha(c)) {
        size_t i = p->at;
        while (i < p->n && (isalnum((unsigned char)p->s[i]) || p->s[i] == '_')) ++i;
        p->text = (struct slice){p->s + p->at, i - p->at};
        p->at = i;
        p->kind = T_NAME;
        return;
    }
    for (size_t i = 0; i < sizeof spellings / sizeof *spellings; ++i) {
        size_t n = strlen(spellings[i].text);
        if (p->n - p->at >= n && !memcmp(p->s + p->at, spellings[i].text, n)) {
            p->at += n;
            p->kind = spellings[i].kind;
            return;
        }
    }
    p->kind = T_BAD;
}

static double as_double(const struct calc_value *v) {
    return v->exact ? ratio_to_f64(&v->q) : v->x;
}

static int inexact(struct parser *p, struct calc_value *v, double x) {
    if (!isfinite(x))
        return err_set(p->e, CHIMERE_ENUMERIC, "expression: the result is no finite number");
    *v = (struct calc_value){.x = x};
    return 0;
}

static int arithmetic(struct parser *p, int rc) {
    if (rc == CHIMERE_EINVAL) return err_set(p->e, rc, "expression: division by zero");
    if (rc == CHIMERE_ELIMIT)
        return err_set(p->e, rc, "expression: a value has more than %d bits", RATIO_BITS);
    return rc;
}

static int modulo(struct ratio *r, const struct ratio *a, const struct ratio *b) {
    struct ratio q;
    int rc = ratio_div(&q, a, b);
    if (!rc) rc = ratio_floor(&q, &q);
    if (!rc) rc = ratio_mul(&q, &q, b);
    return rc ? rc : ratio_sub(r, a, &q);
}

static int raise(struct parser *p, struct calc_value *a, const struct calc_value *b) {
    int64_t k;
    if (a->exact && b->exact && ratio_to_i64(&b->q, &k)) {
        if (!a->q.num.n && k < 0) return arithmetic(p, CHIMERE_EINVAL);
        return arithmetic(p, ratio_pow(&a->q, &a->q, k));
    }
    return inexact(p, a, pow(as_double(a), as_double(b)));
}

static int binary(struct parser *p, enum token op, struct calc_value *a,
                  const struct calc_value *b) {
    if (op == T_POWER) return raise(p, a, b);
    if (a->exact && b->exact) {
        int rc = op == T_PLUS     ? ratio_add(&a->q, &a->q, &b->q)
                 : op == T_MINUS  ? ratio_sub(&a->q, &a->q, &b->q)
                 : op == T_TIMES  ? ratio_mul(&a->q, &a->q, &b->q)
                 : op == T_MODULO ? modulo(&a->q, &a->q, &b->q)
                                  : ratio_div(&a->q, &a->q, &b->q);
        return arithmetic(p, rc);
    }
    double x = as_double(a), y = as_double(b);
    if ((op == T_DIVIDE || op == T_MODULO) && y == 0) return arithmetic(p, CHIMERE_EINVAL);
    return inexact(p, a,
                   op == T_PLUS     ? x + y
                   : op == T_MINUS  ? x - y
                   : op == T_TIMES  ? x * y
                   : op == T_MODULO ? x - y * floor(x / y)
                                    : x / y);
}

static int sum(struct parser *p, struct calc_value *v);

enum { MAX_ARGS = 16 };

static int exact_root(struct parser *p, struct calc_value *v) {
    (void)p;
    return v->exact && ratio_sqrt(&v->q, &v->q) ? 0 : 1;
}

static int rounding(struct parser *p, struct calc_value *v, char how) {
    if (!v->exact)
        return inexact(p, v, how == 'f' ? floor(v->x) : how == 'c' ? ceil(v->x) : round(v->x));
    bool minus = v->q.minus;
    struct ratio half;
    int rc = 0;
    if (how == 'r') { /* rounds halves away from zero */
        ratio_set(&half, 2);
        struct ratio one;
        ratio_set(&one, 1);
        rc = ratio_div(&half, &one, &half);
        v->q.minus = false;
        if (!rc) rc = ratio_add(&v->q, &v->q, &half);
        if (!rc) rc = ratio_floor(&v->q, &v->q);
        v->q.minus = minus && v->q.num.n;
        return arithmetic(p, rc);
    }
    if (how == 'c') v->q.minus = !minus && v->q.num.n;
    rc = ratio_floor(&v->q, &v->q);
    if (how == 'c') v->q.minus = !v->q.minus && v->q.num.n;
    return arithmetic(p, rc);
}

static int gcd(struct parser *p, struct calc_value *a, const struct calc_value *b, bool lcm) {
    if (!a->exact || !b->exact || !ratio_is_int(&a->q) || !ratio_is_int(&b->q))
        return err_set(p->e, CHIMERE_EINVAL, "expression: %s: expected integers",
                       lcm ? "lcm" : "gcd");
    struct ratio x = a->q, y = b->q, t;
    x.minus = y.minus = false;
    int rc = 0;
    while (!rc && y.num.n) {
        rc = modulo(&t, &x, &y);
        x = y;
        y = t;
    }
    if (rc) return arithmetic(p, rc);
    if (!lcm) {
        a->q = x;
        return 0;
    }
    if (!x.num.n) return 0;
    rc = ratio_mul(&t, &a->q, &b->q);
    if (!rc) rc = ratio_div(&a->q, &t, &x);
    a->q.minus = false;
    return arithmetic(p, rc);
}

static const struct function {
    const char *name;
    int min_arg, max_arg;
    double (*real)(double); /* function of one double; NULL: `exact` selects the function */
    char exact;
} functions[] = {
    {"sqrt", 1, 1, sqrt, 's'},      {"racine", 1, 1, sqrt, 's'}, {"abs", 1, 1, NULL, 'a'},
    {"floor", 1, 1, NULL, 'f'},     {"ceil", 1, 1, NULL, 'c'},   {"round", 1, 1, NULL, 'r'},
    {"arrondi", 1, 1, NULL, 'r'},   {"min", 1, 16, NULL, '<'},   {"max", 1, 16, NULL, '>'},
    {"sum", 1, 16, NULL, '+'},      {"mean", 1, 16, NULL, 'm'},  {"gcd", 2, 16, NULL, 'g'},
    {"lcm", 2, 16, NULL, 'l'},      {"mod", 2, 2, NULL, '%'},    {"pow", 2, 2, NULL, '^'},
    {"factorial", 1, 1, NULL, '!'}, {"exp", 1, 1, exp, 0},       {"ln", 1, 1, log, 0},
    {"log", 1, 1, log10, 0},        {"log10", 1, 1, log10, 0},   {"log2", 1, 1, log2, 0},
    {"sin", 1, 1, sin, 0},          {"cos", 1, 1, cos, 0},       {"tan", 1, 1, tan, 0},
    {"asin", 1, 1, asin, 0},        {"acos", 1, 1, acos, 0},     {"atan", 1, 1, atan, 0},
    {"cbrt", 1, 1, cbrt, 0},
};

static int factorial(struct parser *p, struct calc_value *v) {
    int64_t k;
    if (!v->exact || !ratio_to_i64(&v->q, &k) || k < 0)
        return err_set(p->e, CHIMERE_EINVAL, "expression: factorial: expected an integer from 0");
    if (k > 1000) return arithmetic(p, CHIMERE_ELIMIT);
    struct ratio r, f;
    ratio_set(&r, 1);
    for (int64_t i = 2; i <= k; ++i) {
        ratio_set(&f, i);
        int rc = ratio_mul(&r, &r, &f);
        if (rc) return arithmetic(p, rc);
    }
    v->q = r;
    return 0;
}

static int apply(struct parser *p, const struct function *f, struct calc_value *arg, int n) {
    int rc = 0;
    switch (f->exact) {
    case 's':
        if (!exact_root(p, arg)) return 0;
        break;
    case 'a':
        if (!arg->exact) arg->x = fabs(arg->x);
        else arg->q.minus = false;
        return 0;
    case 'f':
    case 'c':
    case 'r': return rounding(p, arg, f->exact);
    case '%': return binary(p, T_MODULO, &arg[0], &arg[1]);
    case '^': return binary(p, T_POWER, &arg[0], &arg[1]);
    case '!': return factorial(p, arg);
    case 0: break;
    default:
        for (int i = 1; i < n && !rc; ++i) {
            bool both = arg[0].exact && arg[i].exact;
            int c = both                                  ? ratio_cmp(&arg[i].q, &arg[0].q)
                    : as_double(&arg[i]) < as_double(arg) ? -1
                                                          : as_double(&arg[i]) > as_double(arg);
            if ((f->exact == '<' && c < 0) || (f->exact == '>' && c > 0)) arg[0] = arg[i];
            if (f->exact == '+' || f->exact == 'm') rc = binary(p, T_PLUS, arg, &arg[i]);
            if (f->exact == 'g' || f->exact == 'l') rc = gcd(p, arg, &arg[i], f->exact == 'l');
        }
        if (!rc && f->exact == 'm') {
            struct calc_value count = {.exact = true};
            ratio_set(&count.q, n);
            rc = binary(p, T_DIVIDE, arg, &count);
        }
        return rc;
    }
    return inexact(p, arg, f->real(as_double(arg)));
}

static int call(struct parser *p, const struct function *f, struct calc_value *v) {
    struct calc_value *arg = mem_alloc_array(MAX_ARGS, sizeof *arg);
    if (!arg) return err_set(p->e, CHIMERE_ENOMEM, "out of memory");
    int n = 0, rc = 0;
    ++p->in_call;
    advance(p); /* skips the closing bracket */
    for (;;) {
        if (n == f->max_arg) rc = fail(p, "too many arguments");
        if (!rc) rc = sum(p, &arg[n++]);
        if (rc || p->kind != T_COMMA) break;
        advance(p);
    }
    --p->in_call;
    if (!rc && p->kind != T_CLOSE) rc = fail(p, "expected )");
    if (!rc && n < f->min_arg) rc = fail(p, "too few arguments");
    if (!rc) {
        advance(p);
        rc = apply(p, f, arg, n);
    }
    if (!rc) *v = arg[0];
    mem_free(arg);
    return rc;
}

static int number(struct parser *p, struct calc_value *v) {
    char clean[CALC_MAX_TEXT + 1];
    size_t n = 0, n_comma = 0, last = 0;
    bool dot = memchr(p->text.p, '.', p->text.n);
    for (size_t i = 0; i < p->text.n; ++i)
        if (p->text.p[i] == ',') ++n_comma, last = i;
    for (size_t i = 0; i < p->text.n; ++i) {
        char c = p->text.p[i];
        if (c == ' ' || c == '_') continue;
        if (c == ',') { /* a decimal comma, unless exactly three digits follow it */
            bool decimal = i == last && !dot && p->text.n - i - 1 != 3;
            if (decimal) clean[n++] = '.';
            continue;
        }
        clean[n++] = c;
    }
    (void)n_comma;
    v->exact = true;
    int rc = ratio_parse(&v->q, clean, n);
    if (rc == CHIMERE_EFORMAT) return fail(p, "expected a number");
    if (rc) return arithmetic(p, rc);
    advance(p);
    return 0;
}

static int name(struct parser *p, struct calc_value *v) {
    struct slice s = p->text;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i) {
        const struct function *f = &functions[i];
        if (strlen(f->name) != s.n || memcmp(f->name, s.p, s.n)) continue;
        advance(p);
        return p->kind == T_OPEN ? call(p, f, v) : fail(p, "expected ( behind a function");
    }
    bool pi = s.n == 2 && !memcmp(s.p, "pi", 2), e = s.n == 1 && *s.p == 'e';
    if (!pi && !e) return fail(p, "unknown name");
    advance(p);
    return inexact(p, v, pi ? 3.14159265358979323846 : 2.71828182845904523536);
}

static int atom(struct parser *p, struct calc_value *v) {
    switch (p->kind) {
    case T_NUMBER: return number(p, v);
    case T_NAME: return name(p, v);
    case T_OPEN: {
        int outer = p->in_call;
        p->in_call = 0;
        advance(p);
        int rc = sum(p, v);
        p->in_call = outer;
        if (!rc && p->kind != T_CLOSE) rc = fail(p, "expected )");
        if (!rc) advance(p);
        return rc;
    }
    default: return fail(p, "expected a number");
    }
}

static bool begins_operand(enum token t) { return t == T_NUMBER || t == T_NAME || t == T_OPEN; }

/* an atom and the signs after it: 5!, 15%, 15% of 80, 17 % 5 */
static int postfix(struct parser *p, struct calc_value *v) {
    int rc = atom(p, v);
    while (!rc && (p->kind == T_BANG || p->kind == T_PERCENT)) {
        if (p->kind == T_BANG) {
            advance(p);
            rc = factorial(p, v);
            continue;
        }
        struct parser before = *p;
        advance(p);
        if (begins_operand(p->kind)) { /* modulo, which is parsed with the products */
            *p = before;
            p->kind = T_MODULO;
            break;
        }
        struct calc_value hundred = {.exact = true};
        ratio_set(&hundred.q, 100);
        rc = binary(p, T_DIVIDE, v, &hundred);
    }
    return rc;
}

static int power(struct parser *p, struct calc_value *v);

static int sign(struct parser *p, struct calc_value *v) {
    if (++p->depth > CALC_MAX_DEPTH)
        return err_set(p->e, CHIMERE_ELIMIT, "expression: nested more than %d deep",
                       CALC_MAX_DEPTH);
    int rc;
    if (p->kind == T_MINUS || p->kind == T_PLUS) {
        bool minus = p->kind == T_MINUS;
        advance(p);
        rc = sign(p, v);
        if (!rc && minus) {
            if (v->exact) v->q.minus = !v->q.minus && v->q.num.n;
            else v->x = -v->x;
        }
    } else {
        rc = power(p, v);
    }
    --p->depth;
    return rc;
}

static int power(struct parser *p, struct calc_value *v) {
    int rc = postfix(p, v);
    if (rc || p->kind != T_POWER) return rc;
    advance(p);
    struct calc_value k;
    rc = sign(p, &k); /* right-associative */
    return rc ? rc : raise(p, v, &k);
}

static int product(struct parser *p, struct calc_value *v) {
    int rc = sign(p, v);
    while (!rc && (p->kind == T_TIMES || p->kind == T_DIVIDE || p->kind == T_MODULO ||
                   p->kind == T_OF || p->kind == T_OPEN)) {
        enum token op = p->kind == T_OF || p->kind == T_OPEN ? T_TIMES : p->kind;
        if (p->kind != T_OPEN) advance(p); /* 2(3 + 4) has no operator to skip */
        struct calc_value b;
        rc = sign(p, &b);
        if (!rc) rc = binary(p, op, v, &b);
    }
    return rc;
}

static int sum(struct parser *p, struct calc_value *v) {
    int rc = product(p, v);
    while (!rc && (p->kind == T_PLUS || p->kind == T_MINUS)) {
        enum token op = p->kind;
        advance(p);
        struct calc_value b;
        rc = product(p, &b);
        if (!rc) rc = binary(p, op, v, &b);
    }
    return rc;
}

int calc_eval(struct calc_value *v, const char *text, size_t n, struct err *e) {
    if (n > CALC_MAX_TEXT)
        return err_set(e, CHIMERE_ELIMIT, "expression: expected at most %d bytes, got %zu",
                       CALC_MAX_TEXT, n);
    while (n && (isspace((unsigned char)text[n - 1]) || text[n - 1] == '=' || text[n - 1] == '?'))
        --n;
    struct parser p = {.s = text, .n = n, .e = e};
    advance(&p);
    int rc = sum(&p, v);
    if (!rc && p.kind != T_END) rc = fail(&p, "expected an operator");
    return rc;
}

void calc_write(struct buf *b, const struct calc_value *v) {
    if (!v->exact) {
        buf_printf(b, "%.14g (rounded)", v->x);
        return;
    }
    if (ratio_write(b, &v->q)) return;
    struct ratio num = v->q, den = v->q;
    ratio_set(&den, 1);
    num.den = den.den;
    den.num = v->q.den;
    if (num.num.n > 8 || den.num.n > 8) return;
    buf_puts(b, " (");
    ratio_write(b, &num);
    buf_putc(b, '/');
    ratio_write(b, &den);
    buf_putc(b, ')');
}
