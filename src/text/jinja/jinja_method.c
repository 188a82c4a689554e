/* jinja_method.c: methods of strings, lists, dictionaries and numbers. Methods that would change a value are
 * listed as refused, because values in the sandbox of chat templates are immutable. */
#include <math.h>
#include <string.h>
#include <utf8proc.h>

#include "text/jinja/jinja_impl.h"

#define METHOD(name)                                                                               \
    static struct jv name(struct jr *r, struct jv self, struct jv *v, const struct jcall *call)
#define UNUSED() (void)r, (void)self, (void)v, (void)call

struct jv j_method_unsafe(struct jr *r, struct jv self, struct jv *v, const struct jcall *call) {
    UNUSED();
    return jv_none();
}

static struct jstr *want_str(struct jr *r, struct jv v) {
    static struct jstr nothing = {.p = "", .n_char = 0};
    if (v.kind == JV_STR) return v.s;
    if (v.kind == JV_UNDEF) j_undefined_error(r, v);
    else jr_fail(r, CHIMERE_EFORMAT, "a method wants a str, not %s", jv_type_name(v));
    return &nothing;
}

static int64_t want_int(struct jr *r, struct jv v, int64_t absent) {
    if (v.kind == JV_MISSING) return absent;
    if (jv_is_integral(v)) return jv_as_int(v);
    if (v.kind == JV_UNDEF) j_undefined_error(r, v);
    else
        jr_fail(r, CHIMERE_EFORMAT, "'%s' object cannot be interpreted as an integer",
                jv_type_name(v));
    return absent;
}

/* Computes the byte range for optional start and end arguments, with the rules of slices; false: the range is
 * empty. */
static bool bounds(struct jr *r, struct jstr *s, struct jv a, struct jv b, size_t *from,
                   size_t *to) {
    int64_t n = (int64_t)jstr_len(s);
    int64_t i = a.kind == JV_NONE ? 0 : want_int(r, a, 0),
            k = b.kind == JV_NONE ? n : want_int(r, b, n);
    if (i < 0) i = i + n < 0 ? 0 : i + n;
    if (k < 0) k = k + n < 0 ? 0 : k + n;
    if (k > n) k = n;
    if (r->rc || i > n || i > k) return false;
    *from = jstr_offset(s, (size_t)i);
    *to = jstr_offset(s, (size_t)k);
    return jr_step(r, s->n / 16 + 1);
}

static int64_t char_index(const struct jstr *s, size_t at) {
    int64_t n = 0;
    for (size_t i = 0; i < at; i++) n += ((unsigned char)s->p[i] & 0xc0) != 0x80;
    return n;
}

METHOD(m_upper) {
    UNUSED();
    return jstr_case(r, self.s, JC_UPPER);
}
METHOD(m_lower) {
    UNUSED();
    return jstr_case(r, self.s, JC_LOWER);
}
METHOD(m_title) {
    UNUSED();
    return jstr_case(r, self.s, JC_TITLE);
}
METHOD(m_capitalize) {
    UNUSED();
    return jstr_case(r, self.s, JC_CAPITALIZE);
}
METHOD(m_swapcase) {
    UNUSED();
    return jstr_case(r, self.s, JC_SWAP);
}
METHOD(m_casefold) {
    UNUSED();
    return jstr_case(r, self.s, JC_FOLD);
}

static struct jv strip(struct jr *r, struct jv self, struct jv chars, int sides) {
    bool by_space = chars.kind == JV_MISSING || chars.kind == JV_NONE;
    const struct jstr *c = by_space ? NULL : want_str(r, chars);
    return r->rc ? jv_none() : jstr_strip(r, self.s, c, sides);
}
METHOD(m_strip) {
    UNUSED();
    return strip(r, self, v[0], 3);
}
METHOD(m_lstrip) {
    UNUSED();
    return strip(r, self, v[0], 1);
}
METHOD(m_rstrip) {
    UNUSED();
    return strip(r, self, v[0], 2);
}

