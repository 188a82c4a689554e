/* jinja_json.c: converts the JSON context to values, and values to JSON text as Python's json.dumps writes it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja/jinja_impl.h"

struct jv j_from_json(struct jr *r, json_t *json, const char *top, const char *key) {
    struct jv out = jv_none();
    if (!jr_step(r, 1)) return out;
    switch (json_typeof(json)) {
    case JSON_NULL: return jv_none();
    case JSON_TRUE: return jv_bool(true);
    case JSON_FALSE: return jv_bool(false);
    case JSON_INTEGER: return jv_int(json_integer_value(json));
    case JSON_REAL: return jv_float(json_real_value(json));
    case JSON_STRING: {
        const char *s = json_string_value(json);
        size_t n = json_string_length(json);
        bool trusted = r->env && r->env->is_trusted && r->env->is_trusted(top, key, s, n);
        return jv_view(r, s, n, trusted);
    }
    case JSON_ARRAY: {
        if (!jr_enter(r)) return out;
        size_t n = json_array_size(json);
        out = jv_list(r, JV_LIST, n);
        for (size_t i = 0; i < n && !r->rc; i++)
            out.l->v[i] = j_from_json(r, json_array_get(json, i), top, key);
        jr_leave(r);
        return out;
    }
    case JSON_OBJECT: {
        const char *k;
        json_t *v;
        if (!jr_enter(r)) return out;
        out = jv_dict(r, JV_DICT);
        json_object_foreach(json, k, v) {
            struct jv name = jv_view(r, k, strlen(k), false), value = j_from_json(r, v, top, k);
            if (r->rc) break;
            jdict_set(r, out.d, name, value);
        }
        jr_leave(r);
        return out;
    }
    }
    return out;
}

/* ---- tojson ---- */

struct dump {
    struct jr *r;
    bool ascii, sort_keys, pretty;
    struct jstr *indent; /* one level; NULL: `width` blanks */
    int64_t width;
    struct jstr *item_sep, *key_sep; /* NULL: default */
};

static void put_json_string(struct dump *d, const struct jstr *s) {
    struct jr *r = d->r;
    char t[16];
    size_t b = 0;
    /* a number that no type can hold is printed as its text (chat_json_impl.h) */
    if (s->n > 1 && !s->p[0]) {
        jb_put(r, s->p + 1, s->n - 1, false);
        return;
    }
    jb_puts(r, "\"");
    for (size_t i = 0; i < s->n && !r->rc;) {
        unsigned char c = (unsigned char)s->p[i];
        uint32_t cp = c;
        int k = c < 0x80 ? 1 : utf8_decode(s->p + i, s->n - i, &cp);
        if (k <= 0) k = 1;
        bool plain = c >= 0x20 && c != '"' && c != '\\' && (c < 0x80 || !d->ascii);
        if (!plain) {
            static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
            const char *e = c < 0x80 ? memchr(from, c, sizeof from - 1) : NULL;
            jb_put(r, s->p + b, i - b, false);
            if (e) snprintf(t, sizeof t, "\\%c", to[e - from]);
            else if (cp < 0x10000) snprintf(t, sizeof t, "\\u%04x", cp);
            else
                snprintf(t, sizeof t, "\\u%04x\\u%04x", 0xd7c0 + (cp >> 10), 0xdc00 + (cp & 0x3ff));
            jb_puts(r, t);
            b = i + (size_t)k;
        }
        i += (size_t)k;
    }
    jb_put(r, s->p + b, s->n - b, false);
    jb_puts(r, "\"");
}

static void put_scalar(struct dump *d, struct jv v) {
    char t[48];
    switch ((enum jv_kind)v.kind) {
    case JV_NONE: jb_puts(d->r, "null"); break;
    case JV_BOOL: jb_puts(d->r, v.b ? "true" : "false"); break;
    case JV_INT:
        snprintf(t, sizeof t, "%lld", (long long)v.i);
        jb_puts(d->r, t);
        break;
    default:
        if (isnan(v.f)) jb_puts(d->r, "NaN");
        else if (isinf(v.f)) jb_puts(d->r, v.f < 0 ? "-Infinity" : "Infinity");
        else jb_put(d->r, t, jf_float_repr(t, v.f), false);
    }
}

static void put_break(struct dump *d, unsigned level) {
    if (!d->pretty) return;
    jb_puts(d->r, "\n");
    for (unsigned i = 0; i < level && !d->r->rc; i++) {
        if (d->indent) jb_put(d->r, d->indent->p, d->indent->n, false);
        for (int64_t k = 0; !d->indent && k < d->width && jr_step(d->r, 1); k++) jb_puts(d->r, " ");
    }
}

