/* jinja_format.c: parses and prints numbers as Python does; the % operator and str.format. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/jinja_impl.h"

#define MAX_WIDTH 100000 /* width of a formatted field */

/* Writes the shortest digits that give the same number; fixed notation for exponents -4..15, like repr(float). */
size_t jf_float_repr(char out[40], double f) {
    if (isnan(f)) return (size_t)snprintf(out, 40, "nan");
    if (isinf(f)) return (size_t)snprintf(out, 40, f < 0 ? "-inf" : "inf");
    char t[40];
    int prec = 0;
    do snprintf(t, sizeof t, "%.*e", prec, f);
    while (prec++ < 17 && strtod(t, NULL) != f);
    char *e = strchr(t, 'e');
    int exp10 = (int)strtol(e + 1, NULL, 10), n_digit = 0;
    char digits[24];
    for (char *p = t; p < e; p++)
        if (*p >= '0' && *p <= '9') digits[n_digit++] = *p;
    while (n_digit > 1 && digits[n_digit - 1] == '0') n_digit--;
    size_t n = 0;
    if (signbit(f)) out[n++] = '-';
    if (exp10 < -4 || exp10 >= 16) {
        out[n++] = digits[0];
        if (n_digit > 1) out[n++] = '.';
        for (int i = 1; i < n_digit; i++) out[n++] = digits[i];
        return n + (size_t)snprintf(out + n, 40 - n, "e%c%02d", exp10 < 0 ? '-' : '+', abs(exp10));
    }
    if (exp10 < 0) {
        out[n++] = '0';
        out[n++] = '.';
        for (int i = -1; i > exp10; i--) out[n++] = '0';
        for (int i = 0; i < n_digit; i++) out[n++] = digits[i];
    } else {
        for (int i = 0; i <= exp10; i++) out[n++] = i < n_digit ? digits[i] : '0';
        out[n++] = '.';
        if (n_digit <= exp10 + 1) out[n++] = '0';
        for (int i = exp10 + 1; i < n_digit; i++) out[n++] = digits[i];
    }
    out[n] = 0;
    return n;
}

static void trim_space(const char **p, size_t *n) {
    while (*n && isspace((unsigned char)**p)) ++*p, --*n;
    while (*n && isspace((unsigned char)(*p)[*n - 1])) --*n;
}

/* Copies p without single underscores between digits; false for other underscores, or if the result is too long. */
static bool drop_underscores(const char *p, size_t n, char *out, size_t size) {
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '_') {
            if (i == 0 || i + 1 == n || !isalnum((unsigned char)p[i - 1]) ||
                !isalnum((unsigned char)p[i + 1]))
                return false;
            continue;
        }
        if (k + 1 >= size) return false;
        out[k++] = p[i];
    }
    out[k] = 0;
    return true;
}

bool jf_parse_float(const char *p, size_t n, double *out) {
    char t[400];
    trim_space(&p, &n);
    if (!drop_underscores(p, n, t, sizeof t) || !t[0] || strpbrk(t, "xXpP")) return false;
    const char *q = t + (t[0] == '-' || t[0] == '+');
    if (!isdigit((unsigned char)*q) && *q != '.' && strcasecmp(q, "nan") && strcasecmp(q, "inf") &&
        strcasecmp(q, "infinity"))
        return false;
    char *end;
    *out = strtod(t, &end);
    return end != t && *end == 0;
}

int jf_parse_int(const char *p, size_t n, int base, int64_t *out) {
    char t[128];
    trim_space(&p, &n);
    if (!drop_underscores(p, n, t, sizeof t)) return -1;
    const char *q = t;
    bool negative = *q == '-';
    if (*q == '-' || *q == '+') q++;
    if (q[0] == '0' && q[1]) {
        int c = q[1] | 0x20, prefix = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        if (prefix && (base == 0 || base == prefix)) {
            base = prefix;
            q += 2;
        }
    }
    if (base == 0) base = 10;
    if (!*q || base < 2 || base > 36) return -1;
    uint64_t v = 0, limit = (uint64_t)INT64_MAX + negative;
    bool over = false;
    for (; *q; q++) {
        int d = isdigit((unsigned char)*q)   ? *q - '0'
                : isalpha((unsigned char)*q) ? (*q | 0x20) - 'a' + 10
                                             : 99;
        if (d >= base) return -1;
        if (__builtin_mul_overflow(v, (uint64_t)base, &v) ||
            __builtin_add_overflow(v, (uint64_t)d, &v) || v > limit)
            over = true;
    }
    if (over) return -2;
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return 0;
}

