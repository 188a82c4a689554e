/* jinja_string.c: text with provenance: builders, slices, search, strip, replace, case, lines, repr.
 *
 * A string is a view of UTF-8 bytes and, if its bytes have different origins, of one flag per byte. `a + b`
 * appends to a in place if a ends where its buffer ends. So templates that build a string piece by piece take
 * linear time and memory. */
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "text/jinja/jinja_impl.h"

struct jstr_buf { /* bytes of a string made by +: data, then flags if has_from is set */
    size_t used, cap;
    bool has_from;
    char data[];
};

/* ---- making ---- */

static struct jv new_str(struct jr *r, const char *p, const uint8_t *from, size_t n, bool tmpl) {
    struct jstr *s = jr_alloc(r, sizeof *s);
    if (!s) return jv_none();
    *s = (struct jstr){.p = p, .from = from, .n = n, .n_char = SIZE_MAX, .tmpl = tmpl};
    return (struct jv){.kind = JV_STR, .s = s};
}

struct jv jv_view(struct jr *r, const char *p, size_t n, bool tmpl) {
    return new_str(r, p, NULL, n, tmpl);
}

struct jv jv_text(struct jr *r, const char *p, size_t n, bool tmpl) {
    char *q = jr_step(r, n / 16) ? jr_alloc(r, n + 1) : NULL;
    if (!q) return jv_none();
    if (n) memcpy(q, p, n);
    return new_str(r, q, NULL, n, tmpl);
}

struct jv jv_slice(struct jr *r, const struct jstr *s, size_t from, size_t to) {
    if (from > s->n) from = s->n;
    if (to > s->n) to = s->n;
    if (to < from) to = from;
    struct jv v = new_str(r, s->p + from, s->from ? s->from + from : NULL, to - from, s->tmpl);
    if (!r->rc) v.s->is_markup = s->is_markup;
    return v;
}

static bool fits(struct jr *r, size_t a, size_t b) {
    if (a <= r->limits->max_output_bytes && b <= r->limits->max_output_bytes - a) return true;
    jr_fail(r, CHIMERE_ELIMIT, "a text of more than %zu bytes", r->limits->max_output_bytes);
    return false;
}

static void copy_from(uint8_t *out, const struct jstr *s) {
    if (s->from) memcpy(out, s->from, s->n);
    else memset(out, s->tmpl, s->n);
}

static struct jv concat_markup(struct jr *r, const struct jstr *a, const struct jstr *b) {
    struct jstr x = *a, y = *b;
    if (!a->is_markup) {
        struct jv v = jstr_escape(r, &x);
        if (!r->rc) x = *v.s;
    }
    if (!b->is_markup) {
        struct jv v = jstr_escape(r, &y);
        if (!r->rc) y = *v.s;
    }
    x.is_markup = y.is_markup = false;
    struct jv v = jstr_concat(r, &x, &y);
    if (!r->rc) v.s->is_markup = true;
    return v;
}

struct jv jstr_concat(struct jr *r, const struct jstr *a, const struct jstr *b) {
    if (a->is_markup || b->is_markup) return concat_markup(r, a, b);
    if (r->rc || !fits(r, a->n, b->n)) return jv_none();
    size_t n = a->n + b->n;
    bool mixed = a->from || b->from || (a->n && b->n && a->tmpl != b->tmpl);
    struct jstr_buf *buf = a->buf;
    if (!b->n) {
        struct jv v = new_str(r, a->p, a->from, a->n, a->tmpl);
        if (!r->rc) v.s->buf = buf;
        return v;
    }
    if (!a->n) return new_str(r, b->p, b->from, b->n, b->tmpl);
    bool in_place = buf && a->p + a->n == buf->data + buf->used && buf->cap - buf->used >= b->n &&
                    (buf->has_from || !mixed);
    if (!jr_step(r, (in_place ? b->n : n) / 16 + 1)) return jv_none();
    if (!in_place) {
        size_t cap = a->buf ? n * 2 : n + 32;
        size_t bytes = sizeof *buf + cap * (mixed ? 2 : 1);
        buf = jr_alloc(r, bytes);
        if (!buf) return jv_none();
        buf->cap = cap;
        buf->has_from = mixed;
        memcpy(buf->data, a->p, a->n);
        if (mixed) copy_from((uint8_t *)buf->data + cap, a);
        buf->used = a->n;
    }
    size_t start = buf->used - a->n;
    memcpy(buf->data + buf->used, b->p, b->n);
    uint8_t *from = buf->has_from ? (uint8_t *)buf->data + buf->cap : NULL;
    if (from) copy_from(from + buf->used, b);
    buf->used += b->n;
    struct jv v = new_str(r, buf->data + start, from ? from + start : NULL, n, b->tmpl);
    if (!r->rc) v.s->buf = buf;
    return v;
}