static struct jv split_space(struct jr *r, struct jstr *s, int64_t max, bool from_right) {
    struct jv out = jv_list(r, JV_LIST, 0);
    struct jv rest = jstr_strip(r, s, NULL, from_right ? 2 : 1);
    while (!r->rc && rest.s->n && jr_step(r, rest.s->n / 16 + 1)) {
        struct jstr *t = rest.s;
        size_t at = from_right ? t->n : 0;
        uint32_t cp = 0;
        if (max-- == 0) {
            jlist_push(r, out.l, rest);
            break;
        }
        if (from_right) {
            while (at > 0) {
                size_t c = at - 1;
                while (c > 0 && ((unsigned char)t->p[c] & 0xc0) == 0x80) c--;
                if (utf8_decode(t->p + c, at - c, &cp) > 0 && py_is_space(cp)) break;
                at = c;
            }
            jlist_push(r, out.l, jv_slice(r, t, at, t->n));
            rest = jv_slice(r, t, 0, at);
        } else {
            while (at < t->n) {
                int k = utf8_decode(t->p + at, t->n - at, &cp);
                if (k <= 0 || py_is_space(cp)) break;
                at += (size_t)k;
            }
            jlist_push(r, out.l, jv_slice(r, t, 0, at));
            rest = jv_slice(r, t, at, t->n);
        }
        if (!r->rc) rest = jstr_strip(r, rest.s, NULL, from_right ? 2 : 1);
    }
    return out;
}

static void reverse_list(struct jv list) {
    for (size_t i = 0, n = list.l->n; i < n / 2; i++) {
        struct jv t = list.l->v[i];
        list.l->v[i] = list.l->v[n - 1 - i];
        list.l->v[n - 1 - i] = t;
    }
}

static struct jv split(struct jr *r, struct jv self, struct jv *v, bool from_right) {
    int64_t max = want_int(r, v[1], -1);
    if (r->rc) return jv_none();
    struct jstr *s = self.s;
    struct jv out;
    if (v[0].kind == JV_MISSING || v[0].kind == JV_NONE) {
        out = split_space(r, s, max, from_right);
    } else {
        struct jstr *sep = want_str(r, v[0]);
        if (!r->rc && !sep->n) jr_fail(r, CHIMERE_EFORMAT, "empty separator");
        out = jv_list(r, JV_LIST, 0);
        size_t b = 0, e = s->n, hit;
        jr_step(r, s->n / 16);
        while (!r->rc && max-- != 0 &&
               (hit = from_right ? jstr_rfind(s, sep, 0, e) : jstr_find(s, sep, b, s->n)) !=
                   SIZE_MAX) {
            jlist_push(r, out.l,
                       from_right ? jv_slice(r, s, hit + sep->n, e) : jv_slice(r, s, b, hit));
            b = hit + sep->n;
            if (from_right) e = hit;
        }
        if (!r->rc)
            jlist_push(r, out.l, from_right ? jv_slice(r, s, 0, e) : jv_slice(r, s, b, s->n));
    }
    if (!r->rc && from_right) reverse_list(out);
    return out;
}
METHOD(m_split) {
    UNUSED();
    return split(r, self, v, false);
}
METHOD(m_rsplit) {
    UNUSED();
    return split(r, self, v, true);
}

METHOD(m_splitlines) {
    UNUSED();
    return jstr_lines(r, self.s, v[0].kind != JV_MISSING && jv_truth(r, v[0]));
}

static struct jv partition(struct jr *r, struct jv self, struct jv sep_v, bool from_right) {
    struct jstr *sep = want_str(r, sep_v), *s = self.s;
    if (!r->rc && !sep->n) jr_fail(r, CHIMERE_EFORMAT, "empty separator");
    struct jv out = jv_list(r, JV_TUPLE, 3);
    if (r->rc) return jv_none();
    jr_step(r, s->n / 16);
    size_t hit = from_right ? jstr_rfind(s, sep, 0, s->n) : jstr_find(s, sep, 0, s->n);
    struct jv *t = out.l->v;
    if (hit == SIZE_MAX) {
        t[0] = t[1] = t[2] = jv_view(r, "", 0, true);
        t[from_right ? 2 : 0] = self;
    } else {
        t[0] = jv_slice(r, s, 0, hit);
        t[1] = jv_slice(r, s, hit, hit + sep->n);
        t[2] = jv_slice(r, s, hit + sep->n, s->n);
    }
    return out;
}
METHOD(m_partition) {
    UNUSED();
    return partition(r, self, v[0], false);
}
METHOD(m_rpartition) {
    UNUSED();
    return partition(r, self, v[0], true);
}