/* ---- one field ---- */

struct field {
    const char *fill; /* one character of n_fill bytes */
    size_t n_fill;
    char align; /* '<' '>' '=' '^' */
    char sign;  /* '+' ' ' or '-' */
    bool alt, zero, comma, underscore;
    long width, prec; /* prec -1: none */
    char type;        /* 0: none */
};

/* Writes sign and digits, padded to the field's width; s[n] has the digits, the sign is separate. */
static void put_padded(struct jr *r, const struct field *f, const char *sign,
                       const struct jstr *body) {
    size_t len = strlen(sign) + jstr_len((struct jstr *)body);
    size_t pad = f->width > 0 && (size_t)f->width > len ? (size_t)f->width - len : 0;
    size_t left = f->align == '<' ? 0 : f->align == '^' ? pad / 2 : pad;
    if (f->align != '=')
        for (size_t i = 0; i < left && jr_step(r, 1); i++) jb_put(r, f->fill, f->n_fill, true);
    jb_puts(r, sign);
    if (f->align == '=')
        for (size_t i = 0; i < pad && jr_step(r, 1); i++) jb_put(r, f->fill, f->n_fill, true);
    jb_put_jstr(r, body, 0, body->n);
    if (f->align == '<' || f->align == '^')
        for (size_t i = left; i < pad && jr_step(r, 1); i++) jb_put(r, f->fill, f->n_fill, true);
}

static void put_bytes_padded(struct jr *r, const struct field *f, const char *sign, const char *p,
                             size_t n) {
    struct jstr s = {.p = p, .n = n, .n_char = SIZE_MAX};
    put_padded(r, f, sign, &s);
}

/* Separates the integer part into groups of three (or four) digits. */
static size_t group_digits(const char *p, size_t n, char sep, int group, char *out) {
    size_t whole = 0, k = 0;
    while (whole < n && isalnum((unsigned char)p[whole])) whole++;
    for (size_t i = 0; i < n; i++) {
        if (i && i < whole && (whole - i) % (size_t)group == 0) out[k++] = sep;
        out[k++] = p[i];
    }
    return k;
}

static size_t radix_digits(uint64_t v, unsigned base, bool upper, char *end) {
    char *p = end;
    do *--p = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[v % base];
    while (v /= base);
    return (size_t)(end - p);
}

static void put_int(struct jr *r, struct field *f, int64_t i, bool percent_style) {
    char t[96], g[160], sign[8];
    bool negative = i < 0;
    uint64_t v = negative ? 0 - (uint64_t)i : (uint64_t)i;
    unsigned base = f->type == 'x' || f->type == 'X' ? 16
                    : f->type == 'o'                 ? 8
                    : f->type == 'b'                 ? 2
                                                     : 10;
    size_t n = radix_digits(v, base, f->type == 'X', t + sizeof t);
    const char *p = t + sizeof t - n;
    const char *prefix = !f->alt || base == 10 ? ""
                         : base == 2           ? "0b"
                         : base == 8           ? "0o"
                         : f->type == 'X'      ? "0X"
                                               : "0x";
    snprintf(sign, sizeof sign, "%s%s",
             negative         ? "-"
             : f->sign == '+' ? "+"
             : f->sign == ' ' ? " "
                              : "",
             prefix);
    if (percent_style && f->prec > (long)n &&
        f->prec < 64) { /* precision: smallest number of digits */
        memset(g, '0', (size_t)f->prec - n);
        memcpy(g + f->prec - n, p, n);
        n = (size_t)f->prec;
        p = g;
    } else if (f->comma || f->underscore) {
        n = group_digits(p, n, f->comma ? ',' : '_', base == 10 ? 3 : 4, g);
        p = g;
    }
    put_bytes_padded(r, f, sign, p, n);
}