/* ---- builder ---- */

size_t jb_begin(struct jr *r) {
    size_t outer = r->mark;
    r->mark = r->n_out;
    return outer;
}

static bool jb_room(struct jr *r, size_t n) {
    if (r->rc || !fits(r, r->n_out - r->mark, n) || !jr_step(r, n / 16)) return false;
    if (r->cap_out - r->n_out >= n) return true;
    size_t need = r->n_out + n, cap = r->cap_out ? r->cap_out * 2 : 4096;
    if (cap < need) cap = need;
    char *out = mem_realloc(r->out, cap);
    if (out) r->out = out;
    uint8_t *from = out ? mem_realloc(r->out_from, cap) : NULL;
    if (from) r->out_from = from;
    if (!from) {
        jr_fail(r, CHIMERE_ENOMEM, "out of memory");
        return false;
    }
    r->cap_out = cap;
    return true;
}

void jb_put(struct jr *r, const char *p, size_t n, bool tmpl) {
    if (!n || !jb_room(r, n)) return;
    memcpy(r->out + r->n_out, p, n);
    memset(r->out_from + r->n_out, tmpl, n);
    r->n_out += n;
}

void jb_puts(struct jr *r, const char *s) { jb_put(r, s, strlen(s), false); }

void jb_put_jstr(struct jr *r, const struct jstr *s, size_t from, size_t to) {
    size_t n = to - from;
    if (to <= from || !jb_room(r, n)) return;
    memcpy(r->out + r->n_out, s->p + from, n);
    if (s->from) memcpy(r->out_from + r->n_out, s->from + from, n);
    else memset(r->out_from + r->n_out, s->tmpl, n);
    r->n_out += n;
}

struct jv jb_end(struct jr *r, size_t outer) {
    size_t n = r->n_out - r->mark, b = r->mark;
    r->n_out = b;
    r->mark = outer;
    if (r->rc) return jv_none();
    char *p = jr_alloc(r, n + 1);
    if (!p) return jv_none();
    if (n) memcpy(p, r->out + b, n);
    bool mixed = n && memchr(r->out_from + b, !r->out_from[b], n);
    uint8_t *from = mixed ? jr_alloc(r, n) : NULL;
    if (mixed && !from) return jv_none();
    if (mixed) memcpy(from, r->out_from + b, n);
    return new_str(r, p, from, n, n ? r->out_from[b] != 0 : true);
}

struct jv jstr_escape(struct jr *r, struct jstr *s) {
    static const char special[] = "&<>'\"";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    size_t outer = jb_begin(r), b = 0;
    for (size_t i = 0; i < s->n && !s->is_markup; i++) {
        const char *c = memchr(special, s->p[i], sizeof special - 1);
        if (!c) continue;
        jb_put_jstr(r, s, b, i);
        jb_put(r, names[c - special], strlen(names[c - special]), s->from ? s->from[i] : s->tmpl);
        b = i + 1;
    }
    jb_put_jstr(r, s, b, s->n);
    struct jv v = jb_end(r, outer);
    if (!r->rc) v.s->is_markup = true;
    return v;
}

/* ---- str() and repr() ---- */

static bool is_printable(uint32_t cp) {
    if (cp == ' ') return true;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
    }
}