static bool affix_at(struct jr *r, const struct jstr *s, struct jv v, size_t from, size_t to,
                     bool at_end) {
    const struct jstr *a = want_str(r, v);
    if (r->rc || a->n > to - from) return false;
    return !a->n || memcmp(s->p + (at_end ? to - a->n : from), a->p, a->n) == 0;
}

static struct jv has_affix(struct jr *r, struct jv self, struct jv *v, bool at_end) {
    size_t from, to;
    if (v[0].kind != JV_TUPLE) want_str(r, v[0]);
    if (!bounds(r, self.s, v[1], v[2], &from, &to)) return jv_bool(false);
    if (v[0].kind != JV_TUPLE) return jv_bool(affix_at(r, self.s, v[0], from, to, at_end));
    for (size_t i = 0; i < v[0].l->n && jr_step(r, 1); i++)
        if (affix_at(r, self.s, v[0].l->v[i], from, to, at_end)) return jv_bool(true);
    return jv_bool(false);
}
METHOD(m_startswith) {
    UNUSED();
    return has_affix(r, self, v, false);
}
METHOD(m_endswith) {
    UNUSED();
    return has_affix(r, self, v, true);
}

static struct jv find(struct jr *r, struct jv self, struct jv *v, bool from_right, bool must) {
    size_t from, to, hit = SIZE_MAX;
    struct jstr *sub = want_str(r, v[0]);
    if (bounds(r, self.s, v[1], v[2], &from, &to))
        hit = from_right ? jstr_rfind(self.s, sub, from, to) : jstr_find(self.s, sub, from, to);
    if (hit == SIZE_MAX && must) jr_fail(r, CHIMERE_EFORMAT, "substring not found");
    return jv_int(hit == SIZE_MAX ? -1 : char_index(self.s, hit));
}
METHOD(m_find) {
    UNUSED();
    return find(r, self, v, false, false);
}
METHOD(m_rfind) {
    UNUSED();
    return find(r, self, v, true, false);
}
METHOD(m_index) {
    UNUSED();
    return find(r, self, v, false, true);
}
METHOD(m_rindex) {
    UNUSED();
    return find(r, self, v, true, true);
}

METHOD(m_count) {
    UNUSED();
    size_t from, to;
    int64_t n = 0;
    struct jstr *sub = want_str(r, v[0]);
    if (!bounds(r, self.s, v[1], v[2], &from, &to)) return jv_int(0);
    if (!sub->n) return jv_int(char_index(self.s, to) - char_index(self.s, from) + 1);
    for (size_t hit; jr_step(r, 1) && (hit = jstr_find(self.s, sub, from, to)) != SIZE_MAX;
         from = hit + sub->n)
        n++;
    return jv_int(n);
}

METHOD(m_replace) {
    UNUSED();
    struct jstr *a = want_str(r, v[0]), *b = want_str(r, v[1]);
    int64_t n = want_int(r, v[2], -1);
    return r->rc ? jv_none() : jstr_replace(r, self.s, a, b, n);
}

METHOD(m_removeprefix) {
    UNUSED();
    const struct jstr *a = want_str(r, v[0]);
    bool has = !r->rc && affix_at(r, self.s, v[0], 0, self.s->n, false);
    return has ? jv_slice(r, self.s, a->n, self.s->n) : self;
}
METHOD(m_removesuffix) {
    UNUSED();
    const struct jstr *a = want_str(r, v[0]);
    bool has = !r->rc && affix_at(r, self.s, v[0], 0, self.s->n, true);
    return has ? jv_slice(r, self.s, 0, self.s->n - a->n) : self;
}

