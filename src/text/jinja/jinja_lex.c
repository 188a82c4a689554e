/* jinja_lex.c: splits template text into tokens, with the whitespace rules of trim_blocks and lstrip_blocks.
 *
 * Everything outside of tags is data. A tag `{% ... %}` removes one newline after it. Blanks between the start of
 * a line and a block or comment tag are removed too. `-` at either end of a tag removes all white space there, `+`
 * keeps it. An end mark counts only if no bracket is open, so `{{ {'a': {}} }}` is parsed correctly. */
#include <string.h>

#include "text/jinja/jinja_impl.h"

struct lexer {
    struct arena *arena;
    const char *s; /* view [n] */
    size_t n, pos;
    uint32_t line;
    bool line_starting; /* the last thing read ended with a newline */
    struct jtok *toks;
    size_t n_tok, cap_tok;
    char open[JINJA_MAX_HEIGHT]; /* open brackets */
    size_t n_open;
    struct err *e;
};

static int lex_fail(struct lexer *x, const char *what) {
    return err_set(x->e, CHIMERE_EFORMAT, "template line %u: %s", x->line, what);
}

static int push(struct lexer *x, enum jtok_kind kind, struct slice text, struct jtok **out) {
    if (x->n_tok == x->cap_tok) {
        size_t cap = x->cap_tok ? x->cap_tok * 2 : 256;
        struct jtok *t = arena_alloc(x->arena, cap * sizeof *t);
        if (!t) return err_set(x->e, CHIMERE_ENOMEM, "template too large for its memory limit");
        if (x->n_tok) memcpy(t, x->toks, x->n_tok * sizeof *t);
        x->toks = t;
        x->cap_tok = cap;
    }
    struct jtok *t = &x->toks[x->n_tok++];
    *t = (struct jtok){.kind = (uint8_t)kind, .line = x->line, .text = text};
    if (out) *out = t;
    return 0;
}

/* Moves to `to` and counts lines. */
static void advance(struct lexer *x, size_t to) {
    for (; x->pos < to; x->pos++)
        if (x->s[x->pos] == '\n') x->line++;
    if (to) x->line_starting = x->s[to - 1] == '\n';
}

static size_t skip_space(const struct lexer *x, size_t at) {
    uint32_t cp;
    for (int k; at < x->n && (k = utf8_decode(x->s + at, x->n - at, &cp)) > 0 && py_is_space(cp);)
        at += (size_t)k;
    return at;
}

static size_t rstrip_to(const struct lexer *x, size_t from, size_t to) {
    while (to > from) {
        size_t b = to - 1;
        while (b > from && ((unsigned char)x->s[b] & 0xc0) == 0x80) b--;
        uint32_t cp;
        if (utf8_decode(x->s + b, to - b, &cp) <= 0 || !py_is_space(cp)) break;
        to = b;
    }
    return to;
}

static bool at_text(const struct lexer *x, size_t at, const char *what) {
    size_t k = strlen(what);
    return x->n - at >= k && memcmp(x->s + at, what, k) == 0;
}

/* Checks for an end mark such as "%}" at `at`. Returns its length including the white space it removes; 0 if there
 * is none. */
static size_t end_mark(const struct lexer *x, size_t at, const char *mark, bool plus, bool trim) {
    if (at >= x->n) return 0;
    if (plus && x->s[at] == '+' && at_text(x, at + 1, mark)) return 3;
    if (x->s[at] == '-' && at_text(x, at + 1, mark)) return skip_space(x, at + 3) - at;
    if (!at_text(x, at, mark)) return 0;
    return trim && at + 2 < x->n && x->s[at + 2] == '\n' ? 3 : 2;
}

/* Adds the data from..to before a tag whose sign is '-', '+' or 0. */
static int put_data(struct lexer *x, size_t from, size_t to, char sign, bool may_lstrip) {
    size_t end = to;
    if (sign == '-') {
        end = rstrip_to(x, from, to);
    } else if (sign != '+' && may_lstrip) {
        size_t line = to;
        while (line > from && x->s[line - 1] != '\n') line--;
        if ((line > from || x->line_starting) && rstrip_to(x, line, to) == line) end = line;
    }
    int rc = end > from ? push(x, JT_DATA, (struct slice){x->s + from, end - from}, NULL) : 0;
    advance(x, to);
    return rc;
}

