/* jinja_test.c: the tests that may follow `is`. */
#include <string.h>

#include "text/jinja/jinja_impl.h"

#define TEST(name)                                                                                 \
    static struct jv name(struct jr *r, struct jv self, struct jv *v, const struct jcall *call)
#define UNUSED() (void)r, (void)self, (void)v, (void)call

TEST(t_defined) {
    UNUSED();
    return jv_bool(self.kind != JV_UNDEF);
}
TEST(t_undefined) {
    UNUSED();
    return jv_bool(self.kind == JV_UNDEF);
}
TEST(t_none) {
    UNUSED();
    return jv_bool(self.kind == JV_NONE);
}
TEST(t_boolean) {
    UNUSED();
    return jv_bool(self.kind == JV_BOOL);
}
TEST(t_true) {
    UNUSED();
    return jv_bool(self.kind == JV_BOOL && self.b);
}
TEST(t_false) {
    UNUSED();
    return jv_bool(self.kind == JV_BOOL && !self.b);
}
TEST(t_integer) {
    UNUSED();
    return jv_bool(self.kind == JV_INT);
}
TEST(t_float) {
    UNUSED();
    return jv_bool(self.kind == JV_FLOAT);
}
TEST(t_number) {
    UNUSED();
    return jv_bool(jv_is_numeric(self));
}
TEST(t_string) {
    UNUSED();
    return jv_bool(self.kind == JV_STR);
}
TEST(t_mapping) {
    UNUSED();
    return jv_bool(self.kind == JV_DICT);
}
TEST(t_iterable) {
    UNUSED();
    return jv_bool(jv_is_iterable(self));
}
TEST(t_escaped) {
    UNUSED();
    return jv_bool(self.kind == JV_STR && self.s->is_markup);
}

TEST(t_sequence) { /* it has a length and items */
    UNUSED();
    return jv_bool(self.kind == JV_STR || self.kind == JV_LIST || self.kind == JV_TUPLE ||
                   self.kind == JV_DICT || self.kind == JV_RANGE || self.kind == JV_UNDEF);
}

TEST(t_callable) {
    UNUSED();
    return jv_bool(self.kind == JV_MACRO || self.kind == JV_BUILTIN || self.kind == JV_METHOD ||
                   self.kind == JV_LOOP || self.kind == JV_JOINER || self.kind == JV_UNDEF);
}

TEST(t_lower) {
    UNUSED();
    return jv_bool(jstr_case_kind(jv_to_str(r, self)) < 0);
}
TEST(t_upper) {
    UNUSED();
    return jv_bool(jstr_case_kind(jv_to_str(r, self)) > 0);
}

static bool remainder_is(struct jr *r, struct jv self, struct jv divisor, int64_t rest) {
    return jv_eq(r, j_binary(r, JT_MOD, self, divisor), jv_int(rest));
}
TEST(t_odd) {
    UNUSED();
    return jv_bool(remainder_is(r, self, jv_int(2), 1));
}
TEST(t_even) {
    UNUSED();
    return jv_bool(remainder_is(r, self, jv_int(2), 0));
}
TEST(t_divisibleby) {
    UNUSED();
    return jv_bool(remainder_is(r, self, v[0], 0));
}

TEST(t_sameas) {
    UNUSED();
    struct jv o = v[0];
    if (self.kind != o.kind) return jv_bool(false);
    switch ((enum jv_kind)self.kind) {
    case JV_NONE: return jv_bool(true);
    case JV_BOOL: return jv_bool(self.b == o.b);
    case JV_INT:
        return jv_bool(self.i == o.i && self.i >= -5 &&
                       self.i <= 256); /* the integers that CPython shares */
    case JV_FLOAT: return jv_bool(false);
    default: return jv_bool(self.d == o.d);
    }
}

TEST(t_in) {
    UNUSED();
    return jv_bool(j_in(r, self, v[0]));
}
TEST(t_eq) {
    UNUSED();
    return jv_bool(jv_eq(r, self, v[0]));
}
TEST(t_ne) {
    UNUSED();
    return jv_bool(!jv_eq(r, self, v[0]));
}
TEST(t_gt) {
    UNUSED();
    return jv_bool(j_compare(r, JT_GT, self, v[0]));
}
TEST(t_ge) {
    UNUSED();
    return jv_bool(j_compare(r, JT_GE, self, v[0]));
}
TEST(t_lt) {
    UNUSED();
    return jv_bool(j_compare(r, JT_LT, self, v[0]));
}
TEST(t_le) {
    UNUSED();
    return jv_bool(j_compare(r, JT_LE, self, v[0]));
}

/* Names are looked up in a dictionary, so a value without a hash is an error. */
static bool is_name(struct jr *r, struct jv v) {
    jv_hash(r, v);
    return v.kind == JV_STR;
}

TEST(t_filter) {
    UNUSED();
    return jv_bool(is_name(r, self) && j_find_filter(self.s->p, self.s->n));
}
TEST(t_test) {
    UNUSED();
    return jv_bool(is_name(r, self) && j_find_test(self.s->p, self.s->n));
}

static const struct jbuiltin tests[] = {
    {"!=", t_ne, "other", 1, 0},
    {"<", t_lt, "other", 1, 0},
    {"<=", t_le, "other", 1, 0},
    {"==", t_eq, "other", 1, 0},
    {">", t_gt, "other", 1, 0},
    {">=", t_ge, "other", 1, 0},
    {"boolean", t_boolean, "", 0, 0},
    {"callable", t_callable, "", 0, 0},
    {"defined", t_defined, "", 0, 0},
    {"divisibleby", t_divisibleby, "num", 1, 0},
    {"eq", t_eq, "other", 1, 0},
    {"equalto", t_eq, "other", 1, 0},
    {"escaped", t_escaped, "", 0, 0},
    {"even", t_even, "", 0, 0},
    {"false", t_false, "", 0, 0},
    {"filter", t_filter, "", 0, 0},
    {"float", t_float, "", 0, 0},
    {"ge", t_ge, "other", 1, 0},
    {"greaterthan", t_gt, "other", 1, 0},
    {"gt", t_gt, "other", 1, 0},
    {"in", t_in, "seq", 1, 0},
    {"integer", t_integer, "", 0, 0},
    {"iterable", t_iterable, "", 0, 0},
    {"le", t_le, "other", 1, 0},
    {"lessthan", t_lt, "other", 1, 0},
    {"lower", t_lower, "", 0, 0},
    {"lt", t_lt, "other", 1, 0},
    {"mapping", t_mapping, "", 0, 0},
    {"ne", t_ne, "other", 1, 0},
    {"none", t_none, "", 0, 0},
    {"number", t_number, "", 0, 0},
    {"odd", t_odd, "", 0, 0},
    {"sameas", t_sameas, "other", 1, 0},
    {"sequence", t_sequence, "", 0, 0},
    {"string", t_string, "", 0, 0},
    {"test", t_test, "", 0, 0},
    {"true", t_true, "", 0, 0},
    {"undefined", t_undefined, "", 0, 0},
    {"upper", t_upper, "", 0, 0},
    {0},
};

const struct jbuiltin *j_find_test(const char *name, size_t n) {
    for (const struct jbuiltin *t = tests; t->name; t++)
        if (strncmp(t->name, name, n) == 0 && !t->name[n]) return t;
    return NULL;
}