METHOD(m_join) {
    UNUSED();
    const struct jlist *l = jv_items(r, v[0]);
    size_t outer = jb_begin(r);
    for (size_t i = 0; i < l->n && jr_step(r, 1); i++) {
        if (i) jb_put_jstr(r, self.s, 0, self.s->n);
        if (self.s->is_markup) {
            struct jv item = jstr_escape(r, jv_to_str(r, l->v[i]));
            if (!r->rc) jb_put_jstr(r, item.s, 0, item.s->n);
        } else if (l->v[i].kind != JV_STR)
            jr_fail(r, CHIMERE_EFORMAT, "sequence item %zu: expected str instance, %s found", i,
                    jv_type_name(l->v[i]));
        else jb_put_jstr(r, l->v[i].s, 0, l->v[i].s->n);
    }
    return jb_end(r, outer);
}

METHOD(m_format) {
    UNUSED();
    return jf_format(r, self.s, call, NULL);
}
METHOD(m_format_map) {
    UNUSED();
    if (v[0].kind == JV_DICT) return jf_format(r, self.s, call, v[0].d);
    jr_fail(r, CHIMERE_EFORMAT, "format_map() wants a mapping");
    return jv_none();
}

static struct jv justify(struct jr *r, struct jv self, struct jv *v, int how) {
    int64_t width = want_int(r, v[0], 0), n = (int64_t)jstr_len(self.s);
    struct jv fill = v[1].kind == JV_MISSING ? jv_view(r, " ", 1, true) : v[1];
    if (!r->rc && (fill.kind != JV_STR || jstr_len(fill.s) != 1))
        jr_fail(r, CHIMERE_EFORMAT, "The fill character must be exactly one character long");
    if (r->rc || width <= n) return self;
    int64_t pad = width - n, left = how == 0 ? 0 : how == 1 ? pad : pad / 2 + (pad & width & 1);
    size_t outer = jb_begin(r);
    for (int64_t i = 0; i < left && jr_step(r, 1); i++) jb_put_jstr(r, fill.s, 0, fill.s->n);
    jb_put_jstr(r, self.s, 0, self.s->n);
    for (int64_t i = left; i < pad && jr_step(r, 1); i++) jb_put_jstr(r, fill.s, 0, fill.s->n);
    return jb_end(r, outer);
}
METHOD(m_ljust) {
    UNUSED();
    return justify(r, self, v, 0);
}
METHOD(m_rjust) {
    UNUSED();
    return justify(r, self, v, 1);
}
METHOD(m_center) {
    UNUSED();
    return justify(r, self, v, 2);
}

METHOD(m_zfill) {
    UNUSED();
    int64_t pad = want_int(r, v[0], 0) - (int64_t)jstr_len(self.s);
    if (r->rc || pad <= 0) return self;
    size_t sign = self.s->n && (self.s->p[0] == '-' || self.s->p[0] == '+'), outer = jb_begin(r);
    jb_put_jstr(r, self.s, 0, sign);
    for (int64_t i = 0; i < pad && jr_step(r, 1); i++)
        jb_put(r, "0", 1, self.s->tmpl && !self.s->from);
    jb_put_jstr(r, self.s, sign, self.s->n);
    return jb_end(r, outer);
}

METHOD(m_expandtabs) {
    UNUSED();
    int64_t size = want_int(r, v[0], 8), column = 0;
    size_t outer = jb_begin(r);
    for (size_t i = 0; i < self.s->n && jr_step(r, 1);) {
        int k = utf8_valid_len(self.s->p + i, self.s->n - i);
        size_t len = k > 0 ? (size_t)k : 1;
        char c = self.s->p[i];
        if (c == '\t') {
            for (int64_t n = size > 0 ? size - column % size : 0; n > 0 && jr_step(r, 1);
                 n--, column++)
                jb_put(r, " ", 1, self.s->tmpl && !self.s->from);
        } else {
            column = c == '\n' || c == '\r' ? 0 : column + 1;
            jb_put_jstr(r, self.s, i, i + len);
        }
        i += len;
    }
    return jb_end(r, outer);
}

/* ---- predicates over all characters ---- */

enum char_class {
    CC_DIGIT,
    CC_DECIMAL,
    CC_NUMERIC,
    CC_ALPHA,
    CC_ALNUM,
    CC_SPACE,
    CC_ASCII,
    CC_PRINTABLE
};