/* Checks for "{%- raw %}" at `at`. Returns its length including the white space it removes; 0 if there is none. */
static size_t raw_begin(const struct lexer *x, size_t at) {
    size_t p = at + 2;
    if (!at_text(x, at, "{%")) return 0;
    if (p < x->n && (x->s[p] == '-' || x->s[p] == '+')) p++;
    p = skip_space(x, p);
    if (!at_text(x, p, "raw")) return 0;
    p = skip_space(x, p + 3);
    size_t k = end_mark(x, p, "%}", false, false);
    return k ? p + k - at : 0;
}

static int lex_raw(struct lexer *x) {
    for (size_t at = x->pos; at + 1 < x->n; at++) {
        if (!at_text(x, at, "{%")) continue;
        size_t p = at + 2;
        char sign = 0;
        if (p < x->n && (x->s[p] == '-' || x->s[p] == '+')) sign = x->s[p++];
        p = skip_space(x, p);
        if (!at_text(x, p, "endraw")) continue;
        p = skip_space(x, p + 6);
        size_t k = end_mark(x, p, "%}", true, true);
        if (!k) continue;
        int rc = put_data(x, x->pos, at, sign, true);
        advance(x, p + k);
        return rc;
    }
    return lex_fail(x, "a raw block is not closed by {% endraw %}");
}

static int lex_comment(struct lexer *x) {
    if (x->pos == x->n) return 0; /* the template ends with the opening mark; Jinja2 accepts this */
    for (size_t at = x->pos; at < x->n; at++) {
        size_t k = end_mark(x, at, "#}", true, true);
        if (!k) continue;
        advance(x, at + k);
        return 0;
    }
    return lex_fail(x, "a comment is not closed by #}");
}

static bool is_name_byte(unsigned char c, bool first) {
    return c == '_' || c >= 0x80 || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (!first && c >= '0' && c <= '9');
}
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Returns the end of a run of digits with single underscores in between; `at` if there is none. */
static size_t digits_end(const struct lexer *x, size_t at) {
    size_t end = at;
    while (at < x->n) {
        if (is_digit(x->s[at])) end = ++at;
        else if (x->s[at] == '_' && end == at && at > 0 && end > 0) at++;
        else break;
    }
    return end;
}

static int lex_number(struct lexer *x) {
    size_t b = x->pos, e = digits_end(x, b);
    bool is_float = false;
    if (e + 1 < x->n && x->s[e] == '.' && is_digit(x->s[e + 1])) {
        e = digits_end(x, e + 1);
        is_float = true;
    }
    if (e < x->n && (x->s[e] == 'e' || x->s[e] == 'E')) {
        size_t p = e + 1;
        if (p < x->n && (x->s[p] == '+' || x->s[p] == '-')) p++;
        if (p < x->n && is_digit(x->s[p])) {
            e = digits_end(x, p);
            is_float = true;
        }
    }
    int base = 10;
    if (!is_float && x->s[b] == '0' && b + 1 < x->n) {
        char c = (char)(x->s[b + 1] | 0x20);
        base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
        if (base != 10)
            for (e = b + 2; e < x->n && (is_name_byte((unsigned char)x->s[e], false) &&
                                         (unsigned char)x->s[e] < 0x80);)
                e++;
    }
    struct jtok *t = NULL;
    int rc = push(x, is_float ? JT_FLOAT : JT_INT, (struct slice){x->s + b, e - b}, &t);
    if (rc) return rc;
    if (is_float) {
        if (!jf_parse_float(x->s + b, e - b, &t->f)) return lex_fail(x, "malformed number");
    } else {
        int bad = jf_parse_int(x->s + b, e - b, base, &t->i);
        if (bad)
            return lex_fail(x, bad == -2 ? "an integer is beyond 64 bits" : "malformed number");
    }
    advance(x, e);
    return 0;
}

