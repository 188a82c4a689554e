/* jinja_filter_seq.c: filters for sequences and mappings. Filters that are generators in Python return an
 * iterator: true in a condition even if empty, without length, and readable once. */
#include <string.h>

#include "text/jinja/jinja_impl.h"

#define FILTER(name)                                                                               \
    static struct jv name(struct jr *r, struct jv self, struct jv *v, const struct jcall *call)
#define UNUSED() (void)r, (void)self, (void)v, (void)call

static bool want_bool(struct jr *r, struct jv v) { return v.kind != JV_MISSING && jv_truth(r, v); }

/* ---- attribute paths: "a.b.0" ---- */

static struct jv by_path(struct jr *r, struct jv item, struct jv path, struct jv fallback) {
    bool has_fallback = fallback.kind != JV_MISSING && fallback.kind != JV_NONE;
    if (path.kind == JV_MISSING || path.kind == JV_NONE) return item;
    if (path.kind != JV_STR) {
        item = j_getitem(r, item, path);
        return item.kind == JV_UNDEF && has_fallback ? fallback : item;
    }
    for (size_t b = 0; b <= path.s->n && jr_step(r, 1);) {
        const char *dot = path.s->n - b ? memchr(path.s->p + b, '.', path.s->n - b) : NULL;
        size_t e = dot ? (size_t)(dot - path.s->p) : path.s->n;
        int64_t i = 0;
        bool digits = e > b;
        for (size_t k = b; k < e; k++)
            digits = digits && path.s->p[k] >= '0' && path.s->p[k] <= '9';
        struct jv key = digits && jf_parse_int(path.s->p + b, e - b, 10, &i) == 0
                            ? jv_int(i)
                            : jv_slice(r, path.s, b, e);
        item = j_getitem(r, item, key);
        if (item.kind == JV_UNDEF && has_fallback) item = fallback;
        b = e + 1;
    }
    return item;
}

static struct jv fold_case(struct jr *r, struct jv v, bool case_sensitive) {
    return v.kind == JV_STR && !case_sensitive ? jstr_case(r, v.s, JC_LOWER) : v;
}

/* For "a,b", returns a list of both attributes, so that sorting compares them in order. */
static struct jv sort_key(struct jr *r, struct jv item, struct jv attr, bool case_sensitive) {
    struct jv out = jv_list(r, JV_LIST, 0);
    if (attr.kind != JV_STR) {
        jlist_push(r, out.l, fold_case(r, by_path(r, item, attr, jv_missing()), case_sensitive));
        return out;
    }
    for (size_t b = 0; b <= attr.s->n && !r->rc;) {
        const char *comma = attr.s->n - b ? memchr(attr.s->p + b, ',', attr.s->n - b) : NULL;
        size_t e = comma ? (size_t)(comma - attr.s->p) : attr.s->n;
        struct jv part = jv_slice(r, attr.s, b, e);
        if (!r->rc)
            jlist_push(r, out.l,
                       fold_case(r, by_path(r, item, part, jv_missing()), case_sensitive));
        b = e + 1;
    }
    return out;
}

/* ---- selecting items ---- */

FILTER(f_first) {
    UNUSED();
    if (self.kind == JV_ITER) {
        if (self.l->next < self.l->n) return self.l->v[self.l->next++];
        if (self.l->error) jv_items(r, self);
        return jv_undef(r, "No first item, sequence was empty.");
    }
    if (self.kind == JV_STR || self.kind == JV_RANGE) {
        if (jv_len(r, self)) return j_getitem(r, self, jv_int(0));
        return jv_undef(r, "No first item, sequence was empty.");
    }
    const struct jlist *l = jv_items(r, self);
    return l->n ? l->v[0] : jv_undef(r, "No first item, sequence was empty.");
}