static void put_float(struct jr *r, struct field *f, double d, bool percent_style) {
    char spec[8], sign[2] = {signbit(d) && !isnan(d) ? '-'
                             : f->sign == '+'        ? '+'
                             : f->sign == ' '        ? ' '
                                                     : 0,
                             0};
    long prec = f->prec;
    char type = f->type;
    size_t size = 512;
    if (prec > MAX_WIDTH) {
        jr_fail(r, CHIMERE_ELIMIT, "a precision above %d", MAX_WIDTH);
        return;
    }
    if (prec > 0) size += (size_t)prec;
    char *t = jr_alloc(r, size * 2);
    if (!t) return;
    double x = fabs(d);
    size_t n;
    if (!type && prec < 0) { /* like str() */
        char s[40];
        n = jf_float_repr(s, x);
        memcpy(t, s, n);
    } else {
        if (type == '%') x *= 100;
        snprintf(spec, sizeof spec, f->alt ? "%%#.*%c" : "%%.*%c",
                 !type || type == 'n' ? 'g'
                 : type == '%'        ? 'f'
                                      : type);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* spec was written by the line above */
        n = (size_t)snprintf(t, size, spec, (int)(prec < 0 ? 6 : prec), x);
#pragma GCC diagnostic pop
        if (!type && isfinite(x) && !memchr(t, '.', n) && !memchr(t, 'e', n))
            n += (size_t)snprintf(t + n, size - n, ".0");
        if (type == '%') t[n++] = '%';
    }
    if (!percent_style && (f->comma || f->underscore)) {
        size_t k = group_digits(t, n, f->comma ? ',' : '_', 3, t + size);
        put_bytes_padded(r, f, sign, t + size, k);
        return;
    }
    put_bytes_padded(r, f, sign, t, n);
}

/* ---- % ---- */

static const char *parse_number(struct jr *r, const char *p, const char *end, long *out) {
    long v = 0;
    for (; p < end && isdigit((unsigned char)*p); p++) {
        v = v * 10 + (*p - '0');
        if (v > MAX_WIDTH) {
            jr_fail(r, CHIMERE_ELIMIT, "a field wider than %d", MAX_WIDTH);
            return end;
        }
    }
    *out = v;
    return p;
}

struct percent {
    struct jr *r;
    struct jv args;
    size_t next; /* index of the next item of the tuple */
    bool used_names;
};

static struct jv next_arg(struct percent *q) {
    if (q->args.kind == JV_TUPLE && q->next < q->args.l->n) return q->args.l->v[q->next++];
    if (q->args.kind != JV_TUPLE && q->next++ == 0) return q->args;
    jr_fail(q->r, CHIMERE_EFORMAT, "not enough arguments for format string");
    return jv_none();
}

static void percent_char(struct jr *r, struct field *f, struct jv v) {
    char t[4];
    int k = jv_is_integral(v) && v.i >= 0 && v.i <= 0x10ffff ? utf8_encode((uint32_t)v.i, t) : 0;
    if (v.kind == JV_STR && jstr_len(v.s) == 1) put_padded(r, f, "", v.s);
    else if (k > 0) put_bytes_padded(r, f, "", t, (size_t)k);
    else jr_fail(r, CHIMERE_EFORMAT, "%%c requires an int or a unicode character");
}

static void percent_value(struct jr *r, struct field *f, struct jv v) {
    if (r->rc) return;
    char type = f->type;
    if (type == 's' || type == 'r' || type == 'a') {
        size_t outer = jb_begin(r);
        if (type == 's') jb_put_value(r, v);
        else jb_put_repr(r, v);
        struct jv s = jb_end(r, outer);
        if (r->rc) return;
        if (f->prec >= 0) s = jv_slice(r, s.s, 0, jstr_offset(s.s, (size_t)f->prec));
        if (!r->rc) put_padded(r, f, "", s.s);
        return;
    }
    if (type == 'c') {
        percent_char(r, f, v);
        return;
    }
    bool is_int = strchr("diuxXo", type) != NULL;
    if (v.kind == JV_UNDEF) j_undefined_error(r, v);
    else if (!jv_is_numeric(v) || (v.kind == JV_FLOAT && strchr("xXo", type)))
        jr_fail(r, CHIMERE_EFORMAT, "%%%c format: a real number is required, not %s", type,
                jv_type_name(v));
    if (r->rc) return;
    if (f->zero && f->align != '<') {
        f->align = '=';
        f->fill = "0";
        f->n_fill = 1;
    }
    if (!is_int) {
        put_float(r, f, jv_as_float(v), true);
    } else if (v.kind == JV_FLOAT) {
        if (!(v.f > -9.2e18 && v.f < 9.2e18))
            jr_fail(r, CHIMERE_EFORMAT, "cannot convert this float to a 64-bit integer");
        else put_int(r, f, (int64_t)v.f, true);
    } else {
        put_int(r, f, jv_as_int(v), true);
    }
}

