/* jinja_ops.c: arithmetic, comparison, membership, attributes, items, slices: as in Python, with 64-bit integers. */
#include <math.h>
#include <string.h>

#include "text/jinja/jinja_impl.h"

/* ---- arithmetic ---- */

static const char *op_text(int op) { return jtok_name((enum jtok_kind)op); }

static struct jv type_error(struct jr *r, int op, struct jv a, struct jv b) {
    if (a.kind == JV_UNDEF || b.kind == JV_UNDEF)
        return j_undefined_error(r, a.kind == JV_UNDEF ? a : b);
    jr_fail(r, CHIMERE_EFORMAT, "unsupported operand type(s) for %s: '%s' and '%s'", op_text(op),
            jv_type_name(a), jv_type_name(b));
    return jv_none();
}

static struct jv overflow(struct jr *r, int op) {
    jr_fail(r, CHIMERE_EFORMAT, "the result of %s is beyond 64 bits", op_text(op));
    return jv_none();
}

static struct jv zero_division(struct jr *r) {
    jr_fail(r, CHIMERE_EFORMAT, "division by zero");
    return jv_none();
}

static struct jv int_pow(struct jr *r, int64_t a, int64_t n) {
    int64_t v = 1;
    if (n < 0) {
        if (a == 0) return zero_division(r);
        return jv_float(pow((double)a, (double)n));
    }
    if (a == 0 || a == 1 || a == -1) return jv_int(n == 0 ? 1 : a == -1 && n % 2 == 0 ? 1 : a);
    for (; n > 0; n--) /* at most 63 iterations: |a| >= 2 */
        if (__builtin_mul_overflow(v, a, &v)) return overflow(r, JT_POW);
    return jv_int(v);
}

static struct jv int_op(struct jr *r, int op, int64_t a, int64_t b) {
    int64_t v = 0;
    switch (op) {
    case JT_ADD: return __builtin_add_overflow(a, b, &v) ? overflow(r, op) : jv_int(v);
    case JT_SUB: return __builtin_sub_overflow(a, b, &v) ? overflow(r, op) : jv_int(v);
    case JT_MUL: return __builtin_mul_overflow(a, b, &v) ? overflow(r, op) : jv_int(v);
    case JT_DIV:
        if (b == 0) return zero_division(r);
        return jv_float((double)((long double)a / (long double)b));
    case JT_FLOORDIV:
    case JT_MOD:
        if (b == 0) return zero_division(r);
        if (b == -1) return op == JT_MOD ? jv_int(0) : int_op(r, JT_SUB, 0, a);
        v = a % b;
        if (v && (v < 0) != (b < 0)) v += b;
        return jv_int(op == JT_MOD ? v : (a - v) / b);
    default: return int_pow(r, a, b);
    }
}

static struct jv float_op(struct jr *r, int op, double a, double b) {
    switch (op) {
    case JT_ADD: return jv_float(a + b);
    case JT_SUB: return jv_float(a - b);
    case JT_MUL: return jv_float(a * b);
    case JT_DIV: return b == 0 ? zero_division(r) : jv_float(a / b);
    case JT_FLOORDIV:
    case JT_MOD: {
        if (b == 0) return zero_division(r);
        double m = fmod(a, b);
        double div = (a - m) / b;
        if (m != 0) {
            if ((b < 0) != (m < 0)) {
                m += b;
                div -= 1;
            }
        } else {
            m = copysign(0, b);
        }
        if (op == JT_MOD) return jv_float(m);
        if (div == 0) return jv_float(copysign(0, a / b));
        double fl = floor(div);
        return jv_float(div - fl > 0.5 ? fl + 1 : fl);
    }
    default: {
        if (a == 0 && b < 0) return zero_division(r);
        double v = pow(a, b);
        if (isnan(v) && !isnan(a) && !isnan(b)) {
            jr_fail(r, CHIMERE_EFORMAT, "complex numbers are not supported");
            return jv_none();
        }
        if (isinf(v) && !isinf(a) && !isinf(b)) {
            jr_fail(r, CHIMERE_EFORMAT, "numerical result out of range");
            return jv_none();
        }
        return jv_float(v);
    }
    }
}

static struct jv repeat(struct jr *r, struct jv s, int64_t n) {
    if (n < 0) n = 0;
    if (s.kind == JV_STR) {
        size_t outer = jb_begin(r), total;
        if (!size_mul(s.s->n, (size_t)n, &total) || total > r->limits->max_output_bytes)
            jr_fail(r, CHIMERE_ELIMIT, "a text of more than %zu bytes",
                    r->limits->max_output_bytes);
        for (int64_t i = 0; s.s->n && i < n && jr_step(r, 1); i++) jb_put_jstr(r, s.s, 0, s.s->n);
        return jb_end(r, outer);
    }
    struct jv out = jv_list(r, s.kind, 0);
    for (int64_t i = 0; i < n && s.l->n && !r->rc; i++)
        for (size_t k = 0; k < s.l->n && !r->rc; k++) jlist_push(r, out.l, s.l->v[k]);
    return out;
}