FILTER(f_last) {
    UNUSED();
    if (self.kind == JV_ITER || !jv_is_iterable(self)) {
        jr_fail(r, CHIMERE_EFORMAT, "'%s' object is not reversible", jv_type_name(self));
        return jv_none();
    }
    if (self.kind == JV_STR && self.s->n) return j_getitem(r, self, jv_int(-1));
    const struct jlist *l = jv_items(r, self);
    return l->n ? l->v[l->n - 1] : jv_undef(r, "No last item, sequence was empty.");
}

static struct jv copy_list(struct jr *r, const struct jlist *l) {
    struct jv out = jv_list(r, JV_LIST, l->n);
    if (!r->rc && l->n) memcpy(out.l->v, l->v, l->n * sizeof *l->v);
    return out;
}

FILTER(f_list) {
    UNUSED();
    return copy_list(r, jv_items(r, self));
}

FILTER(f_reverse) {
    UNUSED();
    if (self.kind == JV_STR) return j_getslice(r, self, jv_missing(), jv_missing(), jv_int(-1));
    if (!jv_is_iterable(self)) {
        jr_fail(r, CHIMERE_EFORMAT, "argument must be iterable");
        return jv_none();
    }
    struct jv out = copy_list(r, jv_items(r, self));
    for (size_t i = 0; !r->rc && i < out.l->n / 2; i++) {
        struct jv t = out.l->v[i];
        out.l->v[i] = out.l->v[out.l->n - 1 - i];
        out.l->v[out.l->n - 1 - i] = t;
    }
    return self.kind == JV_ITER ? out : jv_iter(r, out, "reversed");
}

FILTER(f_items) {
    UNUSED();
    if (self.kind == JV_UNDEF) return jv_iter(r, jv_list(r, JV_LIST, 0), "do_items");
    if (self.kind != JV_DICT) {
        jr_fail(r, CHIMERE_EFORMAT, "Can only get item pairs from a mapping.");
        return jv_iter(r, jv_none(), "do_items");
    }
    return jv_iter(r, j_find_method(JV_DICT, "items", 5)->fn(r, self, v, call), "do_items");
}

FILTER(f_join) {
    UNUSED();
    struct jstr *sep = v[0].kind == JV_MISSING ? NULL : jv_to_str(r, v[0]);
    const struct jlist *l = jv_items(r, self);
    size_t outer = jb_begin(r);
    for (size_t i = 0; i < l->n && jr_step(r, 1); i++) {
        if (i && sep) jb_put_jstr(r, sep, 0, sep->n);
        jb_put_value(r,
                     v[1].kind == JV_MISSING ? l->v[i] : by_path(r, l->v[i], v[1], jv_missing()));
    }
    return jb_end(r, outer);
}

FILTER(f_attr) {
    UNUSED();
    struct jstr *name = jv_to_str(r, v[0]);
    if (self.kind == JV_DICT &&
        !j_find_method(JV_DICT, name->p, name->n)) /* only attributes, not keys */
        return jv_undef(r, "'dict object' has no attribute '%.*s'",
                        (int)(name->n > 80 ? 80 : name->n), name->p);
    if (self.kind == JV_UNDEF) return j_undefined_error(r, self);
    return j_getattr(r, self, name);
}

/* ---- sorting ---- */

FILTER(f_sort) {
    UNUSED();
    const struct jlist *l = jv_items(r, self);
    struct jv keys = jv_list(r, JV_LIST, 0);
    for (size_t i = 0; i < l->n && !r->rc; i++)
        jlist_push(r, keys.l, sort_key(r, l->v[i], v[2], want_bool(r, v[1])));
    return r->rc ? jv_none() : jv_sorted(r, l, keys.l->v, want_bool(r, v[0]));
}

