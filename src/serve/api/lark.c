/* lark.c: two passes: the first finds all definitions, the second expands the rule `start` by replacing every name with
 * its definition. Recursion is refused, so this ends; the length of the result is limited. */
#include "serve/api/lark.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

enum { MAX_DEFS = 512, MAX_NAME = 64, MAX_DEPTH = 64, MAX_PATTERN = 256 << 10, MAX_REPEAT = 1000 };

struct def {
    const char *name, *p, *end; /* views into the text: name and body */
    size_t n_name;
    const char *pattern; /* for %import common.NAME; else NULL */
    bool active;         /* it is being expanded */
};

struct lark {
    const char *text, *end;
    struct def *defs; /* owned [n_def] */
    size_t n_def;
    struct buf out;
    int depth;
    struct err *e;
};

static const struct {
    const char *name, *pattern;
} common[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", "(?:[0-9]+\\.[0-9]*|\\.[0-9]+)"},
    {"FLOAT", "(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"},
    {"NUMBER", "(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
    {"SIGNED_NUMBER", "[+-]?(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
    {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[A-Za-z_][A-Za-z0-9_]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(?:\\r?\\n)+"}};

static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

static int fail(struct lark *l, const char *p, const char *what) {
    int line = 1;
    /* false for the name `start`, which is not in the text */
    bool inside = p >= l->text && p <= l->end;
    for (const char *q = l->text; inside && q < p; q++) line += *q == '\n';
    return err_set(l->e, CHIMERE_EUNSUPPORTED, "lark: line %d: %s", line, what);
}

/* ---- first pass ---- */

/* Returns the position after the string or regular expression that begins at p. */
static const char *skip_quoted(const char *p, const char *end) {
    char quote = *p++;
    while (p < end && *p != quote && *p != '\n') p += *p == '\\' && p + 1 < end ? 2 : 1;
    return p < end && *p == quote ? p + 1 : p;
}

static bool is_comment(const char *p, const char *end) {
    return *p == '#' || (*p == '/' && p + 1 < end && p[1] == '/');
}

/* Skips spaces and comments; with `lines`, also line ends. */
static const char *skip_space(const char *p, const char *end, bool lines) {
    while (p < end) {
        if (is_comment(p, end))
            while (p < end && *p != '\n') p++;
        else if (*p == ' ' || *p == '\t' || *p == '\r' || (lines && *p == '\n')) p++;
        else break;
    }
    return p;
}

/* If a definition begins at p, returns the position after its colon, else NULL. */
static const char *def_head(const char *p, const char *end, const char **name, size_t *n) {
    while (p < end && (*p == '?' || *p == '!')) p++;
    *name = p;
    while (p < end && is_name(*p)) p++;
    *n = (size_t)(p - *name);
    if (!*n || isdigit((unsigned char)**name)) return NULL;
    if (p < end && *p == '.') {
        p++;
        while (p < end && (isdigit((unsigned char)*p) || *p == '-')) p++;
    }
    p = skip_space(p, end, false);
    return p < end && *p == ':' ? p + 1 : NULL;
}

static struct def *add_def(struct lark *l, const char *name, size_t n) {
    if (l->n_def == MAX_DEFS || n > MAX_NAME) return NULL;
    struct def *d = &l->defs[l->n_def++];
    *d = (struct def){.name = name, .n_name = n};
    return d;
}

static int import(struct lark *l, const char *p, const char *end) {
    const char *name = p;
    if (end - p < 7 || memcmp(p, "common.", 7) != 0)
        return fail(l, p, "expected %import common.NAME");
    for (name = p = p + 7; p < end && is_name(*p);) p++;
    size_t n = (size_t)(p - name);
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        if (strlen(common[i].name) != n || memcmp(common[i].name, name, n) != 0) continue;
        p = skip_space(p, end, false);
        if (end - p > 2 && p[0] == '-' && p[1] == '>') { /* an alias */
            name = p = skip_space(p + 2, end, false);
            while (p < end && is_name(*p)) p++;
            n = (size_t)(p - name);
        }
        struct def *d = add_def(l, name, n);
        if (!d) return fail(l, name, "too many rules, or a name that is too long");
        d->pattern = common[i].pattern;
        return 0;
    }
    return fail(l, name, "this terminal of common is not known");
}

static int directive(struct lark *l, const char *p, const char *end) {
    if (end - p > 8 && memcmp(p, "%import ", 8) == 0)
        return import(l, skip_space(p + 8, end, false), end);
    char what[80];
    size_t n = 1;
    while (p + n < end && is_name(p[n])) n++;
    snprintf(what, sizeof what, "%.*s is not supported", (int)(n < 40 ? n : 40), p);
    return fail(l, p, what);
}

static int find_defs(struct lark *l) {
    const char *p = l->text, *end = l->end;
    struct def *open = NULL;
    bool fresh = true; /* at the start of a line */
    while (p < end) {
        const char *name, *body, *line = memchr(p, '\n', (size_t)(end - p));
        size_t n;
        if (fresh && *p == '%') {
            open = NULL;
            int rc = directive(l, p, line ? line : end);
            if (rc) return rc;
            p = line ? line : end;
        } else if (fresh && (body = def_head(p, end, &name, &n))) {
            open = add_def(l, name, n);
            if (!open) return fail(l, p, "too many rules, or a name that is too long");
            open->p = p = open->end = body;
            fresh = false;
        } else if (is_comment(p, end)) {
            p = line ? line : end;
        } else {
            fresh = *p == '\n';
            bool blank = fresh || *p == ' ' || *p == '\t' || *p == '\r';
            if (!blank && !open) return fail(l, p, "expected NAME: ...");
            p = *p == '"' || *p == '/' ? skip_quoted(p, end) : p + 1;
            if (!blank) open->end = p;
        }
    }
    return 0;
}

/* ---- second pass ---- */

static int put_alternatives(struct lark *l, const char **p, const char *end, char close);

static void put_char(struct buf *out, unsigned char c) {
    if (c == '\n') buf_puts(out, "\\n");
    else if (strchr("\\^$.|?*+()[]{}-/", c) && c) buf_printf(out, "\\%c", c);
    else buf_putc(out, (char)c);
}

/* Reads the next character of a string, including an escape; returns false for an unknown escape. */
static bool next_char(const char **p, struct buf *out) {
    static const char from[] = "ntrf0\\\"'/", to[] = "\n\t\r\f\0\\\"'/";
    if (**p != '\\') {
        put_char(out, (unsigned char)*(*p)++);
        return true;
    }
    const char *known = memchr(from, (*p)[1], sizeof from - 1);
    if (known) {
        put_char(out, (unsigned char)to[known - from]);
        *p += 2;
        return true;
    }
    int n = (*p)[1] == 'x' ? 2 : (*p)[1] == 'u' ? 4 : 0;
    for (int i = 0; i < n; i++)
        if (!isxdigit((unsigned char)(*p)[2 + i])) return false;
    if (n) buf_printf(out, n == 2 ? "\\x%.2s" : "\\u%.4s", *p + 2);
    *p += 2 + n;
    return n > 0;
}

static int put_string(struct lark *l, const char **p, const char *end) {
    const char *q = *p + 1, *after = skip_quoted(*p, end), *last = after - 1;
    if (last < q || *last != '"') return fail(l, *p, "a string without its end");
    bool any_case = after < end && *after == 'i';
    if (after + any_case + 2 < end && memcmp(after + any_case, "..", 2) == 0) { /* "a".."z" */
        const char *r = after + 2, *r_after = *r == '"' ? skip_quoted(r, end) : r;
        if (any_case || r_after - r < 3) return fail(l, *p, "expected a range as \"a\"..\"z\"");
        buf_putc(&l->out, '[');
        bool ok = next_char(&q, &l->out) && q == last;
        buf_putc(&l->out, '-');
        r++;
        ok = ok && next_char(&r, &l->out) && r == r_after - 1;
        buf_putc(&l->out, ']');
        *p = r_after;
        return ok ? 0 : fail(l, *p, "expected a range of two characters");
    }
    buf_puts(&l->out, "(?:");
    while (q < last) {
        if (any_case && isalpha((unsigned char)*q))
            buf_printf(&l->out, "[%c%c]", tolower((unsigned char)*q), toupper((unsigned char)*q)),
                q++;
        else if (!next_char(&q, &l->out)) return fail(l, q, "this escape is not known");
    }
    buf_putc(&l->out, ')');
    *p = after + any_case;
    return 0;
}

static int put_regex(struct lark *l, const char **p, const char *end) {
    const char *after = skip_quoted(*p, end);
    if (after - *p < 2 || after[-1] != '/')
        return fail(l, *p, "a regular expression without its end");
    if (after < end && isalpha((unsigned char)*after))
        return fail(l, after, "flags of regular expressions are not supported");
    buf_puts(&l->out, "(?:");
    buf_put(&l->out, *p + 1, (size_t)(after - *p - 2));
    buf_putc(&l->out, ')');
    *p = after;
    return 0;
}

static int put_named(struct lark *l, const char **p, const char *end) {
    const char *name = *p;
    char what[120];
    while (*p < end && is_name(**p)) ++*p;
    size_t n = (size_t)(*p - name);
    if (*p < end && **p == '{') return fail(l, name, "templates are not supported");
    for (size_t i = 0; i < l->n_def; i++) {
        struct def *d = &l->defs[i];
        if (d->n_name != n || memcmp(d->name, name, n) != 0) continue;
        snprintf(what, sizeof what, "the rule %.*s contains itself", (int)n, name);
        if (d->active) return fail(l, name, what);
        if (l->depth == MAX_DEPTH) return fail(l, name, "rules nested too deep");
        buf_puts(&l->out, "(?:");
        int rc = 0;
        if (d->pattern) {
            buf_puts(&l->out, d->pattern);
        } else {
            const char *q = d->p;
            d->active = true;
            l->depth++;
            rc = put_alternatives(l, &q, d->end, 0);
            l->depth--;
            d->active = false;
        }
        buf_putc(&l->out, ')');
        return rc;
    }
    snprintf(what, sizeof what, "the rule %.*s is not defined", (int)(n < 60 ? n : 60), name);
    return fail(l, name, what);
}

static bool read_count(const char **p, const char *end, int *n) {
    const char *from = *p;
    for (*n = 0; *p < end && isdigit((unsigned char)**p) && *n <= MAX_REPEAT; ++*p)
        *n = 10 * *n + (**p - '0');
    return *p > from && *n <= MAX_REPEAT;
}

static int put_repeat(struct lark *l, const char **p, const char *end) {
    int low, high;
    if (*p < end && strchr("?*+", **p)) {
        buf_putc(&l->out, *(*p)++);
        return 0;
    }
    const char *q = skip_space(*p, end, false);
    if (q >= end || *q != '~') return 0;
    q = skip_space(q + 1, end, false);
    if (!read_count(&q, end, &low)) return fail(l, q, "expected a count of at most 1000");
    high = low;
    if (end - q > 2 && q[0] == '.' && q[1] == '.') {
        q += 2;
        if (!read_count(&q, end, &high) || high < low) return fail(l, q, "expected a higher count");
    }
    buf_printf(&l->out, "{%d,%d}", low, high);
    *p = q;
    return 0;
}

static int put_atom(struct lark *l, const char **p, const char *end) {
    char c = **p;
    int rc;
    if (c == '"') rc = put_string(l, p, end);
    else if (c == '/') rc = put_regex(l, p, end);
    else if (c == '(' || c == '[') {
        ++*p;
        if (l->depth == MAX_DEPTH) return fail(l, *p, "groups nested too deep");
        l->depth++;
        buf_puts(&l->out, "(?:");
        rc = put_alternatives(l, p, end, c == '(' ? ')' : ']');
        buf_puts(&l->out, c == '(' ? ")" : ")?");
        l->depth--;
    } else if (is_name(c)) rc = put_named(l, p, end);
    else return fail(l, *p, "expected a name, a string, a regular expression or a group");
    if (l->out.failed) return fail(l, *p, "the grammar is too large");
    return rc ? rc : put_repeat(l, p, end);
}

/* Reads up to end, or to the closing bracket, which is consumed. */
static int put_alternatives(struct lark *l, const char **p, const char *end, char close) {
    for (;;) {
        *p = skip_space(*p, end, true);
        if (*p == end) return close ? fail(l, *p, "a group without its end") : 0;
        if (close && **p == close) {
            ++*p;
            return 0;
        }
        if (**p == '|') {
            ++*p;
            buf_putc(&l->out, '|');
        } else if (end - *p > 2 && (*p)[0] == '-' && (*p)[1] == '>') { /* an alias */
            *p = skip_space(*p + 2, end, false);
            while (*p < end && is_name(**p)) ++*p;
        } else {
            int rc = put_atom(l, p, end);
            if (rc) return rc;
        }
    }
}

int lark_pattern(const char *text, size_t n, char **out, struct err *e) {
    struct lark l = {.text = text, .end = text + n, .e = e};
    static const char start[] = "start";
    const char *p = start;
    *out = NULL;
    l.defs = mem_alloc_array(MAX_DEFS, sizeof *l.defs);
    if (!l.defs) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    buf_init(&l.out, MAX_PATTERN);
    int rc = find_defs(&l);
    buf_puts(&l.out, "^");
    if (!rc) rc = put_named(&l, &p, start + 5);
    buf_puts(&l.out, "$");
    if (!rc && l.out.failed) rc = fail(&l, text, "the grammar is too large");
    if (!rc && !(*out = buf_take(&l.out))) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    buf_fini(&l.out);
    mem_free(l.defs);
    return rc;
}