static bool is_digit_char(uint32_t cp) {
    return utf8proc_category((int32_t)cp) == UTF8PROC_CATEGORY_ND || cp == 0xb2 || cp == 0xb3 ||
           cp == 0xb9 || cp == 0x2070 || (cp >= 0x2074 && cp <= 0x2079) ||
           (cp >= 0x2080 && cp <= 0x2089) || (cp >= 0x2460 && cp <= 0x2468);
}

static bool in_class(uint32_t cp, enum char_class c) {
    utf8proc_category_t k = utf8proc_category((int32_t)cp);
    bool alpha = k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
    bool numeric =
        k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
    switch (c) {
    case CC_DIGIT: return is_digit_char(cp);
    case CC_DECIMAL: return k == UTF8PROC_CATEGORY_ND;
    case CC_NUMERIC: return numeric;
    case CC_ALPHA: return alpha;
    case CC_ALNUM: return alpha || numeric;
    case CC_SPACE: return py_is_space(cp);
    case CC_ASCII: return cp < 128;
    case CC_PRINTABLE: return cp == ' ' || (k != UTF8PROC_CATEGORY_CN && k < UTF8PROC_CATEGORY_ZS);
    }
    return false;
}

static struct jv all_in(struct jr *r, struct jv self, enum char_class c, bool empty) {
    const struct jstr *s = self.s;
    if (!s->n) return jv_bool(empty);
    jr_step(r, s->n / 4 + 1);
    for (size_t i = 0; i < s->n && !r->rc;) {
        uint32_t cp = 0;
        int k = utf8_decode(s->p + i, s->n - i, &cp);
        if (k <= 0 || !in_class(cp, c)) return jv_bool(false);
        i += (size_t)k;
    }
    return jv_bool(true);
}
METHOD(m_isdigit) {
    UNUSED();
    return all_in(r, self, CC_DIGIT, false);
}
METHOD(m_isdecimal) {
    UNUSED();
    return all_in(r, self, CC_DECIMAL, false);
}
METHOD(m_isnumeric) {
    UNUSED();
    return all_in(r, self, CC_NUMERIC, false);
}
METHOD(m_isalpha) {
    UNUSED();
    return all_in(r, self, CC_ALPHA, false);
}
METHOD(m_isalnum) {
    UNUSED();
    return all_in(r, self, CC_ALNUM, false);
}
METHOD(m_isspace) {
    UNUSED();
    return all_in(r, self, CC_SPACE, false);
}
METHOD(m_isascii) {
    UNUSED();
    return all_in(r, self, CC_ASCII, true);
}
METHOD(m_isprintable) {
    UNUSED();
    return all_in(r, self, CC_PRINTABLE, true);
}
METHOD(m_isupper) {
    UNUSED();
    return jv_bool(jstr_case_kind(self.s) > 0);
}
METHOD(m_islower) {
    UNUSED();
    return jv_bool(jstr_case_kind(self.s) < 0);
}

METHOD(m_istitle) {
    UNUSED();
    bool in_word = false, any = false;
    const struct jstr *s = self.s;
    for (size_t i = 0; i < s->n && jr_step(r, 1);) {
        uint32_t cp = 0;
        int k = utf8_decode(s->p + i, s->n - i, &cp);
        if (k <= 0) break;
        utf8proc_category_t c = utf8proc_category((int32_t)cp);
        bool up = c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LT,
             low = c == UTF8PROC_CATEGORY_LL;
        if ((up && in_word) || (low && !in_word)) return jv_bool(false);
        any |= up || low;
        in_word = up || low;
        i += (size_t)k;
    }
    return jv_bool(any);
}

METHOD(m_isidentifier) {
    UNUSED();
    const struct jstr *s = self.s;
    for (size_t i = 0; i < s->n && jr_step(r, 1);) {
        uint32_t cp = 0;
        int k = utf8_decode(s->p + i, s->n - i, &cp);
        if (k <= 0 || !(cp == '_' || in_class(cp, CC_ALPHA) || (i && in_class(cp, CC_DECIMAL))))
            return jv_bool(false);
        i += (size_t)k;
    }
    return jv_bool(s->n > 0);
}

/* ---- dictionaries and lists ---- */

enum part { KEYS, VALUES, ITEMS };