static struct jv join_lists(struct jr *r, struct jv a, struct jv b) {
    struct jv out = jv_list(r, a.kind, a.l->n + b.l->n);
    if (r->rc) return jv_none();
    if (a.l->n) memcpy(out.l->v, a.l->v, a.l->n * sizeof *a.l->v);
    if (b.l->n) memcpy(out.l->v + a.l->n, b.l->v, b.l->n * sizeof *b.l->v);
    return out;
}

static bool is_sequence(struct jv v) {
    return v.kind == JV_STR || v.kind == JV_LIST || v.kind == JV_TUPLE;
}

struct jv j_binary(struct jr *r, int op, struct jv a, struct jv b) {
    if (r->rc) return jv_none();
    if (jv_is_numeric(a) && jv_is_numeric(b)) {
        if (jv_is_integral(a) && jv_is_integral(b))
            return int_op(r, op, jv_as_int(a), jv_as_int(b));
        return float_op(r, op, jv_as_float(a), jv_as_float(b));
    }
    if (op == JT_ADD && a.kind == b.kind) {
        if (a.kind == JV_STR) return jstr_concat(r, a.s, b.s);
        if (a.kind == JV_LIST || a.kind == JV_TUPLE) return join_lists(r, a, b);
    }
    if (op == JT_MUL && is_sequence(a) && jv_is_integral(b)) return repeat(r, a, jv_as_int(b));
    if (op == JT_MUL && is_sequence(b) && jv_is_integral(a)) return repeat(r, b, jv_as_int(a));
    if (op == JT_MOD && a.kind == JV_STR) return jf_percent(r, a.s, b);
    return type_error(r, op, a, b);
}

struct jv j_neg(struct jr *r, struct jv a) {
    if (a.kind == JV_FLOAT) return jv_float(-a.f);
    if (jv_is_integral(a)) return int_op(r, JT_SUB, 0, jv_as_int(a));
    if (a.kind == JV_UNDEF) return j_undefined_error(r, a);
    jr_fail(r, CHIMERE_EFORMAT, "bad operand type for unary -: '%s'", jv_type_name(a));
    return jv_none();
}

/* ---- comparison and membership ---- */

bool j_in(struct jr *r, struct jv a, struct jv c) {
    if (r->rc) return false;
    if (c.kind == JV_STR) {
        if (a.kind != JV_STR) {
            jr_fail(r, CHIMERE_EFORMAT, "'in <string>' requires string as left operand, not %s",
                    jv_type_name(a));
            return false;
        }
        jr_step(r, c.s->n / 16);
        return jstr_find(c.s, a.s, 0, c.s->n) != SIZE_MAX;
    }
    if (c.kind == JV_DICT) return jdict_find(r, c.d, a) != NULL;
    if (c.kind == JV_RANGE && jv_is_integral(a)) {
        int64_t d = jv_as_int(a) - c.range->start;
        return c.range->n && d % c.range->step == 0 && d / c.range->step >= 0 &&
               d / c.range->step < c.range->n;
    }
    if (!jv_is_iterable(c)) {
        jr_fail(r, CHIMERE_EFORMAT, "argument of type '%s' is not iterable", jv_type_name(c));
        return false;
    }
    const struct jlist *l = jv_items(r, c);
    for (size_t i = 0; i < l->n && jr_step(r, 1); i++)
        if (jv_eq(r, l->v[i], a)) return true;
    return false;
}

bool j_compare(struct jr *r, int op, struct jv a, struct jv b) {
    if (op == JT_EQ) return jv_eq(r, a, b);
    if (op == JT_NE) return !jv_eq(r, a, b);
    if (op == JT_IN) return j_in(r, a, b);
    if (op == JT_NOTIN) return !j_in(r, a, b);
    int c = jv_cmp(r, a, b, op_text(op));
    if (c == 2) return false;
    return op == JT_LT ? c < 0 : op == JT_LE ? c <= 0 : op == JT_GT ? c > 0 : c >= 0;
}

/* ---- attributes and items ---- */

static const char *object_name(struct jv o) {
    return o.kind == JV_NONE        ? "None"
           : o.kind == JV_NAMESPACE ? "Namespace object"
                                    : jv_type_name(o);
}

static struct jv no_attribute(struct jr *r, struct jv o, const struct jstr *name) {
    return jv_undef(r, "'%s%s' has no attribute '%.*s'", object_name(o),
                    o.kind == JV_NONE || o.kind == JV_NAMESPACE ? "" : " object",
                    (int)(name->n > 80 ? 80 : name->n), name->p);
}