/* Formats one conversion after '%' at p; returns the position after it. */
static const char *percent_field(struct percent *q, const struct jstr *fmt, const char *p,
                                 const char *end) {
    struct jr *r = q->r;
    struct field f = {.fill = " ", .n_fill = 1, .align = '>', .prec = -1};
    struct jv v = jv_missing();
    if (p < end && *p == '(') {
        const char *close = memchr(p, ')', (size_t)(end - p));
        if (!close) return jr_fail(r, CHIMERE_EFORMAT, "incomplete format key"), end;
        if (q->args.kind != JV_DICT)
            return jr_fail(r, CHIMERE_EFORMAT, "format requires a mapping"), end;
        struct jv *found = jdict_find_text(r, q->args.d, p + 1, (size_t)(close - p - 1));
        if (!found)
            return jr_fail(r, CHIMERE_EFORMAT, "format key '%.*s' is not given",
                           (int)(close - p - 1), p + 1),
                   end;
        v = *found;
        q->used_names = true;
        p = close + 1;
    }
    for (; p < end && strchr("-+ 0#", *p); p++) {
        if (*p == '-') f.align = '<';
        else if (*p == '0') f.zero = true;
        else if (*p == '#') f.alt = true;
        else if (f.sign != '+') f.sign = *p;
    }
    for (int part = 0; part < 2; part++) {
        long *to = part ? &f.prec : &f.width;
        if (part && (p >= end || *p++ != '.')) {
            p--;
            break;
        }
        if (p < end && *p == '*') {
            struct jv w = next_arg(q);
            if (!r->rc &&
                (!jv_is_integral(w) || jv_as_int(w) > MAX_WIDTH || jv_as_int(w) < -MAX_WIDTH))
                jr_fail(r, CHIMERE_EFORMAT, "* wants a small int");
            if (r->rc) return end;
            *to = (long)jv_as_int(w);
            if (*to < 0 && !part) f.align = '<', *to = -*to;
            p++;
        } else {
            p = parse_number(r, p, end, to);
        }
    }
    while (p < end && strchr("hlL", *p)) p++;
    if (p >= end) return jr_fail(r, CHIMERE_EFORMAT, "incomplete format"), end;
    f.type = *p++;
    if (f.type == '%') {
        jb_put_jstr(r, fmt, (size_t)(p - 1 - fmt->p), (size_t)(p - fmt->p));
        return p;
    }
    if (!strchr("diuoxXeEfFgGcrsa", f.type))
        return jr_fail(r, CHIMERE_EFORMAT, "unsupported format character '%c'", f.type), end;
    percent_value(r, &f, v.kind == JV_MISSING ? next_arg(q) : v);
    return p;
}

struct jv jf_percent(struct jr *r, struct jstr *fmt, struct jv args) {
    struct percent q = {.r = r, .args = args};
    size_t outer = jb_begin(r);
    const char *p = fmt->p, *end = fmt->p + fmt->n;
    while (p < end && jr_step(r, 1)) {
        const char *hit = memchr(p, '%', (size_t)(end - p));
        if (!hit) hit = end;
        jb_put_jstr(r, fmt, (size_t)(p - fmt->p), (size_t)(hit - fmt->p));
        if (hit == end) break;
        p = percent_field(&q, fmt, hit + 1, end);
    }
    bool has_items = args.kind == JV_DICT || args.kind == JV_LIST || args.kind == JV_RANGE ||
                     args.kind == JV_UNDEF;
    bool left_over = args.kind == JV_TUPLE ? q.next < args.l->n : !q.next && !has_items;
    if (left_over && !q.used_names)
        jr_fail(r, CHIMERE_EFORMAT, "not all arguments converted during string formatting");
    return jb_end(r, outer);
}

/* ---- str.format ---- */

struct formatter {
    struct jr *r;
    const struct jcall *call;
    const struct jdict *named; /* for format_map */
    size_t next_auto;
    int numbering; /* 0 unknown, 1 automatic, 2 manual */
};

