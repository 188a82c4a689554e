/* jinja_global.c: the global functions of templates. */
#include <string.h>

#include "text/jinja/jinja_impl.h"

#define MAX_RANGE 100000 /* limit of range(), as in the sandbox */

#define GLOBAL(name)                                                                               \
    static struct jv name(struct jr *r, struct jv self, struct jv *v, const struct jcall *call)
#define UNUSED() (void)r, (void)self, (void)v, (void)call

GLOBAL(g_range) {
    UNUSED();
    int64_t a[3] = {0, 0, 1};
    if (call->n_kw || call->n_pos < 1 || call->n_pos > 3) {
        jr_fail(r, CHIMERE_EFORMAT, "range takes 1 to 3 integers");
        return jv_none();
    }
    for (size_t i = 0; i < call->n_pos; i++) {
        struct jv x = call->pos[i];
        if (!jv_is_integral(x)) {
            if (x.kind == JV_UNDEF) return j_undefined_error(r, x);
            jr_fail(r, CHIMERE_EFORMAT, "'%s' object cannot be interpreted as an integer",
                    jv_type_name(x));
            return jv_none();
        }
        a[call->n_pos == 1 ? 1 : i] = jv_as_int(x);
    }
    if (a[2] == 0) jr_fail(r, CHIMERE_EFORMAT, "range() arg 3 must not be zero");
    bool empty = a[2] > 0 ? a[0] >= a[1] : a[0] <= a[1];
    uint64_t span = a[2] > 0 ? (uint64_t)a[1] - (uint64_t)a[0] : (uint64_t)a[0] - (uint64_t)a[1];
    uint64_t step = a[2] > 0 ? (uint64_t)a[2] : 0 - (uint64_t)a[2];
    uint64_t n = empty || r->rc ? 0 : (span - 1) / step + 1;
    if (n > MAX_RANGE)
        jr_fail(r, CHIMERE_ELIMIT, "Range too big. The sandbox blocks ranges larger than %d.",
                MAX_RANGE);
    struct jrange *g = jr_alloc(r, sizeof *g);
    if (!g) return jv_none();
    *g = (struct jrange){a[0], a[1], a[2], (int64_t)n};
    return (struct jv){.kind = JV_RANGE, .range = g};
}

static struct jv make_dict(struct jr *r, const struct jcall *call, enum jv_kind kind) {
    struct jv out = jv_dict(r, kind);
    if (call->n_pos > 1)
        jr_fail(r, CHIMERE_EFORMAT, "dict expected at most 1 argument, got %zu", call->n_pos);
    if (r->rc) return out;
    if (call->n_pos && (call->pos[0].kind == JV_DICT)) {
        const struct jdict *d = call->pos[0].d;
        for (size_t i = 0; i < d->n && !r->rc; i++)
            jdict_set(r, out.d, d->items[i].k, d->items[i].v);
    } else if (call->n_pos) {
        const struct jlist *l = jv_items(r, call->pos[0]);
        for (size_t i = 0; i < l->n && !r->rc; i++) {
            const struct jlist *pair = jv_items(r, l->v[i]);
            if (!r->rc && pair->n != 2)
                jr_fail(r, CHIMERE_EFORMAT,
                        "dictionary update sequence element #%zu has length %zu; 2 is required", i,
                        pair->n);
            if (!r->rc) jdict_set(r, out.d, pair->v[0], pair->v[1]);
        }
    }
    for (size_t i = 0; i < call->n_kw && !r->rc; i++)
        jdict_set(r, out.d, (struct jv){.kind = JV_STR, .s = call->kw[i].name}, call->kw[i].v);
    for (size_t i = 0; kind == JV_NAMESPACE && !r->rc && i < out.d->n; i++)
        if (out.d->items[i].k.kind == JV_STR && out.d->items[i].k.s->n &&
            out.d->items[i].k.s->p[0] == '_')
            jr_fail(r, CHIMERE_EFORMAT, "a namespace takes no attribute that begins with '_'");
    return out;
}
GLOBAL(g_dict) {
    UNUSED();
    return make_dict(r, call, JV_DICT);
}
GLOBAL(g_namespace) {
    UNUSED();
    return make_dict(r, call, JV_NAMESPACE);
}

