/* score_calls.c: tool calls in the XML form, and the values of expressions in them. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <math.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "eval/score.h"

/* ---- parsing ---- */

#define PARAMETER "<parameter=([^>\\n]+)>\\n(.*?)\\n</parameter>\\n"
static const char block_form[] =
    "\\G<tool_call>\\n<function=([^>\\n]+)>\\n"
    "((?:<parameter=[^>\\n]+>\\n.*?\\n</parameter>\\n)*)</function>\\n</tool_call>\\s*";
static const char parameter_form[] = PARAMETER;

/* Step limit of one match: thousands of times what a call takes. Without it, nested marks could take 2^n steps. */
enum { MAX_STEPS = 1000000 };

struct forms {
    pcre2_code *block, *parameter;
    pcre2_match_data *found; /* used for both expressions */
    pcre2_match_context *limits;
};

static void forms_fini(struct forms *f) {
    pcre2_match_context_free(f->limits);
    pcre2_match_data_free(f->found);
    pcre2_code_free(f->block);
    pcre2_code_free(f->parameter);
}

static bool forms_init(struct forms *f) {
    int code;
    PCRE2_SIZE at;
    const uint32_t flags = PCRE2_DOTALL | PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF;
    f->block =
        pcre2_compile((PCRE2_SPTR)block_form, PCRE2_ZERO_TERMINATED, flags, &code, &at, NULL);
    f->parameter =
        pcre2_compile((PCRE2_SPTR)parameter_form, PCRE2_ZERO_TERMINATED, flags, &code, &at, NULL);
    f->found = f->block ? pcre2_match_data_create_from_pattern(f->block, NULL) : NULL;
    f->limits = pcre2_match_context_create(NULL);
    if (f->limits) pcre2_set_match_limit(f->limits, MAX_STEPS);
    if (f->parameter && f->found && f->limits) return true;
    forms_fini(f);
    return false;
}

static bool match(const struct forms *f, const pcre2_code *code, const char *p, size_t n,
                  size_t from) {
    return pcre2_match(code, (PCRE2_SPTR)p, n, from, 0, f->found, f->limits) > 0;
}

/* A later argument of the same name replaces the earlier one. */
static json_t *arguments(const struct forms *f, const char *p, size_t n) {
    json_t *o = json_object();
    for (size_t at = 0; at < n && match(f, f->parameter, p, n, at);) {
        const PCRE2_SIZE *v = pcre2_get_ovector_pointer(f->found);
        json_object_setn_new(o, p + v[2], v[3] - v[2], json_stringn(p + v[4], v[5] - v[4]));
        at = v[1];
    }
    return o;
}

json_t *score_calls(const char *text, size_t n, bool *well_formed) {
    static const char mark[] = "<tool_call>";
    static const char *const others[] = {"</tool_call>", "<function=", "<parameter="};
    json_t *calls = json_array();
    const char *first = memmem(text, n, mark, sizeof mark - 1);
    *well_formed = true;
    if (!first) {
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            *well_formed &= !memmem(text, n, others[i], strlen(others[i]));
        return calls;
    }
    struct forms f;
    if (!calls || !forms_init(&f)) {
        json_decref(calls);
        return NULL;
    }
    size_t at = (size_t)(first - text);
    while (at < n) {
        if (!match(&f, f.block, text, n, at)) {
            *well_formed = false;
            break;
        }
        const PCRE2_SIZE *v = pcre2_get_ovector_pointer(f.found);
        size_t name = v[2], n_name = v[3] - v[2], args = v[4], n_args = v[5] - v[4];
        at = v[1];
        json_t *call = json_object();
        json_object_set_new(call, "name", json_stringn(text + name, n_name));
        json_object_set_new(call, "arguments", arguments(&f, text + args, n_args));
        json_array_append_new(calls, call);
    }
    forms_fini(&f);
    return calls;
}

/* ---- comparison with the offered functions ---- */