FILTER(f_dictsort) {
    UNUSED();
    if (self.kind != JV_DICT) {
        if (self.kind == JV_UNDEF) return j_undefined_error(r, self);
        jr_fail(r, CHIMERE_EFORMAT, "dictsort wants a mapping, not %s", jv_type_name(self));
        return jv_none();
    }
    bool by_value = v[1].kind == JV_STR && jstr_eq(v[1].s, "value", 5);
    if (v[1].kind != JV_MISSING && !by_value && !(v[1].kind == JV_STR && jstr_eq(v[1].s, "key", 3)))
        jr_fail(r, CHIMERE_EFORMAT, "You can only sort by either \"key\" or \"value\"");
    struct jv items = j_find_method(JV_DICT, "items", 5)->fn(r, self, v, call),
              keys = jv_list(r, JV_LIST, 0);
    for (size_t i = 0; !r->rc && i < items.l->n; i++)
        jlist_push(r, keys.l, fold_case(r, items.l->v[i].l->v[by_value], want_bool(r, v[0])));
    return r->rc ? jv_none() : jv_sorted(r, items.l, keys.l->v, want_bool(r, v[2]));
}

FILTER(f_unique) {
    UNUSED();
    const struct jlist *l = jv_items(r, self);
    struct jv seen = jv_dict(r, JV_DICT), out = jv_list(r, JV_LIST, 0);
    for (size_t i = 0; i < l->n && !r->rc; i++) {
        struct jv key = fold_case(r, by_path(r, l->v[i], v[1], jv_missing()), want_bool(r, v[0]));
        if (r->rc || jdict_find(r, seen.d, key)) continue;
        jdict_set(r, seen.d, key, jv_none());
        jlist_push(r, out.l, l->v[i]);
    }
    return jv_iter(r, out, "sync_do_unique");
}

static struct jv extreme(struct jr *r, struct jv self, struct jv *v, int sign) {
    const struct jlist *l = jv_items(r, self);
    struct jv best = jv_none(), best_key = jv_none();
    if (!l->n && !r->rc) return jv_undef(r, "No aggregated item, sequence was empty.");
    for (size_t i = 0; i < l->n && !r->rc; i++) {
        struct jv key = fold_case(r, by_path(r, l->v[i], v[1], jv_missing()), want_bool(r, v[0]));
        if (i && jv_cmp(r, key, best_key, sign < 0 ? "<" : ">") != sign) continue;
        best = l->v[i];
        best_key = key;
    }
    return best;
}
FILTER(f_min) {
    UNUSED();
    return extreme(r, self, v, -1);
}
FILTER(f_max) {
    UNUSED();
    return extreme(r, self, v, 1);
}

FILTER(f_sum) {
    UNUSED();
    const struct jlist *l = jv_items(r, self);
    struct jv total = v[1].kind == JV_MISSING ? jv_int(0) : v[1];
    if (total.kind == JV_STR) jr_fail(r, CHIMERE_EFORMAT, "sum() can't sum strings");
    for (size_t i = 0; i < l->n && jr_step(r, 1); i++)
        total = j_binary(r, JT_ADD, total, by_path(r, l->v[i], v[0], jv_missing()));
    return total;
}

/* ---- grouping ---- */

static int64_t group_size(struct jr *r, struct jv v) {
    if (jv_is_integral(v) && jv_as_int(v) > 0) return jv_as_int(v);
    jr_fail(r, CHIMERE_EFORMAT, "batch and slice want a number above 0");
    return 1;
}

FILTER(f_batch) {
    UNUSED();
    int64_t n = group_size(r, v[0]);
    const struct jlist *l = jv_items(r, self);
    struct jv out = jv_list(r, JV_LIST, 0), row = jv_none();
    for (size_t i = 0; i < l->n && !r->rc; i++) {
        if (i % (size_t)n == 0) {
            row = jv_list(r, JV_LIST, 0);
            jlist_push(r, out.l, row);
        }
        if (!r->rc) jlist_push(r, row.l, l->v[i]);
    }
    bool fill = v[1].kind != JV_MISSING && v[1].kind != JV_NONE && l->n;
    while (fill && !r->rc && (int64_t)row.l->n < n) jlist_push(r, row.l, v[1]);
    return jv_iter(r, out, "do_batch");
}