static struct jv number_attr(struct jv o, const struct jstr *name) {
    bool is_real =
        jstr_eq(name, "real", 4) || (o.kind != JV_FLOAT && jstr_eq(name, "numerator", 9));
    if (is_real) return o.kind == JV_FLOAT ? o : jv_int(jv_as_int(o));
    if (jstr_eq(name, "imag", 4)) return o.kind == JV_FLOAT ? jv_float(0) : jv_int(0);
    if (o.kind != JV_FLOAT && jstr_eq(name, "denominator", 11)) return jv_int(1);
    return jv_missing();
}

static struct jv range_attr(struct jv o, const struct jstr *name) {
    if (jstr_eq(name, "start", 5)) return jv_int(o.range->start);
    if (jstr_eq(name, "stop", 4)) return jv_int(o.range->stop);
    if (jstr_eq(name, "step", 4)) return jv_int(o.range->step);
    return jv_missing();
}

/* An attribute that Python's type dict does not have is looked up as an item, and dict[x] is dict again. So the
 * call dict.from_keys(pairs), which published templates contain, works. */
static struct jv type_attr(struct jv o, const struct jstr *name) {
    bool own = (name->n && name->p[0] == '_') || jstr_eq(name, "fromkeys", 8) ||
               j_find_method(JV_DICT, name->p, name->n);
    return own || strcmp(o.fn->name, "dict") ? jv_missing() : o;
}

/* Returns what the object itself has under this name; JV_MISSING: nothing. */
static struct jv own_attr(struct jr *r, struct jv o, const struct jstr *name) {
    struct jv v = jv_missing();
    if (jv_is_numeric(o)) v = number_attr(o, name);
    if (o.kind == JV_RANGE) v = range_attr(o, name);
    if (o.kind == JV_BUILTIN) v = type_attr(o, name);
    if (o.kind == JV_LOOP) v = j_loop_attr(r, o.loop, name);
    if (o.kind == JV_MACRO) v = j_macro_attr(r, o.macro, name);
    if (o.kind == JV_NAMESPACE) {
        struct jv *found = jdict_find_text(r, o.d, name->p, name->n);
        return found ? *found : v;
    }
    if (o.kind == JV_TUPLE && o.b) { /* a group made by groupby */
        if (jstr_eq(name, "grouper", 7)) return o.l->v[0];
        if (jstr_eq(name, "list", 4)) return o.l->v[1];
    }
    if (o.kind == JV_CYCLER && jstr_eq(name, "current", 7)) return o.cycler->v[o.cycler->pos];
    if (v.kind != JV_MISSING) return v;
    const struct jbuiltin *fn = j_find_method(o.kind, name->p, name->n);
    if (!fn) return v;
    if (fn->fn == j_method_unsafe)
        return jv_undef(r, "access to attribute '%s' of '%s' object is unsafe.", fn->name,
                        jv_type_name(o));
    struct jmethod *m = jr_alloc(r, sizeof *m);
    if (!m) return jv_none();
    *m = (struct jmethod){o, fn};
    return (struct jv){.kind = JV_METHOD, .method = m};
}

struct jv j_getattr(struct jr *r, struct jv o, struct jstr *name) {
    if (r->rc) return jv_none();
    if (o.kind == JV_UNDEF) return j_undefined_error(r, o);
    struct jv v = own_attr(r, o, name);
    if (v.kind != JV_MISSING || r->rc) return v;
    if (o.kind == JV_DICT) {
        struct jv *found = jdict_find(r, o.d, (struct jv){.kind = JV_STR, .s = name});
        if (found) return *found;
    }
    return no_attribute(r, o, name);
}

static struct jv item_at(struct jr *r, struct jv o, int64_t i) {
    int64_t n = jv_len(r, o);
    if (i < 0) i += n;
    if (i < 0 || i >= n) return jv_missing();
    if (o.kind == JV_RANGE) return jv_int(o.range->start + i * o.range->step);
    if (o.kind != JV_STR) return o.l->v[i];
    size_t b = jstr_offset(o.s, (size_t)i);
    if (jstr_len(o.s) != o.s->n) jr_step(r, b / 16);
    int k = utf8_valid_len(o.s->p + b, o.s->n - b);
    return jv_slice(r, o.s, b, b + (k > 0 ? (size_t)k : 1));
}

