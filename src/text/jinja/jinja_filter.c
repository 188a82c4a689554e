/* jinja_filter.c: filters for text and numbers, and the look-up of all filters. Filters for sequences are in
 * jinja_filter_seq.c. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/jinja/jinja_impl.h"

#define FILTER(name)                                                                               \
    static struct jv name(struct jr *r, struct jv self, struct jv *v, const struct jcall *call)
#define UNUSED() (void)r, (void)self, (void)v, (void)call

static int64_t want_int(struct jr *r, struct jv v, int64_t absent) {
    if (v.kind == JV_MISSING) return absent;
    if (jv_is_integral(v)) return jv_as_int(v);
    if (v.kind == JV_UNDEF) j_undefined_error(r, v);
    else jr_fail(r, CHIMERE_EFORMAT, "a filter wants an integer, not %s", jv_type_name(v));
    return absent;
}
static bool want_bool(struct jr *r, struct jv v) { return v.kind != JV_MISSING && jv_truth(r, v); }

FILTER(f_upper) {
    UNUSED();
    return jstr_case(r, jv_to_str(r, self), JC_UPPER);
}
FILTER(f_lower) {
    UNUSED();
    return jstr_case(r, jv_to_str(r, self), JC_LOWER);
}
FILTER(f_capitalize) {
    UNUSED();
    return jstr_case(r, jv_to_str(r, self), JC_CAPITALIZE);
}
FILTER(f_title) {
    UNUSED();
    return jstr_case(r, jv_to_str(r, self), JC_TITLE_FILTER);
}

FILTER(f_trim) {
    UNUSED();
    bool by_space = v[0].kind == JV_MISSING || v[0].kind == JV_NONE;
    if (!by_space && v[0].kind != JV_STR)
        jr_fail(r, CHIMERE_EFORMAT, "trim wants a str, not %s", jv_type_name(v[0]));
    struct jstr *s = jv_to_str(r, self);
    return r->rc ? jv_none() : jstr_strip(r, s, by_space ? NULL : v[0].s, 3);
}

FILTER(f_string) {
    UNUSED();
    struct jstr *s = jv_to_str(r, self);
    return r->rc ? jv_none() : (struct jv){.kind = JV_STR, .s = s};
}

FILTER(f_safe) {
    UNUSED();
    struct jstr *s = jv_to_str(r, self);
    struct jv out = jv_slice(r, s, 0, s->n);
    if (!r->rc) out.s->is_markup = true;
    return out;
}

FILTER(f_escape) {
    UNUSED();
    return jstr_escape(r, jv_to_str(r, self));
}
FILTER(f_forceescape) {
    UNUSED();
    struct jstr plain = *jv_to_str(r, self);
    plain.is_markup = false;
    return jstr_escape(r, &plain);
}

FILTER(f_replace) {
    UNUSED();
    struct jstr *s = jv_to_str(r, self), *a = jv_to_str(r, v[0]), *b = jv_to_str(r, v[1]);
    int64_t n = v[2].kind == JV_NONE ? -1 : want_int(r, v[2], -1);
    return r->rc ? jv_none() : jstr_replace(r, s, a, b, n);
}

FILTER(f_default) {
    UNUSED();
    bool use = self.kind == JV_UNDEF || (want_bool(r, v[1]) && !jv_truth(r, self));
    if (!use) return self;
    return v[0].kind == JV_MISSING ? jv_view(r, "", 0, true) : v[0];
}

FILTER(f_length) {
    UNUSED();
    int64_t n = jv_len(r, self);
    if (n < 0) jr_fail(r, CHIMERE_EFORMAT, "object of type '%s' has no len()", jv_type_name(self));
    return jv_int(n);
}

FILTER(f_center) {
    UNUSED();
    struct jstr *s = jv_to_str(r, self);
    const struct jbuiltin *center = j_find_method(JV_STR, "center", 6);
    struct jv args[2] = {v[0].kind == JV_MISSING ? jv_int(80) : v[0], jv_missing()};
    return r->rc ? jv_none() : center->fn(r, (struct jv){.kind = JV_STR, .s = s}, args, call);
}

FILTER(f_indent) {
    UNUSED();
    if (self.kind != JV_STR) {
        if (self.kind == JV_UNDEF) return j_undefined_error(r, self);
        jr_fail(r, CHIMERE_EFORMAT, "indent wants a str, not %s", jv_type_name(self));
        return jv_none();
    }
    struct jstr *pad = v[0].kind == JV_STR ? v[0].s : NULL;
    int64_t width = pad ? 0 : want_int(r, v[0], 4);
    if (width > 10000) jr_fail(r, CHIMERE_ELIMIT, "an indent of more than 10000");
    struct jv nl = jv_view(r, "\n", 1, self.s->tmpl && !self.s->from);
    if (!pad && !r->rc) {
        char *blanks = jr_alloc(r, (size_t)(width > 0 ? width : 0) + 1);
        if (!blanks) return jv_none();
        if (width > 0) memset(blanks, ' ', (size_t)width);
        struct jv p = jv_view(r, blanks, (size_t)(width > 0 ? width : 0), nl.s->tmpl);
        if (!r->rc) pad = p.s;
    }
    if (r->rc) return jv_none();
    struct jv whole = jstr_concat(r, self.s, nl.s);
    struct jv lines = r->rc ? whole : jstr_lines(r, whole.s, false);
    if (r->rc) return jv_none();
    bool blank = want_bool(r, v[2]);
    size_t outer = jb_begin(r);
    for (size_t i = 0; i < lines.l->n && jr_step(r, 1); i++) {
        struct jstr *line = lines.l->v[i].s;
        if (i) jb_put_jstr(r, nl.s, 0, 1);
        if (i ? blank || line->n : want_bool(r, v[1])) jb_put_jstr(r, pad, 0, pad->n);
        jb_put_jstr(r, line, 0, line->n);
    }
    return jb_end(r, outer);
}

static struct jv truncate_other(struct jr *r, struct jv self, int64_t most) {
    int64_t n = jv_len(r, self);
    if (n < 0) jr_fail(r, CHIMERE_EFORMAT, "object of type '%s' has no len()", jv_type_name(self));
    else if (n > most)
        jr_fail(r, CHIMERE_EFORMAT, "truncate wants a str, not %s", jv_type_name(self));
    return self;
}

FILTER(f_truncate) {
    UNUSED();
    if (self.kind != JV_STR)
        return truncate_other(
            r, self, want_int(r, v[0], 255) + (v[3].kind == JV_NONE ? 5 : want_int(r, v[3], 5)));
    struct jstr *s = jv_to_str(r, self), *end = v[2].kind == JV_MISSING ? NULL : jv_to_str(r, v[2]);
    int64_t length = want_int(r, v[0], 255),
            leeway = v[3].kind == JV_NONE ? 5 : want_int(r, v[3], 5);
    int64_t n = (int64_t)jstr_len(s), n_end = end ? (int64_t)jstr_len(end) : 3;
    if (!r->rc && (length < n_end || leeway < 0))
        jr_fail(r, CHIMERE_EFORMAT, "truncate: expected length >= %lld", (long long)n_end);
    if (r->rc || n <= length + leeway) return self;
    size_t cut = jstr_offset(s, (size_t)(length - n_end));
    struct jstr space = {.p = " ", .n = 1};
    if (!want_bool(r, v[1])) {
        size_t at = jstr_rfind(s, &space, 0, cut);
        if (at != SIZE_MAX) cut = at;
    }
    size_t outer = jb_begin(r);
    jb_put_jstr(r, s, 0, cut);
    if (end) jb_put_jstr(r, end, 0, end->n);
    else jb_put(r, "...", 3, true);
    return jb_end(r, outer);
}

FILTER(f_wordcount) {
    UNUSED();
    const struct jstr *s = jv_to_str(r, self);
    int64_t n = 0;
    bool in_word = false;
    for (size_t i = 0; i < s->n && jr_step(r, 1);) {
        uint32_t cp = 0;
        int k = utf8_decode(s->p + i, s->n - i, &cp);
        if (k <= 0) break;
        utf8proc_category_t c = utf8proc_category((int32_t)cp);
        bool word = cp == '_' || (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO) ||
                    (c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO);
        n += word && !in_word;
        in_word = word;
        i += (size_t)k;
    }
    return jv_int(n);
}

FILTER(f_format) {
    UNUSED();
    if (call->n_pos && call->n_kw) {
        jr_fail(r, CHIMERE_EFORMAT,
                "can't handle positional and keyword arguments at the same time");
        return jv_none();
    }
    struct jv args;
    if (call->n_kw) {
        args = jv_dict(r, JV_DICT);
        for (size_t i = 0; i < call->n_kw && !r->rc; i++)
            jdict_set(r, args.d, (struct jv){.kind = JV_STR, .s = call->kw[i].name}, call->kw[i].v);
    } else {
        args = jv_list(r, JV_TUPLE, call->n_pos);
        for (size_t i = 0; i < call->n_pos && !r->rc; i++) args.l->v[i] = call->pos[i];
    }
    return r->rc ? jv_none() : jf_percent(r, jv_to_str(r, self), args);
}

FILTER(f_striptags) {
    UNUSED();
    const struct jstr *s = jv_to_str(r, self);
    size_t outer = jb_begin(r);
    for (size_t i = 0; i < s->n && jr_step(r, 1);) {
        if (s->p[i] == '<') {
            bool comment = s->n - i >= 4 && memcmp(s->p + i, "<!--", 4) == 0;
            const char *end =
                comment ? memmem(s->p + i, s->n - i, "-->", 3) : memchr(s->p + i, '>', s->n - i);
            if (end) {
                i = (size_t)(end - s->p) + (comment ? 3 : 1);
                continue;
            }
        }
        size_t b = i++;
        while (i < s->n && s->p[i] != '<') i++;
        jb_put_jstr(r, s, b, i);
    }
    struct jv t = jb_end(r, outer);
    if (r->rc) return t;
    const struct jbuiltin *split = j_find_method(JV_STR, "split", 5),
                          *join = j_find_method(JV_STR, "join", 4);
    struct jv none[2] = {jv_missing(), jv_missing()}, words = split->fn(r, t, none, call);
    return r->rc ? words : join->fn(r, jv_view(r, " ", 1, false), &words, call);
}

static void put_quoted(struct jr *r, const struct jstr *s, bool for_query) {
    char t[4];
    for (size_t i = 0; i < s->n && jr_step(r, 1); i++) {
        unsigned char c = (unsigned char)s->p[i];
        bool plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
                     (c && strchr("_.-~", c)) || (c == '/' && !for_query);
        if (plain) jb_put_jstr(r, s, i, i + 1);
        else if (c == ' ' && for_query) jb_puts(r, "+");
        else {
            snprintf(t, sizeof t, "%%%02X", c);
            jb_puts(r, t);
        }
    }
}

FILTER(f_urlencode) {
    UNUSED();
    bool pairs = self.kind != JV_STR && jv_is_iterable(self);
    size_t outer = jb_begin(r);
    if (!pairs) {
        put_quoted(r, jv_to_str(r, self), false);
        return jb_end(r, outer);
    }
    struct jv items = self;
    if (self.kind == JV_DICT) items = j_find_method(JV_DICT, "items", 5)->fn(r, self, v, call);
    const struct jlist *l = jv_items(r, items);
    for (size_t i = 0; i < l->n && jr_step(r, 1); i++) {
        const struct jlist *pair = jv_items(r, l->v[i]);
        if (!r->rc && pair->n != 2) jr_fail(r, CHIMERE_EFORMAT, "urlencode wants pairs");
        if (r->rc) break;
        if (i) jb_puts(r, "&");
        put_quoted(r, jv_to_str(r, pair->v[0]), true);
        jb_puts(r, "=");
        put_quoted(r, jv_to_str(r, pair->v[1]), true);
    }
    return jb_end(r, outer);
}

/* ---- numbers ---- */