FILTER(f_slice) {
    UNUSED();
    size_t n = (size_t)group_size(r, v[0]), at = 0;
    const struct jlist *l = jv_items(r, self);
    struct jv out = jv_list(r, JV_LIST, 0);
    bool fill = v[1].kind != JV_MISSING && v[1].kind != JV_NONE;
    for (size_t i = 0; i < n && jr_step(r, 1); i++) {
        struct jv row = jv_list(r, JV_LIST, 0);
        size_t take = l->n / n + (i < l->n % n);
        for (size_t k = 0; k < take && !r->rc; k++) jlist_push(r, row.l, l->v[at++]);
        if (fill && i >= l->n % n && !r->rc) jlist_push(r, row.l, v[1]);
        jlist_push(r, out.l, row);
    }
    return jv_iter(r, out, "sync_do_slice");
}

FILTER(f_groupby) {
    UNUSED();
    const struct jlist *l = jv_items(r, self);
    bool sensitive = want_bool(r, v[2]);
    struct jv keys = jv_list(r, JV_LIST, 0), out = jv_list(r, JV_LIST, 0), last = jv_missing(),
              group = jv_none();
    for (size_t i = 0; i < l->n && !r->rc; i++)
        jlist_push(r, keys.l, fold_case(r, by_path(r, l->v[i], v[0], v[1]), sensitive));
    struct jv sorted = r->rc ? jv_none() : jv_sorted(r, l, keys.l->v, false);
    for (size_t i = 0; !r->rc && i < sorted.l->n; i++) {
        struct jv real = by_path(r, sorted.l->v[i], v[0], v[1]),
                  key = fold_case(r, real, sensitive);
        if (last.kind == JV_MISSING || !jv_eq(r, key, last)) {
            struct jv pair = jv_list(r, JV_TUPLE, 2);
            group = jv_list(r, JV_LIST, 0);
            if (r->rc) break;
            pair.b = true;
            pair.l->v[0] = real;
            pair.l->v[1] = group;
            jlist_push(r, out.l, pair);
            last = key;
        }
        if (!r->rc) jlist_push(r, group.l, sorted.l->v[i]);
    }
    return out;
}

/* ---- map, select, reject ---- */

static struct jstr *want_name(struct jr *r, struct jv v, const char *what) {
    static struct jstr nothing = {.p = "", .n_char = 0};
    if (v.kind == JV_STR) return v.s;
    jr_fail(r, CHIMERE_EFORMAT, "%s wants a name", what);
    return &nothing;
}

static struct jv kwarg(const struct jcall *call, const char *name) {
    for (size_t i = 0; i < call->n_kw; i++)
        if (jstr_eq(call->kw[i].name, name, strlen(name))) return call->kw[i].v;
    return jv_missing();
}

FILTER(f_map) {
    UNUSED();
    struct jv out = jv_list(r, JV_LIST, 0), attr = kwarg(call, "attribute"),
              fallback = kwarg(call, "default");
    const struct jbuiltin *fn = NULL;
    struct jcall rest = {.kw = call->kw, .n_kw = call->n_kw};
    if (r->rc) return jv_none();
    if (!jv_truth(r, self)) return jv_iter(r, out, "sync_do_map");
    if (call->n_pos || attr.kind == JV_MISSING) {
        if (!call->n_pos) {
            jr_fail(r, CHIMERE_EFORMAT, "map requires a filter argument");
            return jv_iter(r, out, "sync_do_map");
        }
        struct jstr *name = want_name(r, call->pos[0], "map");
        fn = j_find_filter(name->p, name->n);
        if (!fn)
            jr_fail(r, CHIMERE_EFORMAT, "No filter named '%.*s'.",
                    (int)(name->n > 80 ? 80 : name->n), name->p);
        rest.pos = call->pos + 1;
        rest.n_pos = call->n_pos - 1;
    } else if (call->n_kw > 1u + (fallback.kind != JV_MISSING)) {
        jr_fail(r, CHIMERE_EFORMAT, "map: unexpected keyword argument");
    }
    const struct jlist *l = jv_items(r, self);
    for (size_t i = 0; i < l->n && !r->rc; i++)
        jlist_push(r, out.l,
                   fn ? j_call_builtin(r, fn, l->v[i], &rest)
                      : by_path(r, l->v[i], attr, fallback));
    return jv_iter(r, out, "sync_do_map");
}

