/* jinja_value.c: values: making, truth, equality, order, hash, iteration, dictionaries, sorting. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "text/jinja/jinja_impl.h"

/* ---- render state ---- */

int jr_fail(struct jr *r, int code, const char *fmt, ...) {
    if (r->rc) return r->rc;
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    r->rc = err_set(r->e, code, "template line %u: %s", r->line, text);
    return r->rc;
}

bool jr_step(struct jr *r, size_t n) {
    if (r->rc) return false;
    r->n_step += n;
    if (r->n_step <= r->limits->max_steps) return true;
    jr_fail(r, CHIMERE_ELIMIT, "the template takes more than %llu steps",
            (unsigned long long)r->limits->max_steps);
    return false;
}

void *jr_alloc(struct jr *r, size_t n) {
    if (r->rc) return NULL;
    void *p = arena_alloc(&r->arena, n ? n : 1);
    if (p) return p;
    bool full = n > r->arena.max_bytes || r->arena.used_bytes > r->arena.max_bytes - n - 16;
    jr_fail(r, full ? CHIMERE_ELIMIT : CHIMERE_ENOMEM,
            full ? "the values of the template take more than %zu bytes"
                 : "out of memory (limit %zu bytes)",
            r->arena.max_bytes);
    return NULL;
}

bool jr_enter(struct jr *r) {
    if (r->rc) return false;
    if (r->depth >= r->limits->max_depth) {
        jr_fail(r, CHIMERE_ELIMIT, "calls or values are nested more than %u deep",
                r->limits->max_depth);
        return false;
    }
    r->depth++;
    return true;
}
void jr_leave(struct jr *r) { r->depth--; }

/* ---- making ---- */

struct jv jv_undef(struct jr *r, const char *fmt, ...) {
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    char *hint = r->rc ? NULL : arena_strndup(&r->arena, text, strlen(text));
    return (struct jv){.kind = JV_UNDEF, .hint = hint ? hint : "value is undefined"};
}

static void jlist_reserve(struct jr *r, struct jlist *l, size_t n) {
    if (n <= l->cap || r->rc) return;
    size_t cap = l->cap ? l->cap * 2 : 8, bytes;
    if (cap < n) cap = n;
    struct jv *v = size_mul(cap, sizeof *v, &bytes) ? jr_alloc(r, bytes) : NULL;
    if (!v) {
        jr_fail(r, CHIMERE_ELIMIT, "a list of %zu items is too large", n);
        return;
    }
    if (l->n) memcpy(v, l->v, l->n * sizeof *v);
    l->v = v;
    l->cap = cap;
}

struct jv jv_list(struct jr *r, enum jv_kind kind, size_t n) {
    struct jlist *l = jr_alloc(r, sizeof *l);
    if (!l || !jr_step(r, n / 8)) return jv_none();
    jlist_reserve(r, l, n);
    if (r->rc) return jv_none();
    for (size_t i = 0; i < n; i++) l->v[i] = jv_none();
    l->n = n;
    return (struct jv){.kind = (uint8_t)kind, .l = l};
}

void jlist_push(struct jr *r, struct jlist *l, struct jv v) {
    if (!jr_step(r, 1)) return;
    jlist_reserve(r, l, l->n + 1);
    if (!r->rc) l->v[l->n++] = v;
}

struct jv jv_iter(struct jr *r, struct jv list, const char *name) {
    const char *error = NULL;
    if (r->rc == CHIMERE_EFORMAT) {
        struct err e = {.text = "an item of a sequence cannot be made"};
        if (r->e) e = *r->e;
        if (r->e) *r->e = (struct err){0};
        r->rc = 0;
        error = arena_strndup(&r->arena, e.text, strlen(e.text));
        if (!error) error = "out of memory";
    }
    if (r->rc) return jv_none();
    struct jlist *l = jr_alloc(r, sizeof *l);
    if (!l) return jv_none();
    if (list.kind == JV_LIST || list.kind == JV_VIEW) *l = *list.l;
    l->next = 0;
    l->name = name;
    l->error = error;
    return (struct jv){.kind = JV_ITER, .l = l};
}