FILTER(f_int) {
    UNUSED();
    struct jv absent = v[0].kind == JV_MISSING ? jv_int(0) : v[0];
    int64_t base = want_int(r, v[1], 10), i = 0;
    double d = 0;
    if (self.kind == JV_UNDEF) return j_undefined_error(r, self);
    if (jv_is_integral(self)) return jv_int(jv_as_int(self));
    if (self.kind == JV_STR) {
        int bad =
            jf_parse_int(self.s->p, self.s->n, (int)(base >= 0 && base <= 36 ? base : 10), &i);
        if (!bad) return jv_int(i);
        if (bad == -2) jr_fail(r, CHIMERE_EFORMAT, "an integer is beyond 64 bits");
        if (!jf_parse_float(self.s->p, self.s->n, &d) || !isfinite(d)) return absent;
    } else if (self.kind == JV_FLOAT) {
        d = self.f;
        if (isnan(d)) return absent;
    } else {
        return absent;
    }
    if (!(d > -9223372036854775809.0 && d < 9223372036854775808.0)) {
        jr_fail(r, CHIMERE_EFORMAT, "an integer is beyond 64 bits");
        return absent;
    }
    return jv_int((int64_t)d);
}

FILTER(f_float) {
    UNUSED();
    double d = 0;
    if (self.kind == JV_UNDEF) return j_undefined_error(r, self);
    if (jv_is_numeric(self)) return jv_float(jv_as_float(self));
    if (self.kind == JV_STR && jf_parse_float(self.s->p, self.s->n, &d)) return jv_float(d);
    return v[0].kind == JV_MISSING ? jv_float(0) : v[0];
}