static struct jv choose(struct jr *r, struct jv self, const struct jcall *call, bool wanted,
                        bool by_attr) {
    struct jv out = jv_list(r, JV_LIST, 0);
    const struct jbuiltin *test = NULL;
    struct jcall rest = {.kw = call->kw, .n_kw = call->n_kw};
    if (r->rc) return jv_none();
    if (!jv_truth(r, self)) return jv_iter(r, out, "select_or_reject");
    if (by_attr && !call->n_pos) {
        jr_fail(r, CHIMERE_EFORMAT, "Missing parameter for attribute name");
        return jv_iter(r, out, "select_or_reject");
    }
    if (call->n_pos > by_attr) {
        struct jstr *name = want_name(r, call->pos[by_attr], "select");
        test = j_find_test(name->p, name->n);
        if (!test)
            jr_fail(r, CHIMERE_EFORMAT, "No test named '%.*s'.", (int)(name->n > 80 ? 80 : name->n),
                    name->p);
        rest.pos = call->pos + by_attr + 1;
        rest.n_pos = call->n_pos - by_attr - 1;
    }
    const struct jlist *l = jv_items(r, self);
    for (size_t i = 0; i < l->n && jr_step(r, 1); i++) {
        struct jv item = by_attr ? by_path(r, l->v[i], call->pos[0], jv_missing()) : l->v[i];
        bool yes = jv_truth(r, test && !r->rc ? j_call_builtin(r, test, item, &rest) : item);
        if (yes == wanted && !r->rc) jlist_push(r, out.l, l->v[i]);
    }
    return jv_iter(r, out, "select_or_reject");
}
FILTER(f_select) {
    UNUSED();
    return choose(r, self, call, true, false);
}
FILTER(f_reject) {
    UNUSED();
    return choose(r, self, call, false, false);
}
FILTER(f_selectattr) {
    UNUSED();
    return choose(r, self, call, true, true);
}
FILTER(f_rejectattr) {
    UNUSED();
    return choose(r, self, call, false, true);
}

const struct jbuiltin jinja_filters_seq[] = {
    {"attr", f_attr, "name", 1, 0},
    {"batch", f_batch, "linecount fill_with", 1, 0},
    {"dictsort", f_dictsort, "case_sensitive by reverse", 0, 0},
    {"first", f_first, "", 0, 0},
    {"groupby", f_groupby, "attribute default case_sensitive", 1, 0},
    {"items", f_items, "", 0, 0},
    {"join", f_join, "d attribute", 0, 0},
    {"last", f_last, "", 0, 0},
    {"list", f_list, "", 0, 0},
    {"map", f_map, NULL, 0, 0},
    {"max", f_max, "case_sensitive attribute", 0, 0},
    {"min", f_min, "case_sensitive attribute", 0, 0},
    {"reject", f_reject, NULL, 0, 0},
    {"rejectattr", f_rejectattr, NULL, 0, 0},
    {"reverse", f_reverse, "", 0, 0},
    {"select", f_select, NULL, 0, 0},
    {"selectattr", f_selectattr, NULL, 0, 0},
    {"slice", f_slice, "slices fill_with", 1, 0},
    {"sort", f_sort, "reverse case_sensitive attribute", 0, 0},
    {"sum", f_sum, "attribute start", 0, 0},
    {"unique", f_unique, "case_sensitive attribute", 0, 0},
    {0},
};