static void put_str_repr(struct jr *r, const struct jstr *s) {
    char quote = s->n && memchr(s->p, '\'', s->n) && !memchr(s->p, '"', s->n) ? '"' : '\'';
    char esc[16];
    if (s->is_markup) jb_puts(r, "Markup(");
    jb_put(r, &quote, 1, false);
    for (size_t i = 0; i < s->n && !r->rc;) {
        uint32_t cp = 0;
        int k = utf8_decode(s->p + i, s->n - i, &cp);
        if (k <= 0) k = 1;
        int len = 0;
        if (cp == '\n') len = snprintf(esc, sizeof esc, "\\n");
        else if (cp == '\r') len = snprintf(esc, sizeof esc, "\\r");
        else if (cp == '\t') len = snprintf(esc, sizeof esc, "\\t");
        else if (cp == '\\' || cp == (uint32_t)quote)
            len = snprintf(esc, sizeof esc, "\\%c", (char)cp);
        else if (!is_printable(cp))
            len = snprintf(esc, sizeof esc,
                           cp < 0x100     ? "\\x%02x"
                           : cp < 0x10000 ? "\\u%04x"
                                          : "\\U%08x",
                           cp);
        if (len) jb_put(r, esc, (size_t)len, false);
        else jb_put(r, s->p + i, (size_t)k, false);
        i += (size_t)k;
    }
    jb_put(r, &quote, 1, false);
    if (s->is_markup) jb_puts(r, ")");
}

static void put_items_repr(struct jr *r, const struct jlist *l, const char *open,
                           const char *close) {
    jb_puts(r, open);
    for (size_t i = 0; i < l->n && jr_step(r, 1); i++) {
        if (i) jb_puts(r, ", ");
        jb_put_repr(r, l->v[i]);
    }
    jb_puts(r, close);
}

static void put_dict_repr(struct jr *r, const struct jdict *d) {
    jb_puts(r, "{");
    for (size_t i = 0; i < d->n && jr_step(r, 1); i++) {
        if (i) jb_puts(r, ", ");
        jb_put_repr(r, d->items[i].k);
        jb_puts(r, ": ");
        jb_put_repr(r, d->items[i].v);
    }
    jb_puts(r, "}");
}

static void put_scalar(struct jr *r, struct jv v) {
    char t[96];
    int n = 0;
    switch ((enum jv_kind)v.kind) {
    case JV_MISSING:
    case JV_UNDEF: n = snprintf(t, sizeof t, "Undefined"); break;
    case JV_NONE: n = snprintf(t, sizeof t, "None"); break;
    case JV_BOOL: n = snprintf(t, sizeof t, v.b ? "True" : "False"); break;
    case JV_INT: n = snprintf(t, sizeof t, "%lld", (long long)v.i); break;
    case JV_FLOAT: n = (int)jf_float_repr(t, v.f); break;
    case JV_RANGE:
        n = snprintf(t, sizeof t,
                     v.range->step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
                     (long long)v.range->start, (long long)v.range->stop, (long long)v.range->step);
        break;
    case JV_ITER: n = snprintf(t, sizeof t, "<generator object %.60s>", v.l->name); break;
    case JV_BUILTIN: n = snprintf(t, sizeof t, "<function %.60s>", v.fn->name); break;
    case JV_METHOD: n = snprintf(t, sizeof t, "<built-in method %.60s>", v.method->fn->name); break;
    default: n = snprintf(t, sizeof t, "<%s>", jv_type_name(v)); break;
    }
    jb_put(r, t, (size_t)n, false);
}

void jb_put_repr(struct jr *r, struct jv v) {
    if (!jr_enter(r)) return;
    switch ((enum jv_kind)v.kind) {
    case JV_STR: put_str_repr(r, v.s); break;
    case JV_LIST: put_items_repr(r, v.l, "[", "]"); break;
    case JV_TUPLE: put_items_repr(r, v.l, "(", v.l->n == 1 ? ",)" : ")"); break;
    case JV_VIEW:
        jb_puts(r, v.l->name);
        put_items_repr(r, v.l, "([", "])");
        break;
    case JV_DICT: put_dict_repr(r, v.d); break;
    case JV_NAMESPACE:
        jb_puts(r, "<Namespace ");
        put_dict_repr(r, v.d);
        jb_puts(r, ">");
        break;
    default: put_scalar(r, v);
    }
    jr_leave(r);
}