struct jv jv_dict(struct jr *r, enum jv_kind kind) {
    struct jdict *d = jr_alloc(r, sizeof *d);
    return d ? (struct jv){.kind = (uint8_t)kind, .d = d} : jv_none();
}

/* ---- names and truth ---- */

const char *jv_type_name(struct jv v) {
    switch ((enum jv_kind)v.kind) {
    case JV_MISSING:
    case JV_UNDEF: return "Undefined";
    case JV_NONE: return "NoneType";
    case JV_BOOL: return "bool";
    case JV_INT: return "int";
    case JV_FLOAT: return "float";
    case JV_STR: return "str";
    case JV_LIST: return "list";
    case JV_TUPLE: return "tuple";
    case JV_DICT: return "dict";
    case JV_RANGE: return "range";
    case JV_ITER: return "generator";
    case JV_VIEW: return v.l->name;
    case JV_NAMESPACE: return "Namespace";
    case JV_LOOP: return "LoopContext";
    case JV_MACRO: return "Macro";
    case JV_BUILTIN: return "function";
    case JV_METHOD: return "method";
    case JV_CYCLER: return "Cycler";
    case JV_JOINER: return "Joiner";
    }
    return "?";
}

bool jv_truth(struct jr *r, struct jv v) {
    (void)r;
    switch ((enum jv_kind)v.kind) {
    case JV_MISSING:
    case JV_UNDEF:
    case JV_NONE: return false;
    case JV_BOOL: return v.b;
    case JV_INT: return v.i != 0;
    case JV_FLOAT: return v.f != 0;
    case JV_STR: return v.s->n != 0;
    case JV_LIST:
    case JV_TUPLE:
    case JV_VIEW: return v.l->n != 0;
    case JV_DICT: return v.d->n != 0;
    case JV_RANGE: return v.range->n != 0;
    case JV_LOOP: return j_loop_length(v.loop) != 0;
    default: return true;
    }
}

int64_t jv_len(struct jr *r, struct jv v) {
    (void)r;
    switch ((enum jv_kind)v.kind) {
    case JV_UNDEF: return 0;
    case JV_STR: return (int64_t)jstr_len(v.s);
    case JV_LIST:
    case JV_TUPLE:
    case JV_VIEW: return (int64_t)v.l->n;
    case JV_DICT: return (int64_t)v.d->n;
    case JV_RANGE: return v.range->n;
    case JV_LOOP: return (int64_t)j_loop_length(v.loop);
    default: return -1;
    }
}

/* ---- equality and order ---- */

int jnum_cmp(struct jv a, struct jv b) {
    if (a.kind != JV_FLOAT && b.kind != JV_FLOAT) {
        int64_t x = jv_as_int(a), y = jv_as_int(b);
        return x < y ? -1 : x > y;
    }
    if (a.kind == JV_FLOAT && b.kind == JV_FLOAT) {
        if (isnan(a.f) || isnan(b.f)) return 2;
        return a.f < b.f ? -1 : a.f > b.f;
    }
    bool flip = a.kind == JV_FLOAT; /* compares an integer with a float exactly */
    double f = flip ? a.f : b.f;
    int64_t i = jv_as_int(flip ? b : a);
    int c; /* result of comparing i with f */
    if (isnan(f)) return 2;
    if (f >= 9223372036854775808.0) c = -1;
    else if (f < -9223372036854775808.0) c = 1;
    else {
        int64_t t = (int64_t)f;
        c = i < t ? -1 : i > t ? 1 : f > (double)t ? -1 : f < (double)t;
    }
    return flip ? -c : c;
}