static struct jv view(struct jr *r, struct jv self, enum part part) {
    static const char *const names[] = {"dict_keys", "dict_values", "dict_items"};
    struct jv out = jv_list(r, JV_VIEW, 0);
    for (size_t i = 0; i < self.d->n && !r->rc; i++) {
        struct jpair *q = &self.d->items[i];
        struct jv item = part == KEYS ? q->k : q->v;
        if (part == ITEMS) {
            item = jv_list(r, JV_TUPLE, 2);
            if (r->rc) break;
            item.l->v[0] = q->k;
            item.l->v[1] = q->v;
        }
        jlist_push(r, out.l, item);
    }
    if (!r->rc) out.l->name = names[part];
    return out;
}
METHOD(m_keys) {
    UNUSED();
    return view(r, self, KEYS);
}
METHOD(m_values) {
    UNUSED();
    return view(r, self, VALUES);
}
METHOD(m_items) {
    UNUSED();
    return view(r, self, ITEMS);
}
METHOD(m_copy) {
    UNUSED();
    return self;
} /* values are immutable, so a copy is not needed */

METHOD(m_get) {
    UNUSED();
    struct jv *found = jdict_find(r, self.d, v[0]);
    return found ? *found : v[1].kind == JV_MISSING ? jv_none() : v[1];
}

METHOD(m_list_index) {
    UNUSED();
    const struct jlist *l = jv_items(r, self);
    int64_t n = (int64_t)l->n, b = want_int(r, v[1], 0), e = want_int(r, v[2], n);
    if (b < 0) b = b + n < 0 ? 0 : b + n;
    if (e < 0) e += n;
    for (int64_t i = b; i < e && i < n && jr_step(r, 1); i++)
        if (jv_eq(r, l->v[i], v[0])) return jv_int(i);
    jr_fail(r, CHIMERE_EFORMAT, "value is not in the %s", jv_type_name(self));
    return jv_none();
}

METHOD(m_list_count) {
    UNUSED();
    const struct jlist *l = jv_items(r, self);
    int64_t n = 0;
    for (size_t i = 0; i < l->n && jr_step(r, 1); i++) n += jv_eq(r, l->v[i], v[0]);
    return jv_int(n);
}

/* ---- numbers, cycler ---- */

METHOD(m_is_integer) {
    UNUSED();
    return jv_bool(self.kind != JV_FLOAT || (isfinite(self.f) && self.f == floor(self.f)));
}
METHOD(m_conjugate) {
    UNUSED();
    return self.kind == JV_FLOAT ? self : jv_int(jv_as_int(self));
}
METHOD(m_bit_length) {
    UNUSED();
    int64_t i = jv_as_int(self);
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    return jv_int(u ? 64 - __builtin_clzll(u) : 0);
}
METHOD(m_cycler_next) {
    UNUSED();
    struct jcycler *c = self.cycler;
    struct jv out = c->v[c->pos];
    c->pos = (c->pos + 1) % c->n;
    return out;
}
METHOD(m_cycler_reset) {
    UNUSED();
    self.cycler->pos = 0;
    return jv_none();
}

#define UNSAFE(name)                                                                               \
    { name, j_method_unsafe, NULL, 0, 0 }