void jb_put_value(struct jr *r, struct jv v) {
    if (v.kind == JV_STR) jb_put_jstr(r, v.s, 0, v.s->n);
    else if (v.kind != JV_UNDEF && v.kind != JV_MISSING) jb_put_repr(r, v);
}

struct jstr *jv_to_str(struct jr *r, struct jv v) {
    static struct jstr nothing = {.p = "", .n = 0, .n_char = 0, .tmpl = true};
    if (v.kind == JV_STR && !r->rc) return v.s;
    size_t outer = jb_begin(r);
    jb_put_value(r, v);
    v = jb_end(r, outer);
    return r->rc ? &nothing : v.s;
}

/* ---- code points ---- */

size_t jstr_len(struct jstr *s) {
    if (s->n_char == SIZE_MAX) {
        size_t n = 0;
        for (size_t i = 0; i < s->n; i++) n += ((unsigned char)s->p[i] & 0xc0) != 0x80;
        s->n_char = n;
    }
    return s->n_char;
}

size_t jstr_offset(struct jstr *s, size_t i_char) {
    if (jstr_len(s) == s->n) return i_char < s->n ? i_char : s->n;
    size_t at = 0;
    for (; at < s->n; at++)
        if (((unsigned char)s->p[at] & 0xc0) != 0x80 && i_char-- == 0) break;
    return at;
}

bool jstr_eq(const struct jstr *a, const char *p, size_t n) {
    return a->n == n && (n == 0 || memcmp(a->p, p, n) == 0);
}