static int hex_value(char c) {
    return is_digit(c)            ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Converts one escape after a backslash at s[*i]; writes its bytes to out and moves *i after it. */
static int unescape_one(struct lexer *x, const char *s, size_t n, size_t *i, char *out,
                        size_t *n_out) {
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    char c = s[*i];
    const char *simple = memchr(from, c, sizeof from - 1);
    if (simple) {
        out[(*n_out)++] = to[simple - from];
        ++*i;
        return 0;
    }
    if (c == '\n') { /* a backslash before a line break removes it */
        ++*i;
        return 0;
    }
    uint32_t cp = 0;
    size_t len = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (len) {
        if (n - *i <= len) return lex_fail(x, "a \\x, \\u or \\U escape in a string is too short");
        for (size_t k = 1; k <= len; k++) {
            int h = hex_value(s[*i + k]);
            if (h < 0 || cp > 0x0fffffff) return lex_fail(x, "bad digit in a string escape");
            cp = cp << 4 | (uint32_t)h;
        }
        *i += len + 1;
    } else if (c >= '0' && c <= '7') {
        for (len = 0; len < 3 && *i < n && s[*i] >= '0' && s[*i] <= '7'; len++, ++*i)
            cp = cp << 3 | (uint32_t)(s[*i] - '0');
    } else if (c == 'N') {
        return lex_fail(x, "\\N{...} escapes are not supported");
    } else { /* an unknown escape keeps its backslash */
        out[(*n_out)++] = '\\';
        return 0;
    }
    int k = cp == 0 ? 0 : utf8_encode(cp, out + *n_out);
    if (k == 0) return lex_fail(x, "a string escape names NUL, a surrogate or no character");
    *n_out += (size_t)k;
    return 0;
}

static int lex_string(struct lexer *x) {
    char quote = x->s[x->pos];
    size_t b = x->pos + 1, e = b;
    while (e < x->n && x->s[e] != quote) e += x->s[e] == '\\' ? 2 : 1;
    if (e >= x->n) return lex_fail(x, "a string is not closed");
    char *out = arena_alloc(x->arena, e - b + 1);
    if (!out) return err_set(x->e, CHIMERE_ENOMEM, "template too large for its memory limit");
    size_t n_out = 0;
    for (size_t i = 0; i < e - b;) {
        if (x->s[b + i] != '\\') {
            out[n_out++] = x->s[b + i++];
            continue;
        }
        i++;
        int rc = unescape_one(x, x->s + b, e - b, &i, out, &n_out);
        if (rc) return rc;
    }
    int rc = push(x, JT_STRING, (struct slice){out, n_out}, NULL);
    advance(x, e + 1);
    return rc;
}

static const struct {
    const char *text;
    enum jtok_kind kind;
} operators[] = {
    {"//", JT_FLOORDIV}, {"**", JT_POW},   {"==", JT_EQ},      {"!=", JT_NE},      {">=", JT_GE},
    {"<=", JT_LE},       {"+", JT_ADD},    {"-", JT_SUB},      {"/", JT_DIV},      {"*", JT_MUL},
    {"%", JT_MOD},       {"~", JT_TILDE},  {"[", JT_LBRACKET}, {"]", JT_RBRACKET}, {"(", JT_LPAREN},
    {")", JT_RPAREN},    {"{", JT_LBRACE}, {"}", JT_RBRACE},   {">", JT_GT},       {"<", JT_LT},
    {"=", JT_ASSIGN},    {".", JT_DOT},    {":", JT_COLON},    {"|", JT_PIPE},     {",", JT_COMMA},
    {";", JT_SEMICOLON},
};

const char *jtok_name(enum jtok_kind k) {
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (operators[i].kind == k) return operators[i].text;
    switch (k) {
    case JT_EOF: return "end of template";
    case JT_DATA: return "template text";
    case JT_VAR_BEGIN: return "{{";
    case JT_VAR_END: return "}}";
    case JT_BLOCK_BEGIN: return "{%";
    case JT_BLOCK_END: return "%}";
    case JT_NAME: return "name";
    case JT_STRING: return "string";
    case JT_INT: return "integer";
    case JT_FLOAT: return "float";
    default: return "?";
    }
}

static int lex_operator(struct lexer *x) {
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (!at_text(x, x->pos, operators[i].text)) continue;
        char c = x->s[x->pos];
        if (c == '(' || c == '[' || c == '{') {
            if (x->n_open == sizeof x->open) return lex_fail(x, "brackets are nested too deep");
            x->open[x->n_open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
        } else if (c == ')' || c == ']' || c == '}') {
            if (!x->n_open || x->open[--x->n_open] != c)
                return lex_fail(x, "a closing bracket has no partner");
        }
        size_t k = strlen(operators[i].text);
        int rc = push(x, operators[i].kind, (struct slice){x->s + x->pos, k}, NULL);
        advance(x, x->pos + k);
        return rc;
    }
    return err_set(x->e, CHIMERE_EFORMAT, "template line %u: unexpected character '%.4s'", x->line,
                   x->s + x->pos);
}

/* Tokenizes the inside of {{ }} or {% %} including its end mark. */
static int lex_tag(struct lexer *x, bool is_block) {
    int rc = 0;
    x->n_open = 0;
    while (!rc) {
        if (x->pos >= x->n) return 0; /* the parser reports that the template ended */
        size_t k = x->n_open ? 0 : end_mark(x, x->pos, is_block ? "%}" : "}}", is_block, is_block);
        if (k) {
            rc = push(x, is_block ? JT_BLOCK_END : JT_VAR_END, (struct slice){x->s + x->pos, 2},
                      NULL);
            advance(x, x->pos + k);
            return rc;
        }
        size_t space = skip_space(x, x->pos);
        char c = x->s[x->pos];
        if (space > x->pos) {
            advance(x, space);
        } else if (is_digit(c)) {
            rc = lex_number(x);
        } else if (is_name_byte((unsigned char)c, true)) {
            size_t e = x->pos;
            while (e < x->n && is_name_byte((unsigned char)x->s[e], false)) e++;
            rc = push(x, JT_NAME, (struct slice){x->s + x->pos, e - x->pos}, NULL);
            advance(x, e);
        } else if (c == '\'' || c == '"') {
            rc = lex_string(x);
        } else {
            rc = lex_operator(x);
        }
    }
    return rc;
}

static int lex_root(struct lexer *x) {
    size_t at = x->pos;
    while (at + 1 < x->n && !(x->s[at] == '{' && strchr("%#{", x->s[at + 1]) && x->s[at + 1])) at++;
    if (at + 1 >= x->n) {
        int rc = push(x, JT_DATA, (struct slice){x->s + x->pos, x->n - x->pos}, NULL);
        advance(x, x->n);
        return rc;
    }
    char kind = x->s[at + 1];
    char sign = at + 2 < x->n && (x->s[at + 2] == '-' || x->s[at + 2] == '+') ? x->s[at + 2] : 0;
    size_t raw = kind == '%' ? raw_begin(x, at) : 0;
    int rc = put_data(x, x->pos, at, sign, kind != '{');
    if (rc) return rc;
    if (raw) {
        advance(x, at + raw);
        return lex_raw(x);
    }
    if (kind != '#')
        rc = push(x, kind == '%' ? JT_BLOCK_BEGIN : JT_VAR_BEGIN, (struct slice){x->s + at, 2},
                  NULL);
    advance(x, at + 2 + (sign != 0));
    if (rc) return rc;
    return kind == '#' ? lex_comment(x) : lex_tag(x, kind == '%');
}

int jinja_lex(struct arena *a, const char *src, size_t n, struct jtok **toks, size_t *n_tok,
              struct err *e) {
    struct lexer x = {.arena = a, .s = src, .n = n, .line = 1, .line_starting = true, .e = e};
    int rc = 0;
    while (!rc && x.pos < n) rc = lex_root(&x);
    if (!rc) rc = push(&x, JT_EOF, (struct slice){"", 0}, NULL);
    *toks = x.toks;
    *n_tok = x.n_tok;
    return rc;
}