static struct jv named_arg(struct formatter *m, const char *p, size_t n) {
    if (m->named) {
        struct jv *v = jdict_find_text(m->r, m->named, p, n);
        if (v) return *v;
    } else {
        for (size_t i = 0; i < m->call->n_kw; i++)
            if (jstr_eq(m->call->kw[i].name, p, n)) return m->call->kw[i].v;
    }
    jr_fail(m->r, CHIMERE_EFORMAT, "format key '%.*s' is not given", (int)(n > 80 ? 80 : n), p);
    return jv_none();
}

/* Evaluates a field such as name, 0, 0.attr or name[key]. */
static struct jv field_value(struct formatter *m, const char *p, size_t n) {
    struct jr *r = m->r;
    size_t k = 0;
    while (k < n && p[k] != '.' && p[k] != '[') k++;
    int64_t i = 0;
    bool is_number = k > 0 && isdigit((unsigned char)p[0]) && jf_parse_int(p, k, 10, &i) == 0;
    struct jv v;
    if (k == 0 || is_number) {
        int mode = k == 0 ? 1 : 2;
        if (m->numbering && m->numbering != mode)
            jr_fail(r, CHIMERE_EFORMAT, "cannot mix automatic and manual field numbers");
        m->numbering = mode;
        if (k == 0) i = (int64_t)m->next_auto++;
        if (m->named || (uint64_t)i >= m->call->n_pos) {
            jr_fail(r, CHIMERE_EFORMAT, "replacement index %lld out of range for positional args",
                    (long long)i);
            return jv_none();
        }
        v = m->call->pos[i];
    } else {
        v = named_arg(m, p, k);
    }
    while (k < n && !r->rc) {
        bool attr = p[k++] == '.';
        size_t b = k;
        while (k < n && (attr ? p[k] != '.' && p[k] != '[' : p[k] != ']')) k++;
        struct jv key = jv_view(r, p + b, k - b, true);
        if (r->rc) break;
        if (k == b) jr_fail(r, CHIMERE_EFORMAT, "empty attribute in format string");
        if (!attr && jf_parse_int(p + b, k - b, 10, &i) == 0 && isdigit((unsigned char)p[b]))
            key = jv_int(i);
        v = attr ? j_getattr(r, v, key.s) : j_getitem(r, v, key);
        if (!attr) k++;
    }
    return v;
}