bool py_is_space(uint32_t cp) {
    return (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 32) || cp == 0x85 || cp == 0xa0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

size_t jstr_find(const struct jstr *s, const struct jstr *sub, size_t from, size_t to) {
    if (from > to || to > s->n || sub->n > to - from) return SIZE_MAX;
    if (!sub->n) return from;
    const char *hit = memmem(s->p + from, to - from, sub->p, sub->n);
    return hit ? (size_t)(hit - s->p) : SIZE_MAX;
}

size_t jstr_rfind(const struct jstr *s, const struct jstr *sub, size_t from, size_t to) {
    if (from > to || to > s->n || sub->n > to - from) return SIZE_MAX;
    for (size_t at = to - sub->n + 1; at-- > from;)
        if (!sub->n || memcmp(s->p + at, sub->p, sub->n) == 0) return at;
    return SIZE_MAX;
}

static bool has_char(const struct jstr *chars, const char *p, size_t n) {
    if (!chars) {
        uint32_t cp = 0;
        return utf8_decode(p, n, &cp) > 0 && py_is_space(cp);
    }
    for (size_t i = 0; i + n <= chars->n; i++)
        if (memcmp(chars->p + i, p, n) == 0)
            return true; /* a whole character cannot match inside another */
    return false;
}

struct jv jstr_strip(struct jr *r, struct jstr *s, const struct jstr *chars, int sides) {
    size_t b = 0, e = s->n;
    if (!jr_step(r, 1)) return jv_none();
    while ((sides & 1) && b < e) {
        int k = utf8_valid_len(s->p + b, e - b);
        if (k <= 0 || !has_char(chars, s->p + b, (size_t)k)) break;
        b += (size_t)k;
    }
    while ((sides & 2) && e > b) {
        size_t c = e - 1;
        while (c > b && ((unsigned char)s->p[c] & 0xc0) == 0x80) c--;
        if (!has_char(chars, s->p + c, e - c)) break;
        e = c;
    }
    jr_step(r, (s->n - (e - b)) / 16 * (chars ? chars->n + 1 : 1));
    return jv_slice(r, s, b, e);
}

struct jv jstr_replace(struct jr *r, struct jstr *s, struct jstr *old, struct jstr *new_text,
                       int64_t count) {
    size_t outer = jb_begin(r), at = 0;
    /* The author of context text controls where replaced text appears in it, so the new text counts as context
     * too. */
    bool all_tmpl = s->tmpl && !s->from;
    jr_step(r, s->n / 16 + 1);
    for (int64_t i = 0; (count < 0 || i < count) && jr_step(r, 1); i++) {
        size_t hit = jstr_find(s, old, at, s->n);
        if (hit == SIZE_MAX) break;
        if (!old->n && i > 0) { /* between characters */
            if (at >= s->n) break;
            int k = utf8_valid_len(s->p + at, s->n - at);
            hit = at + (k > 0 ? (size_t)k : 1);
        }
        jb_put_jstr(r, s, at, hit);
        if (all_tmpl) jb_put_jstr(r, new_text, 0, new_text->n);
        else jb_put(r, new_text->p, new_text->n, false);
        at = hit + old->n;
        if (old->n == 0 && hit >= s->n) break;
    }
    jb_put_jstr(r, s, at, s->n);
    return jb_end(r, outer);
}

/* ---- case ---- */

/* Characters whose upper case has several characters, as in Unicode's full mapping, which Python follows. */
static const struct {
    uint32_t cp;
    const char *upper;
} full_upper[] = {
    {0xdf, "SS"},          {0x149, "\xca\xbcN"},
    {0x1f0, "J\xcc\x8c"},  {0x587, "\xd4\xb5\xd5\x92"},
    {0xfb00, "FF"},        {0xfb01, "FI"},
    {0xfb02, "FL"},        {0xfb03, "FFI"},
    {0xfb04, "FFL"},       {0xfb05, "ST"},
    {0xfb06, "ST"},        {0x1e96, "H\xcc\xb1"},
    {0x1e97, "T\xcc\x88"}, {0x1e98, "W\xcc\x8a"},
    {0x1e99, "Y\xcc\x8a"}, {0x1e9a, "A\xca\xbe"},
};

static void put_cp(struct jr *r, uint32_t cp, bool tmpl) {
    char t[4];
    int k = utf8_encode(cp, t);
    jb_put(r, t, (size_t)k, tmpl);
}

static void put_upper(struct jr *r, uint32_t cp, bool tmpl, bool title) {
    for (size_t i = 0; i < sizeof full_upper / sizeof *full_upper; i++)
        if (full_upper[i].cp == cp) {
            const char *u = full_upper[i].upper;
            int first = utf8_valid_len(u, strlen(u));
            jb_put(r, u, (size_t)first, tmpl);
            for (u += first; *u; u++) { /* "SS" upper case, "Ss" title case */
                char c = title && *u >= 'A' && *u <= 'Z' ? (char)(*u + 32) : *u;
                jb_put(r, &c, 1, tmpl);
            }
            return;
        }
    int32_t c = (int32_t)cp;
    put_cp(r, (uint32_t)(title ? utf8proc_totitle(c) : utf8proc_toupper(c)), tmpl);
}

static bool is_cased(uint32_t cp) {
    int32_t c = (int32_t)cp;
    utf8proc_category_t k = utf8proc_category(c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT ||
           utf8proc_toupper(c) != c || utf8proc_tolower(c) != c;
}

/* Returns true for a capital sigma at the end of a word: a cased letter before it, none after it. */
static bool is_final_sigma(const struct jstr *s, size_t at) {
    uint32_t cp = 0;
    size_t b = at;
    bool before = false;
    while (b > 0) {
        b--;
        if (((unsigned char)s->p[b] & 0xc0) == 0x80) continue;
        if (utf8_decode(s->p + b, s->n - b, &cp) > 0 && (cp == '\'' || cp == '.' || cp == 0xad))
            continue;
        before = is_cased(cp);
        break;
    }
    if (!before) return false;
    for (size_t i = at + 2; i < s->n;) {
        int k = utf8_decode(s->p + i, s->n - i, &cp);
        if (k <= 0) return true;
        if (cp != '\'' && cp != '.' && cp != 0xad) return !is_cased(cp);
        i += (size_t)k;
    }
    return true;
}

static void put_lower(struct jr *r, const struct jstr *s, size_t at, uint32_t cp, bool tmpl) {
    if (cp == 0x130) jb_put(r, "i\xcc\x87", 3, tmpl);
    else if (cp == 0x3a3) put_cp(r, is_final_sigma(s, at) ? 0x3c2 : 0x3c3, tmpl);
    else put_cp(r, (uint32_t)utf8proc_tolower((int32_t)cp), tmpl);
}

static bool starts_word(uint32_t cp) { /* the characters at which the title filter splits */
    return cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<' || py_is_space(cp);
}

struct jv jstr_case(struct jr *r, struct jstr *s, enum jcase how) {
    size_t outer = jb_begin(r);
    bool first = true; /* the next character begins a word or the text */
    for (size_t i = 0; i < s->n && jr_step(r, 1);) {
        uint32_t cp = 0;
        int k = utf8_decode(s->p + i, s->n - i, &cp);
        bool tmpl = s->from ? s->from[i] : s->tmpl;
        if (k <= 0) break;
        bool up = how == JC_UPPER, title = false;
        if (how == JC_SWAP) up = utf8proc_tolower((int32_t)cp) == (int32_t)cp;
        if (how == JC_TITLE || how == JC_CAPITALIZE) up = title = first;
        if (how == JC_TITLE_FILTER) up = first;
        if (how == JC_FOLD && cp == 0xdf) jb_put(r, "ss", 2, tmpl);
        else if (how == JC_FOLD && cp == 0x3c2) put_cp(r, 0x3c3, tmpl);
        else if (how == JC_FOLD && cp == 0x3a3) put_cp(r, 0x3c3, tmpl);
        else if (up) put_upper(r, cp, tmpl, title);
        else put_lower(r, s, i, cp, tmpl);
        if (how == JC_TITLE) first = !is_cased(cp);
        else if (how == JC_TITLE_FILTER) first = starts_word(cp);
        else first = false;
        i += (size_t)k;
    }
    struct jv v = jb_end(r, outer);
    if (!r->rc) v.s->is_markup = s->is_markup;
    return v;
}

int jstr_case_kind(const struct jstr *s) {
    bool upper = false, lower = false;
    for (size_t i = 0; i < s->n;) {
        uint32_t cp = 0;
        int k = utf8_decode(s->p + i, s->n - i, &cp);
        if (k <= 0) break;
        int32_t c = (int32_t)cp;
        utf8proc_category_t cat = utf8proc_category(c);
        if (cat == UTF8PROC_CATEGORY_LT) upper = lower = true;
        else if (cat == UTF8PROC_CATEGORY_LU || utf8proc_tolower(c) != c) upper = true;
        else if (cat == UTF8PROC_CATEGORY_LL || utf8proc_toupper(c) != c) lower = true;
        i += (size_t)k;
    }
    return upper == lower ? 0 : upper ? 1 : -1;
}

struct jv jstr_lines(struct jr *r, struct jstr *s, bool keep) {
    struct jv out = jv_list(r, JV_LIST, 0);
    size_t b = 0;
    for (size_t i = 0; i < s->n && jr_step(r, 1);) {
        uint32_t cp = 0;
        int k = utf8_decode(s->p + i, s->n - i, &cp);
        size_t len = k > 0 ? (size_t)k : 1;
        bool end = (cp >= 10 && cp <= 13) || (cp >= 28 && cp <= 30) || cp == 0x85 || cp == 0x2028 ||
                   cp == 0x2029;
        if (end) {
            size_t e = i + len;
            if (cp == '\r' && e < s->n && s->p[e] == '\n') e++;
            jlist_push(r, out.l, jv_slice(r, s, b, keep ? e : i));
            b = i = e;
        } else {
            i += len;
        }
    }
    if (b < s->n && !r->rc) jlist_push(r, out.l, jv_slice(r, s, b, s->n));
    return out;
}