static bool list_eq(struct jr *r, const struct jlist *a, const struct jlist *b) {
    if (a->n != b->n) return false;
    bool same = jr_enter(r);
    if (!same) return false;
    for (size_t i = 0; same && i < a->n && jr_step(r, 1); i++) same = jv_eq(r, a->v[i], b->v[i]);
    jr_leave(r);
    return same && !r->rc;
}

static bool dict_eq(struct jr *r, const struct jdict *a, const struct jdict *b) {
    if (a->n != b->n) return false;
    bool same = jr_enter(r);
    if (!same) return false;
    for (size_t i = 0; same && i < a->n && jr_step(r, 1); i++) {
        const struct jv *v = jdict_find(r, b, a->items[i].k);
        same = v && jv_eq(r, a->items[i].v, *v);
    }
    jr_leave(r);
    return same && !r->rc;
}

static bool range_eq(const struct jrange *a, const struct jrange *b) {
    return a->n == b->n &&
           (a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step)));
}

bool jv_eq(struct jr *r, struct jv a, struct jv b) {
    if (jv_is_numeric(a) && jv_is_numeric(b)) return jnum_cmp(a, b) == 0;
    if (a.kind != b.kind) return false;
    switch ((enum jv_kind)a.kind) {
    case JV_MISSING:
    case JV_UNDEF:
    case JV_NONE: return true;
    case JV_STR:
        jr_step(r, a.s->n / 16);
        return a.s->n == b.s->n && (a.s->n == 0 || memcmp(a.s->p, b.s->p, a.s->n) == 0);
    case JV_LIST:
    case JV_TUPLE: return a.l == b.l || list_eq(r, a.l, b.l);
    case JV_VIEW:
    case JV_ITER: return a.l == b.l;
    case JV_DICT: return a.d == b.d || dict_eq(r, a.d, b.d);
    case JV_RANGE: return range_eq(a.range, b.range);
    case JV_METHOD: return a.method->fn == b.method->fn && jv_eq(r, a.method->self, b.method->self);
    default: return a.d == b.d;
    }
}

/* Returns -1, 0, 1; 2 for NaN and after a failure. */
int jv_cmp(struct jr *r, struct jv a, struct jv b, const char *op) {
    if (jv_is_numeric(a) && jv_is_numeric(b)) return jnum_cmp(a, b);
    if (a.kind == JV_STR && b.kind == JV_STR) {
        size_t n = a.s->n < b.s->n ? a.s->n : b.s->n;
        if (!jr_step(r, n / 16)) return 2;
        /* in UTF-8, byte order is the order of code points */
        int c = n ? memcmp(a.s->p, b.s->p, n) : 0;
        return c ? (c < 0 ? -1 : 1) : a.s->n < b.s->n ? -1 : a.s->n > b.s->n;
    }
    if (a.kind == b.kind && (a.kind == JV_LIST || a.kind == JV_TUPLE)) {
        if (!jr_enter(r)) return 2;
        int c = 0;
        size_t n = a.l->n < b.l->n ? a.l->n : b.l->n;
        for (size_t i = 0; i < n && c == 0 && jr_step(r, 1); i++)
            if (!jv_eq(r, a.l->v[i], b.l->v[i])) c = jv_cmp(r, a.l->v[i], b.l->v[i], op);
        jr_leave(r);
        if (r->rc) return 2;
        return c ? c : a.l->n < b.l->n ? -1 : a.l->n > b.l->n;
    }
    if (a.kind == JV_UNDEF || b.kind == JV_UNDEF) j_undefined_error(r, a.kind == JV_UNDEF ? a : b);
    else
        jr_fail(r, CHIMERE_EFORMAT, "'%s' not supported between instances of '%s' and '%s'", op,
                jv_type_name(a), jv_type_name(b));
    return 2;
}

/* ---- dictionaries ---- */

static uint64_t hash_int(int64_t i) { return hash_mix((uint64_t)i ^ 0x9e3779b97f4a7c15ULL); }