static bool is_align(char c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

static void parse_spec(struct jr *r, const char *p, size_t n, struct field *f) {
    const char *end = p + n;
    int first = n ? utf8_valid_len(p, n) : 0;
    if (first > 0 && (size_t)first < n && is_align(p[first])) {
        f->fill = p;
        f->n_fill = (size_t)first;
        f->align = p[first];
        p += first + 1;
    } else if (n && is_align(*p)) {
        f->align = *p++;
    }
    if (p < end && (*p == '+' || *p == '-' || *p == ' ')) f->sign = *p++;
    if (p < end && *p == '#') f->alt = true, p++;
    if (p < end && *p == '0') {
        if (!f->align) f->align = '=', f->fill = "0", f->n_fill = 1;
        p++;
    }
    p = parse_number(r, p, end, &f->width);
    if (p < end && *p == ',') f->comma = true, p++;
    else if (p < end && *p == '_') f->underscore = true, p++;
    if (p < end && *p == '.') p = parse_number(r, p + 1, end, &f->prec);
    if (p < end) f->type = *p++;
    if (p != end) jr_fail(r, CHIMERE_EFORMAT, "Invalid format specifier");
}

static void put_field(struct jr *r, struct jv v, const char *spec, size_t n_spec) {
    struct field f = {.fill = " ", .n_fill = 1, .prec = -1};
    if (!n_spec) {
        jb_put_value(r, v);
        return;
    }
    parse_spec(r, spec, n_spec, &f);
    if (r->rc) return;
    char type = f.type;
    bool ok;
    if (jv_is_integral(v) && (v.kind == JV_INT || type) && (!type || strchr("dxXobn", type))) {
        ok = f.prec < 0;
        if (!f.align) f.align = '>';
        if (ok) put_int(r, &f, jv_as_int(v), false);
    } else if (jv_is_numeric(v) && (v.kind == JV_FLOAT || type) &&
               (!type || strchr("eEfFgGn%", type))) {
        ok = true;
        if (!f.align) f.align = '>';
        put_float(r, &f, jv_as_float(v), false);
    } else if ((v.kind == JV_STR || v.kind == JV_BOOL) && (!type || type == 's') &&
               f.align != '=' && !f.sign) {
        ok = true;
        struct jstr *s = jv_to_str(r, v);
        if (!f.align) f.align = '<';
        struct jv cut = jv_slice(r, s, 0, f.prec >= 0 ? jstr_offset(s, (size_t)f.prec) : s->n);
        if (!r->rc) put_padded(r, &f, "", cut.s);
    } else {
        ok = false;
    }
    if (!ok) jr_fail(r, CHIMERE_EFORMAT, "unsupported format specifier for '%s'", jv_type_name(v));
}

static void put_replacement(struct formatter *m, const char *p, size_t n) {
    struct jr *r = m->r;
    size_t name = 0;
    while (name < n && p[name] != '!' && p[name] != ':') {
        if (p[name] == '[') {
            while (name < n && p[name] != ']') name++;
            if (name == n) break;
        }
        name++;
    }
    struct jv v = field_value(m, p, name);
    size_t at = name;
    if (r->rc) return;
    if (at < n && p[at] == '!') {
        char conv = at + 1 < n ? p[at + 1] : 0;
        if ((conv != 'r' && conv != 's' && conv != 'a') || (at + 2 < n && p[at + 2] != ':')) {
            jr_fail(r, CHIMERE_EFORMAT, "unknown conversion in format string");
            return;
        }
        size_t outer = jb_begin(r);
        if (conv == 's') jb_put_value(r, v);
        else jb_put_repr(r, v);
        v = jb_end(r, outer);
        at += 2;
    }
    const char *spec = at < n ? p + at + 1 : "";
    size_t n_spec = at < n ? n - at - 1 : 0;
    if (n_spec && memchr(spec, '{', n_spec)) { /* one level of nested fields in the specification */
        struct jstr inner = {.p = spec, .n = n_spec, .n_char = SIZE_MAX, .tmpl = true};
        if (!jr_enter(r)) return;
        size_t outer = jb_begin(r);
        size_t k = 0;
        while (k < inner.n && !r->rc) {
            const char *close = inner.p[k] == '{' ? memchr(inner.p + k, '}', inner.n - k) : NULL;
            if (close) {
                size_t len = (size_t)(close - inner.p) - k - 1;
                if (memchr(inner.p + k + 1, '{', len))
                    jr_fail(r, CHIMERE_EFORMAT, "Max string recursion exceeded");
                else put_replacement(m, inner.p + k + 1, len);
                k += len + 2;
            } else {
                jb_put(r, inner.p + k++, 1, true);
            }
        }
        struct jv s = jb_end(r, outer);
        jr_leave(r);
        if (r->rc) return;
        spec = s.s->p;
        n_spec = s.s->n;
    }
    put_field(r, v, spec, n_spec);
}

struct jv jf_format(struct jr *r, struct jstr *fmt, const struct jcall *call,
                    const struct jdict *named) {
    struct formatter m = {.r = r, .call = call, .named = named};
    size_t outer = jb_begin(r);
    for (size_t i = 0; i < fmt->n && jr_step(r, 1);) {
        char c = fmt->p[i];
        if (c != '{' && c != '}') {
            size_t b = i;
            while (i < fmt->n && fmt->p[i] != '{' && fmt->p[i] != '}') i++;
            jb_put_jstr(r, fmt, b, i);
        } else if (i + 1 < fmt->n && fmt->p[i + 1] == c) {
            jb_put_jstr(r, fmt, i, i + 1);
            i += 2;
        } else if (c == '}') {
            jr_fail(r, CHIMERE_EFORMAT, "Single '}' encountered in format string");
        } else {
            size_t b = ++i;
            for (int open = 1; i < fmt->n; i++) {
                if (fmt->p[i] == '{') open++;
                if (fmt->p[i] == '}' && --open == 0) break;
            }
            if (i >= fmt->n) {
                jr_fail(r, CHIMERE_EFORMAT, "expected '}' before end of string");
                break;
            }
            put_replacement(&m, fmt->p + b, i - b);
            i++;
        }
    }
    return jb_end(r, outer);
}