FILTER(f_abs) {
    UNUSED();
    if (self.kind == JV_FLOAT) return jv_float(fabs(self.f));
    if (jv_is_integral(self)) return jv_as_int(self) < 0 ? j_neg(r, self) : jv_int(jv_as_int(self));
    if (self.kind == JV_UNDEF) return j_undefined_error(r, self);
    jr_fail(r, CHIMERE_EFORMAT, "bad operand type for abs(): '%s'", jv_type_name(self));
    return jv_none();
}

/* round(int, negative digits) rounds half to even. */
static struct jv round_int(struct jr *r, int64_t i, int64_t digits) {
    if (digits >= 0) return jv_int(i);
    if (digits < -18) return jv_int(0);
    int64_t unit = 1;
    while (digits++ < 0) unit *= 10;
    int64_t rest = i % unit, half = unit / 2;
    if (rest < 0) rest += unit;
    int64_t down = i - rest;
    bool up = rest > half || (rest == half && (down / unit) % 2 != 0);
    return up ? j_binary(r, JT_ADD, jv_int(down), jv_int(unit)) : jv_int(down);
}

FILTER(f_round) {
    UNUSED();
    int64_t digits = want_int(r, v[0], 0);
    if (self.kind == JV_UNDEF) return j_undefined_error(r, self);
    if (!jv_is_numeric(self)) {
        jr_fail(r, CHIMERE_EFORMAT, "type %s cannot be rounded", jv_type_name(self));
        return jv_none();
    }
    bool is_ceil = v[1].kind == JV_STR && jstr_eq(v[1].s, "ceil", 4);
    bool is_floor = v[1].kind == JV_STR && jstr_eq(v[1].s, "floor", 5);
    if (v[1].kind != JV_MISSING && !is_ceil && !is_floor &&
        !(v[1].kind == JV_STR && jstr_eq(v[1].s, "common", 6))) {
        jr_fail(r, CHIMERE_EFORMAT, "method must be common, ceil or floor");
        return jv_none();
    }
    double d = jv_as_float(self);
    if (is_ceil || is_floor) {
        double unit = pow(10, (double)digits), x = d * unit;
        return jv_float((is_ceil ? ceil(x) : floor(x)) / unit);
    }
    if (self.kind != JV_FLOAT) return round_int(r, jv_as_int(self), digits);
    if (!isfinite(d) || digits > 300) return self;
    if (digits < -308) return jv_float(copysign(0, d));
    char t[720]; /* the decimal text is rounded exactly; half to even applies to the binary value */
    if (digits < 0) {
        double unit = pow(10, (double)-digits);
        return jv_float(nearbyint(d / unit) * unit);
    }
    snprintf(t, sizeof t, "%.*f", (int)digits, d);
    return jv_float(strtod(t, NULL));
}