static bool reads_as(const char *s, const char *type) {
    bool real = type && strcmp(type, "number") == 0;
    if (!real && (!type || strcmp(type, "integer") != 0)) return true;
    if (*s == '-') s++;
    size_t n = strspn(s, "0123456789");
    if (!n) return false;
    s += n;
    if (real && *s == '.') {
        n = strspn(s + 1, "0123456789");
        if (!n) return false;
        s += n + 1;
    }
    return *s == 0;
}

static bool call_valid(const json_t *call, const json_t *parameters) {
    const json_t *args = json_object_get(call, "arguments"),
                 *props = json_object_get(parameters, "properties");
    size_t i;
    json_t *v;
    const char *key;
    json_array_foreach(json_object_get(parameters, "required"), i, v) {
        if (!json_object_get(args, json_string_value(v))) return false;
    }
    json_object_foreach((json_t *)args, key, v) {
        const json_t *prop = json_object_get(props, key);
        if (!prop || !json_is_string(v) ||
            !reads_as(json_string_value(v), json_string_value(json_object_get(prop, "type"))))
            return false;
    }
    return true;
}

bool score_calls_valid(const json_t *calls, const json_t *tools) {
    size_t i, k;
    json_t *call, *tool;
    json_array_foreach(calls, i, call) {
        const char *name = json_string_value(json_object_get(call, "name"));
        const json_t *parameters = NULL;
        if (!name) return false;
        json_array_foreach(tools, k, tool) {
            const json_t *f = json_object_get(tool, "function");
            const char *known = json_string_value(json_object_get(f, "name"));
            if (known && strcmp(known, name) == 0) parameters = json_object_get(f, "parameters");
        }
        if (!parameters || !call_valid(call, parameters)) return false;
    }
    return true;
}

/* ---- comparison with the expected calls ---- */

static bool same_normal(const char *a, size_t n_a, const char *b, size_t n_b, bool within) {
    struct buf x, y;
    buf_init(&x, (size_t)16 << 20);
    buf_init(&y, (size_t)16 << 20);
    score_normal(&x, a, n_a);
    score_normal(&y, b, n_b);
    bool same = within ? x.n == 0 || (y.n && memmem(y.p, y.n, x.p, x.n))
                       : x.n == y.n && (x.n == 0 || memcmp(x.p, y.p, x.n) == 0);
    buf_fini(&x);
    buf_fini(&y);
    return same;
}

/* Writes a number, boolean or string as text. */
static size_t as_text(const json_t *v, char out[40]) {
    if (json_is_integer(v))
        return (size_t)snprintf(out, 40, "%lld", (long long)json_integer_value(v));
    if (json_is_boolean(v))
        return (size_t)snprintf(out, 40, "%s", json_is_true(v) ? "true" : "false");
    if (json_is_null(v)) return (size_t)snprintf(out, 40, "none");
    if (!json_is_real(v)) return 0;
    size_t n = (size_t)str_f64(out, json_real_value(v));
    if (!strpbrk(out, ".en")) n += (size_t)snprintf(out + n, 40 - n, ".0");
    return n;
}

static bool argument_right(const json_t *want, const json_t *got) {
    const char *text = json_string_value(got);
    size_t n = json_string_length(got);
    if (json_is_object(want)) {
        const json_t *value = json_object_get(want, "value"), *part = json_object_get(want, "has");
        double v;
        if (!value)
            return same_normal(json_string_value(part), json_string_length(part), text, n, true);
        double wanted = json_number_value(value);
        return score_expression(text, n, &v) &&
               fabs(v - wanted) <= 1e-6 * (fabs(wanted) > 1 ? fabs(wanted) : 1);
    }
    if (json_is_string(want))
        return same_normal(json_string_value(want), json_string_length(want), text, n, false);
    char plain[40];
    size_t n_plain = as_text(want, plain);
    return n_plain && same_normal(plain, n_plain, text, n, false);
}