static void put_separator(struct dump *d, const struct jstr *given, const char *absent) {
    if (given) jb_put(d->r, given->p, given->n, false);
    else jb_puts(d->r, absent);
}

static void put_json(struct dump *d, struct jv v, unsigned level);

static void put_key(struct dump *d, struct jv k) {
    if (k.kind == JV_STR) {
        put_json_string(d, k.s);
    } else if (k.kind == JV_NONE || jv_is_numeric(k)) {
        jb_puts(d->r, "\"");
        put_scalar(d, k);
        jb_puts(d->r, "\"");
    } else {
        jr_fail(d->r, CHIMERE_EFORMAT, "keys must be str, int, float, bool or None, not %s",
                jv_type_name(k));
    }
}

static void put_object(struct dump *d, const struct jdict *dict, unsigned level) {
    struct jr *r = d->r;
    struct jv keys = jv_none(), sorted = jv_none();
    if (d->sort_keys && dict->n) {
        struct jlist pos = {0};
        keys = jv_list(r, JV_LIST, 0);
        for (size_t i = 0; i < dict->n && !r->rc; i++) {
            jlist_push(r, keys.l, dict->items[i].k);
            jlist_push(r, &pos, jv_int((int64_t)i));
        }
        if (!r->rc) sorted = jv_sorted(r, &pos, keys.l->v, false);
    }
    jb_puts(r, "{");
    for (size_t i = 0; i < dict->n && jr_step(r, 1); i++) {
        const struct jpair *q = &dict->items[sorted.kind == JV_LIST ? (size_t)sorted.l->v[i].i : i];
        if (i) put_separator(d, d->item_sep, d->pretty ? "," : ", ");
        put_break(d, level + 1);
        put_key(d, q->k);
        put_separator(d, d->key_sep, ": ");
        put_json(d, q->v, level + 1);
    }
    if (dict->n) put_break(d, level);
    jb_puts(r, "}");
}

static void put_json(struct dump *d, struct jv v, unsigned level) {
    struct jr *r = d->r;
    if (!jr_enter(r)) return;
    switch ((enum jv_kind)v.kind) {
    case JV_NONE:
    case JV_BOOL:
    case JV_INT:
    case JV_FLOAT: put_scalar(d, v); break;
    case JV_STR: put_json_string(d, v.s); break;
    case JV_LIST:
    case JV_TUPLE:
        jb_puts(r, "[");
        for (size_t i = 0; i < v.l->n && jr_step(r, 1); i++) {
            if (i) put_separator(d, d->item_sep, d->pretty ? "," : ", ");
            put_break(d, level + 1);
            put_json(d, v.l->v[i], level + 1);
        }
        if (v.l->n) put_break(d, level);
        jb_puts(r, "]");
        break;
    case JV_DICT: put_object(d, v.d, level); break;
    default:
        jr_fail(r, CHIMERE_EFORMAT, "Object of type %s is not JSON serializable", jv_type_name(v));
    }
    jr_leave(r);
}

/* parameters: ensure_ascii indent separators sort_keys */
struct jv j_tojson(struct jr *r, struct jv self, struct jv *v, const struct jcall *call) {
    (void)call;
    struct dump d = {.r = r};
    d.ascii = v[0].kind != JV_MISSING && jv_truth(r, v[0]);
    d.sort_keys = v[3].kind != JV_MISSING && jv_truth(r, v[3]);
    if (v[1].kind == JV_STR) {
        d.pretty = true;
        d.indent = v[1].s;
    } else if (jv_is_integral(v[1])) {
        d.pretty = true;
        d.width = jv_as_int(v[1]);
        if (d.width > 1000) jr_fail(r, CHIMERE_ELIMIT, "an indent of more than 1000");
    } else if (v[1].kind != JV_MISSING && v[1].kind != JV_NONE) {
        jr_fail(r, CHIMERE_EFORMAT, "indent wants an integer or a str, not %s", jv_type_name(v[1]));
    }
    if (v[2].kind == JV_TUPLE || v[2].kind == JV_LIST) {
        const struct jlist *l = v[2].l;
        if (l->n != 2 || l->v[0].kind != JV_STR || l->v[1].kind != JV_STR)
            jr_fail(r, CHIMERE_EFORMAT, "separators are two strings");
        else d.item_sep = l->v[0].s, d.key_sep = l->v[1].s;
    } else if (v[2].kind != JV_MISSING && v[2].kind != JV_NONE) {
        jr_fail(r, CHIMERE_EFORMAT, "separators are two strings");
    }
    size_t outer = jb_begin(r);
    put_json(&d, self, 0);
    return jb_end(r, outer);
}