FILTER(f_filesizeformat) {
    UNUSED();
    static const char *const units[2][8] = {
        {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
        {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}};
    bool binary = want_bool(r, v[0]);
    double base = binary ? 1024 : 1000, d = 0, unit = base;
    if (jv_is_numeric(self)) d = jv_as_float(self);
    else if (self.kind != JV_STR || !jf_parse_float(self.s->p, self.s->n, &d))
        jr_fail(r, CHIMERE_EFORMAT, "filesizeformat wants a number");
    char t[64];
    int i = 0;
    if (d == 1) return jv_text(r, "1 Byte", 6, false);
    if (d < base) {
        snprintf(t, sizeof t, "%lld Bytes", d > -9e18 ? (long long)d : 0);
        return jv_text(r, t, strlen(t), false);
    }
    for (unit = base * base; i < 7 && d >= unit; i++) unit *= base;
    snprintf(t, sizeof t, "%.1f %s", base * d / unit, units[binary][i]);
    return jv_text(r, t, strlen(t), false);
}

FILTER(f_xmlattr) {
    UNUSED();
    if (self.kind != JV_DICT) {
        jr_fail(r, CHIMERE_EFORMAT, "xmlattr wants a mapping");
        return jv_none();
    }
    bool any = false, space = v[0].kind == JV_MISSING || jv_truth(r, v[0]);
    size_t outer = jb_begin(r);
    for (size_t i = 0; i < self.d->n && jr_step(r, 1); i++) {
        struct jpair *q = &self.d->items[i];
        if (q->v.kind == JV_NONE || q->v.kind == JV_UNDEF) continue;
        struct jstr *k = jv_to_str(r, q->k);
        for (size_t c = 0; c < k->n && !r->rc; c++)
            if (strchr(" \t\n\r\f\v/>=", k->p[c]))
                jr_fail(r, CHIMERE_EFORMAT, "Invalid character in attribute name");
        struct jv key = jstr_escape(r, k), value = jstr_escape(r, jv_to_str(r, q->v));
        if (r->rc) break;
        if (any || space) jb_puts(r, " ");
        any = true;
        jb_put_jstr(r, key.s, 0, key.s->n);
        jb_puts(r, "=\"");
        jb_put_jstr(r, value.s, 0, value.s->n);
        jb_puts(r, "\"");
    }
    return jb_end(r, outer);
}

static const struct jbuiltin filters[] = {
    {"abs", f_abs, "", 0, 0},
    {"capitalize", f_capitalize, "", 0, 0},
    {"center", f_center, "width", 0, 0},
    {"count", f_length, "", 0, 0},
    {"d", f_default, "default_value boolean", 0, 0},
    {"default", f_default, "default_value boolean", 0, 0},
    {"e", f_escape, "", 0, 0},
    {"escape", f_escape, "", 0, 0},
    {"filesizeformat", f_filesizeformat, "binary", 0, 0},
    {"float", f_float, "default", 0, 0},
    {"forceescape", f_forceescape, "", 0, 0},
    {"format", f_format, NULL, 0, 0},
    {"indent", f_indent, "width first blank", 0, 0},
    {"int", f_int, "default base", 0, 0},
    {"length", f_length, "", 0, 0},
    {"lower", f_lower, "", 0, 0},
    {"replace", f_replace, "old new count", 2, 0},
    {"round", f_round, "precision method", 0, 0},
    {"safe", f_safe, "", 0, 0},
    {"string", f_string, "", 0, 0},
    {"striptags", f_striptags, "", 0, 0},
    {"title", f_title, "", 0, 0},
    {"tojson", j_tojson, "ensure_ascii indent separators sort_keys", 0, 0},
    {"trim", f_trim, "chars", 0, 0},
    {"truncate", f_truncate, "length killwords end leeway", 0, 0},
    {"upper", f_upper, "", 0, 0},
    {"urlencode", f_urlencode, "", 0, 0},
    {"wordcount", f_wordcount, "", 0, 0},
    {"xmlattr", f_xmlattr, "autospace", 0, 0},
    {0},
};

const struct jbuiltin *j_find_filter(const char *name, size_t n) {
    const struct jbuiltin *const tables[] = {filters, jinja_filters_seq};
    for (int i = 0; i < 2; i++)
        for (const struct jbuiltin *t = tables[i]; t->name; t++)
            if (strncmp(t->name, name, n) == 0 && !t->name[n]) return t;
    return NULL;
}