struct jv j_getitem(struct jr *r, struct jv o, struct jv key) {
    if (r->rc) return jv_none();
    if (o.kind == JV_UNDEF) return j_undefined_error(r, o);
    bool by_number =
        o.kind == JV_STR || o.kind == JV_LIST || o.kind == JV_TUPLE || o.kind == JV_RANGE;
    if (by_number && jv_is_integral(key)) {
        struct jv v = item_at(r, o, jv_as_int(key));
        if (v.kind != JV_MISSING) return v;
    }
    if (o.kind == JV_DICT && key.kind != JV_LIST && key.kind != JV_DICT) {
        struct jv *found = jdict_find(r, o.d, key);
        if (found) return *found;
    }
    if (key.kind == JV_STR) {
        struct jv v = own_attr(r, o, key.s);
        return v.kind != JV_MISSING || r->rc ? v : no_attribute(r, o, key.s);
    }
    size_t outer = jb_begin(r);
    jb_put_repr(r, key);
    struct jv text = jb_end(r, outer);
    if (r->rc) return jv_none();
    return jv_undef(r, "%s object has no element %.*s", object_name(o),
                    (int)(text.s->n > 80 ? 80 : text.s->n), text.s->p);
}

static bool slice_bound(struct jr *r, struct jv v, int64_t absent, int64_t *out) {
    bool is_absent = v.kind == JV_MISSING || v.kind == JV_NONE;
    *out = is_absent ? absent : jv_is_integral(v) ? jv_as_int(v) : 0;
    if (is_absent || jv_is_integral(v)) return true;
    if (v.kind == JV_UNDEF) j_undefined_error(r, v);
    else jr_fail(r, CHIMERE_EFORMAT, "slice indices must be integers or None");
    return false;
}

static struct jv slice_str(struct jr *r, struct jstr *s, int64_t from, int64_t to, int64_t step) {
    if (step == 1) {
        size_t b = jstr_offset(s, (size_t)from), e = jstr_offset(s, (size_t)to);
        if (jstr_len(s) != s->n) jr_step(r, s->n / 16);
        return jv_slice(r, s, b, e);
    }
    struct jlist *chars = jv_items(r, (struct jv){.kind = JV_STR, .s = s});
    size_t outer = jb_begin(r);
    for (int64_t i = from; (step > 0 ? i < to : i > to) && !r->rc; i += step)
        jb_put_jstr(r, chars->v[i].s, 0, chars->v[i].s->n);
    return jb_end(r, outer);
}

static struct jv slice_range(struct jr *r, const struct jrange *g, int64_t from, int64_t to,
                             int64_t step) {
    struct jrange *out = jr_alloc(r, sizeof *out);
    if (!out) return jv_none();
    int64_t n = step > 0 ? (to > from ? (to - from - 1) / step + 1 : 0)
                         : (from > to ? (from - to - 1) / -step + 1 : 0);
    *out = (struct jrange){g->start + from * g->step, g->start + to * g->step, g->step * step, n};
    return (struct jv){.kind = JV_RANGE, .range = out};
}

struct jv j_getslice(struct jr *r, struct jv o, struct jv start, struct jv stop, struct jv step_v) {
    int64_t n = jv_len(r, o), step, from, to;
    if (o.kind == JV_UNDEF) return j_undefined_error(r, o);
    bool can = o.kind == JV_STR || o.kind == JV_LIST || o.kind == JV_TUPLE || o.kind == JV_RANGE;
    if (!can) {
        jr_fail(r, CHIMERE_EFORMAT, "'%s' object cannot be sliced", jv_type_name(o));
        return jv_none();
    }
    if (!slice_bound(r, step_v, 1, &step)) return jv_none();
    if (step == 0) {
        jr_fail(r, CHIMERE_EFORMAT, "slice step cannot be zero");
        return jv_none();
    }
    if (step > n + 1) step = n + 1;
    if (step < -n - 1) step = -n - 1;
    bool open_end = (stop.kind == JV_MISSING || stop.kind == JV_NONE);
    if (!slice_bound(r, start, step > 0 ? 0 : n - 1, &from) ||
        !slice_bound(r, stop, step > 0 ? n : -1, &to))
        return jv_none();
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    if (from < 0 && start.kind != JV_MISSING && start.kind != JV_NONE)
        from = from < -n ? low : from + n;
    if (to < 0 && !open_end) to = to < -n ? low : to + n;
    from = from < low ? low : from > high ? high : from;
    to = to < low ? low : to > high ? high : to;
    if (step > 0 && to < from) to = from;
    if (step < 0 && to > from) to = from;
    if (o.kind == JV_STR) return slice_str(r, o.s, from, to, step);
    if (o.kind == JV_RANGE) return slice_range(r, o.range, from, to, step);
    struct jv out = jv_list(r, o.kind, 0);
    for (int64_t i = from; (step > 0 ? i < to : i > to) && !r->rc; i += step)
        jlist_push(r, out.l, o.l->v[i]);
    return out;
}