GLOBAL(g_raise_exception) {
    UNUSED();
    const struct jstr *s = jv_to_str(r, v[0]);
    if (r->rc) return jv_none();
    r->rc = err_set(r->e, CHIMERE_EREFUSED, "%.*s", (int)(s->n > 460 ? 460 : s->n), s->p);
    err_hint(r->e, "the template refuses this conversation (line %u)", r->line);
    return jv_none();
}

#pragma GCC diagnostic push
/* the format has one conversion and is built below */
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
/* Python's strftime also has %f, and prints no time zone for a naive time; the rest is done by the C library. */
GLOBAL(g_strftime_now) {
    UNUSED();
    if (v[0].kind != JV_STR || v[0].s->n > 400) {
        jr_fail(r, CHIMERE_EFORMAT, "strftime_now wants a short format string");
        return jv_none();
    }
    const struct jstr *s = v[0].s;
    size_t outer = jb_begin(r);
    for (size_t i = 0; i < s->n && jr_step(r, 1);) {
        if (s->p[i] != '%' || i + 1 == s->n) {
            jb_put(r, s->p + i, 1, true);
            i++;
            continue;
        }
        char fmt[8] = "%", text[256];
        size_t k = 1;
        while (i + k + 1 < s->n && k < 3 && strchr("-_0^#", s->p[i + k])) fmt[k] = s->p[i + k], k++;
        fmt[k] = s->p[i + k];
        if ((unsigned char)fmt[k] >= 0x80) {
            jb_put(r, s->p + i, k, true);
            i += k;
            continue;
        }
        if (fmt[k] == 'f') jb_put(r, "000000", 6, true);
        else if (fmt[k] != 'z' && fmt[k] != 'Z')
            jb_put(r, text, strftime(text, sizeof text, fmt, &r->now), true);
        i += k + 1;
    }
    return jb_end(r, outer);
}
#pragma GCC diagnostic pop

GLOBAL(g_cycler) {
    UNUSED();
    struct jcycler *c = jr_alloc(r, sizeof *c);
    if (!call->n_pos) jr_fail(r, CHIMERE_EFORMAT, "at least one item has to be provided");
    if (r->rc) return jv_none();
    *c = (struct jcycler){.v = call->pos, .n = call->n_pos};
    return (struct jv){.kind = JV_CYCLER, .cycler = c};
}

GLOBAL(g_joiner) {
    UNUSED();
    struct jcycler *c = jr_alloc(r, sizeof *c);
    struct jv *sep = jr_alloc(r, sizeof *sep);
    if (r->rc) return jv_none();
    *sep = v[0].kind == JV_MISSING ? jv_view(r, ", ", 2, true) : v[0];
    *c = (struct jcycler){.v = sep, .n = 1};
    return (struct jv){.kind = JV_JOINER, .cycler = c};
}

static const struct jbuiltin globals[] = {
    {"range", g_range, NULL, 0, 0},
    {"dict", g_dict, NULL, 0, 0},
    {"namespace", g_namespace, NULL, 0, 0},
    {"raise_exception", g_raise_exception, "message", 1, 0},
    {"strftime_now", g_strftime_now, "format", 1, 0},
    {"cycler", g_cycler, NULL, 0, 0},
    {"joiner", g_joiner, "sep", 0, 0},
    {0},
};

const struct jbuiltin *j_find_global(const char *name, size_t n) {
    for (const struct jbuiltin *t = globals; t->name; t++)
        if (strncmp(t->name, name, n) == 0 && !t->name[n]) return t;
    return NULL;
}