uint64_t jv_hash(struct jr *r, struct jv v) {
    switch ((enum jv_kind)v.kind) {
    case JV_STR: jr_step(r, v.s->n / 16); return hash_bytes(v.s->p, v.s->n, rng_process_seed());
    case JV_BOOL:
    case JV_INT: return hash_int(jv_as_int(v));
    case JV_FLOAT:
        if (v.f >= -9e18 && v.f <= 9e18 && v.f == (double)(int64_t)v.f)
            return hash_int((int64_t)v.f);
        return hash_bytes(&v.f, sizeof v.f, 1);
    case JV_NONE: return 7;
    case JV_UNDEF: return 11;
    case JV_TUPLE: {
        uint64_t h = 13;
        if (!jr_enter(r)) return 0;
        for (size_t i = 0; i < v.l->n && jr_step(r, 1); i++)
            h = hash_mix(h * 31 + jv_hash(r, v.l->v[i]));
        jr_leave(r);
        return h;
    }
    case JV_LIST:
    case JV_DICT: jr_fail(r, CHIMERE_EFORMAT, "unhashable type: '%s'", jv_type_name(v)); return 0;
    case JV_RANGE: return hash_int(v.range->start + 31 * v.range->n);
    case JV_METHOD: return hash_int((int64_t)(uintptr_t)v.method->fn);
    default: return hash_int((int64_t)(uintptr_t)v.d);
    }
}

struct jv *jdict_find(struct jr *r, const struct jdict *d, struct jv k) {
    /* a small dictionary is searched linearly; hashing still refuses keys without a hash */
    if (!d->index) {
        if (k.kind == JV_LIST || k.kind == JV_DICT) jv_hash(r, k);
        for (size_t i = 0; i < d->n && !r->rc; i++)
            if (jv_eq(r, d->items[i].k, k)) return &d->items[i].v;
        return NULL;
    }
    uint64_t h = jv_hash(r, k);
    for (size_t at = h & (d->n_index - 1); d->index[at] && !r->rc; at = (at + 1) & (d->n_index - 1))
        if (jv_eq(r, d->items[d->index[at] - 1].k, k)) return &d->items[d->index[at] - 1].v;
    return NULL;
}

struct jv *jdict_find_text(struct jr *r, const struct jdict *d, const char *k, size_t n) {
    struct jstr s = {.p = k, .n = n, .n_char = SIZE_MAX};
    return jdict_find(r, d, (struct jv){.kind = JV_STR, .s = &s});
}

static void index_add(struct jr *r, struct jdict *d, size_t pos) {
    uint64_t h = jv_hash(r, d->items[pos].k);
    size_t at = h & (d->n_index - 1);
    while (d->index[at]) at = (at + 1) & (d->n_index - 1);
    d->index[at] = (uint32_t)(pos + 1);
}

void jdict_set(struct jr *r, struct jdict *d, struct jv k, struct jv v) {
    if (!jr_step(r, 1)) return;
    struct jv *old = jdict_find(r, d, k);
    if (r->rc) return;
    if (old) {
        *old = v;
        return;
    }
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 8;
        struct jpair *items = cap < UINT32_MAX / 4 ? jr_alloc(r, cap * sizeof *items) : NULL;
        if (!items) {
            jr_fail(r, CHIMERE_ELIMIT, "a dictionary is too large");
            return;
        }
        if (d->n) memcpy(items, d->items, d->n * sizeof *items);
        d->items = items;
        d->cap = cap;
        if (cap > 8) {
            d->n_index = cap * 4; /* at most half full until the next growth */
            d->index = jr_alloc(r, d->n_index * sizeof *d->index);
            if (!d->index) return;
            for (size_t i = 0; i < d->n; i++) index_add(r, d, i);
        }
    }
    d->items[d->n++] = (struct jpair){k, v};
    if (d->index) index_add(r, d, d->n - 1);
}