static bool call_right(const json_t *call, const json_t *want) {
    const json_t *args = json_object_get(call, "arguments"),
                 *wanted = json_object_get(want, "arguments");
    const char *key;
    json_t *v;
    if (!json_equal(json_object_get(call, "name"), json_object_get(want, "name")) ||
        json_object_size(args) != json_object_size(wanted))
        return false;
    json_object_foreach((json_t *)args, key, v) {
        const json_t *w = json_object_get(wanted, key);
        if (!w || !argument_right(w, v)) return false;
    }
    return true;
}

bool score_calls_right(const json_t *calls, const json_t *answer) {
    if (json_array_size(calls) != json_array_size(answer)) return false;
    json_t *left = json_copy((json_t *)answer), *call;
    bool right = left != NULL;
    size_t i, k;
    json_array_foreach(calls, i, call) {
        for (k = 0; k < json_array_size(left); k++)
            if (call_right(call, json_array_get(left, k))) break;
        if (k == json_array_size(left)) right = false;
        else json_array_remove(left, k);
    }
    json_decref(left);
    return right;
}

/* ---- expressions ---- */

enum { MAX_EXPRESSION = 80, MAX_NESTING = 40 };

struct expression {
    const char *p;
    int depth;
    bool bad;
};

static double sum_of(struct expression *x);

static void skip(struct expression *x) {
    while (*x->p == ' ') x->p++;
}

static bool take(struct expression *x, const char *what) {
    skip(x);
    size_t n = strlen(what);
    if (strncmp(x->p, what, n) != 0) return false;
    x->p += n;
    return true;
}

/* Accepts 12, 12.5, .5 and 12. but not 012. */
static double number_of(struct expression *x) {
    const char *start = x->p;
    size_t whole = strspn(x->p, "0123456789"), part = 0;
    x->p += whole;
    bool real = *x->p == '.';
    if (real) {
        part = strspn(x->p + 1, "0123456789");
        x->p += 1 + part;
    }
    if (whole + part == 0 || (!real && whole > 1 && *start == '0' && strspn(start, "0") < whole)) {
        x->bad = true;
        return 0;
    }
    char digits[MAX_EXPRESSION + 1];
    snprintf(digits, sizeof digits, "%.*s", (int)(x->p - start), start);
    return strtod(digits, NULL);
}

/* a sign, a bracket or a number; a power binds tighter than the sign before it and associates to the right */
static double factor_of(struct expression *x) {
    if (x->bad || ++x->depth > MAX_NESTING) {
        x->bad = true;
        return 0;
    }
    double v;
    if (take(x, "-")) v = -factor_of(x);
    else if (take(x, "+")) v = factor_of(x);
    else {
        if (take(x, "(")) {
            v = sum_of(x);
            if (!take(x, ")")) x->bad = true;
        } else {
            v = number_of(x);
        }
        if (take(x, "**")) v = pow(v, factor_of(x));
    }
    x->depth--;
    return v;
}

static double product_of(struct expression *x) {
    double v = factor_of(x);
    while (!x->bad) {
        if (take(x, "*")) {
            v *= factor_of(x);
        } else if (take(x, "/")) {
            bool whole = take(x, "/");
            double by = factor_of(x);
            if (by == 0) x->bad = true;
            v = whole ? floor(v / by) : v / by;
        } else {
            break;
        }
    }
    return v;
}

static double sum_of(struct expression *x) {
    double v = product_of(x);
    while (!x->bad) {
        if (take(x, "+")) v += product_of(x);
        else if (take(x, "-")) v -= product_of(x);
        else break;
    }
    return v;
}

bool score_expression(const char *text, size_t n, double *out) {
    char s[MAX_EXPRESSION + 1];
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == 'x') c = '*';
        if (i + 1 < n && memcmp(text + i, "\xc3\xb7", 2) == 0) { /* the division sign */
            c = '/';
            i++;
        }
        if (k == MAX_EXPRESSION || !c || !strchr("0123456789+-*/(). ", c)) return false;
        s[k++] = c;
    }
    s[k] = 0;
    struct expression x = {.p = s};
    *out = sum_of(&x);
    skip(&x);
    return !x.bad && !*x.p && isfinite(*out);
}