static const struct jbuiltin str_methods[] = {
    {"capitalize", m_capitalize, "", 0, 0},
    {"casefold", m_casefold, "", 0, 0},
    {"center", m_center, "*width fill", 1, 0},
    {"count", m_count, "*sub start end", 1, 0},
    {"endswith", m_endswith, "*suffix start end", 1, 0},
    {"expandtabs", m_expandtabs, "tabsize", 0, 0},
    {"find", m_find, "*sub start end", 1, 0},
    {"format", m_format, NULL, 0, 0},
    {"format_map", m_format_map, "*mapping", 1, 0},
    {"index", m_index, "*sub start end", 1, 0},
    {"isalnum", m_isalnum, "", 0, 0},
    {"isalpha", m_isalpha, "", 0, 0},
    {"isascii", m_isascii, "", 0, 0},
    {"isdecimal", m_isdecimal, "", 0, 0},
    {"isdigit", m_isdigit, "", 0, 0},
    {"isidentifier", m_isidentifier, "", 0, 0},
    {"islower", m_islower, "", 0, 0},
    {"isnumeric", m_isnumeric, "", 0, 0},
    {"isprintable", m_isprintable, "", 0, 0},
    {"isspace", m_isspace, "", 0, 0},
    {"istitle", m_istitle, "", 0, 0},
    {"isupper", m_isupper, "", 0, 0},
    {"join", m_join, "*items", 1, 0},
    {"ljust", m_ljust, "*width fill", 1, 0},
    {"lower", m_lower, "", 0, 0},
    {"lstrip", m_lstrip, "*chars", 0, 0},
    {"partition", m_partition, "*sep", 1, 0},
    {"removeprefix", m_removeprefix, "*prefix", 1, 0},
    {"removesuffix", m_removesuffix, "*suffix", 1, 0},
    {"replace", m_replace, "*old new count", 2, 0},
    {"rfind", m_rfind, "*sub start end", 1, 0},
    {"rindex", m_rindex, "*sub start end", 1, 0},
    {"rjust", m_rjust, "*width fill", 1, 0},
    {"rpartition", m_rpartition, "*sep", 1, 0},
    {"rsplit", m_rsplit, "sep maxsplit", 0, 0},
    {"rstrip", m_rstrip, "*chars", 0, 0},
    {"split", m_split, "sep maxsplit", 0, 0},
    {"splitlines", m_splitlines, "keepends", 0, 0},
    {"startswith", m_startswith, "*prefix start end", 1, 0},
    {"strip", m_strip, "*chars", 0, 0},
    {"swapcase", m_swapcase, "", 0, 0},
    {"title", m_title, "", 0, 0},
    {"upper", m_upper, "", 0, 0},
    {"zfill", m_zfill, "*width", 1, 0},
    {0},
};
static const struct jbuiltin dict_methods[] = {
    {"copy", m_copy, "", 0, 0},
    {"get", m_get, "*key default", 1, 0},
    {"items", m_items, "", 0, 0},
    {"keys", m_keys, "", 0, 0},
    {"values", m_values, "", 0, 0},
    UNSAFE("clear"),
    UNSAFE("pop"),
    UNSAFE("popitem"),
    UNSAFE("setdefault"),
    UNSAFE("update"),
    {0},
};
static const struct jbuiltin list_methods[] = {
    {"copy", m_copy, "", 0, 0},
    {"count", m_list_count, "*value", 1, 0},
    {"index", m_list_index, "*value start stop", 1, 0},
    UNSAFE("append"),
    UNSAFE("clear"),
    UNSAFE("extend"),
    UNSAFE("insert"),
    UNSAFE("pop"),
    UNSAFE("remove"),
    UNSAFE("reverse"),
    UNSAFE("sort"),
    {0},
};
static const struct jbuiltin tuple_methods[] = {
    {"count", m_list_count, "*value", 1, 0},
    {"index", m_list_index, "*value start stop", 1, 0},
    {0},
};
static const struct jbuiltin int_methods[] = {
    {"bit_length", m_bit_length, "", 0, 0},
    {"conjugate", m_conjugate, "", 0, 0},
    {0},
};
static const struct jbuiltin float_methods[] = {
    {"conjugate", m_conjugate, "", 0, 0},
    {"is_integer", m_is_integer, "", 0, 0},
    {0},
};
static const struct jbuiltin cycler_methods[] = {
    {"next", m_cycler_next, "", 0, 0},
    {"reset", m_cycler_reset, "", 0, 0},
    {0},
};

const struct jbuiltin *j_find_method(enum jv_kind kind, const char *name, size_t n) {
    const struct jbuiltin *t = NULL;
    switch (kind) {
    case JV_STR: t = str_methods; break;
    case JV_DICT: t = dict_methods; break;
    case JV_LIST: t = list_methods; break;
    case JV_RANGE:
    case JV_TUPLE: t = tuple_methods; break;
    case JV_BOOL:
    case JV_INT: t = int_methods; break;
    case JV_FLOAT: t = float_methods; break;
    case JV_CYCLER: t = cycler_methods; break;
    default: return NULL;
    }
    for (; t->name; t++)
        if (strncmp(t->name, name, n) == 0 && !t->name[n]) return t;
    return NULL;
}