/* ---- iteration ---- */

bool jv_is_iterable(struct jv v) {
    switch ((enum jv_kind)v.kind) {
    case JV_UNDEF:
    case JV_STR:
    case JV_LIST:
    case JV_TUPLE:
    case JV_DICT:
    case JV_RANGE:
    case JV_ITER:
    case JV_VIEW:
    case JV_LOOP: return true;
    default: return false;
    }
}

static void push_chars(struct jr *r, struct jlist *l, const struct jstr *s) {
    for (size_t i = 0; i < s->n && !r->rc;) {
        int k = utf8_valid_len(s->p + i, s->n - i);
        size_t len = k > 0 ? (size_t)k : 1;
        struct jv c = jv_slice(r, s, i, i + len);
        if (!r->rc) c.s->is_markup = false;
        jlist_push(r, l, c);
        i += len;
    }
}

struct jlist *jv_items(struct jr *r, struct jv v) {
    static struct jlist nothing;
    if (r->rc) return &nothing;
    if (v.kind == JV_LIST || v.kind == JV_TUPLE || v.kind == JV_VIEW) return v.l;
    struct jv out = jv_list(r, JV_LIST, 0);
    if (r->rc) return &nothing;
    switch ((enum jv_kind)v.kind) {
    case JV_UNDEF: break;
    case JV_STR: push_chars(r, out.l, v.s); break;
    case JV_DICT:
        for (size_t i = 0; i < v.d->n && !r->rc; i++) jlist_push(r, out.l, v.d->items[i].k);
        break;
    case JV_RANGE:
        for (int64_t i = 0; i < v.range->n && !r->rc; i++)
            jlist_push(r, out.l, jv_int(v.range->start + i * v.range->step));
        break;
    case JV_ITER:
        if (v.l->n) out.l->v = v.l->v + v.l->next;
        out.l->n = out.l->cap = v.l->n - v.l->next;
        v.l->next = v.l->n;
        if (v.l->error) r->rc = err_set(r->e, CHIMERE_EFORMAT, "%s", v.l->error);
        break;
    default:
        jr_fail(r, CHIMERE_EFORMAT, "'%s' object is not iterable", jv_type_name(v));
        return &nothing;
    }
    return r->rc ? &nothing : out.l;
}

/* ---- sorting: stable merge sort of positions by key ---- */

static void merge(struct jr *r, const struct jv *keys, bool reverse, size_t *a, size_t *tmp,
                  size_t n) {
    if (n < 2 || r->rc) return;
    size_t m = n / 2, i = 0, j = m, k = 0;
    merge(r, keys, reverse, a, tmp, m);
    merge(r, keys, reverse, a + m, tmp, n - m);
    while (i < m && j < n && jr_step(r, 1)) {
        /* the right item goes first only if it is strictly smaller: equal keys keep their order */
        int c = reverse ? jv_cmp(r, keys[a[i]], keys[a[j]], "<")
                        : jv_cmp(r, keys[a[j]], keys[a[i]], "<");
        tmp[k++] = c == -1 ? a[j++] : a[i++];
    }
    while (i < m) tmp[k++] = a[i++];
    memcpy(a, tmp, k * sizeof *a);
}

struct jv jv_sorted(struct jr *r, const struct jlist *items, const struct jv *keys, bool reverse) {
    size_t bytes, n = items->n;
    struct jv out = jv_list(r, JV_LIST, n);
    if (r->rc || !size_mul(n, 2 * sizeof(size_t), &bytes)) return jv_none();
    size_t *order = jr_alloc(r, bytes);
    if (!order) return jv_none();
    for (size_t i = 0; i < n; i++) order[i] = i;
    merge(r, keys, reverse, order, order + n, n);
    for (size_t i = 0; i < n; i++) out.l->v[i] = items->v[order[i]];
    return out;
}
