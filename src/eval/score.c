/* score.c: see score.h. */
#include "eval/score.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

enum { MAX_TEXT = 16 << 20 };

/* ---- texts ---- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Unicode white space and the four ASCII separators. */
static bool is_blank(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Returns the length of the blank at p; 0: none. */
static size_t blank_at(const char *p, size_t n) {
    uint32_t c;
    int len = utf8_decode(p, n, &c);
    return len > 0 && is_blank(c) ? (size_t)len : 0;
}

static struct slice stripped(struct slice s) {
    size_t k;
    while (s.n && (k = blank_at(s.p, s.n)) > 0) {
        s.p += k;
        s.n -= k;
    }
    while (s.n) { /* the last character begins at most three bytes before the last byte */
        size_t at = s.n - 1;
        while (at && s.n - at < 4 && ((unsigned char)s.p[at] & 0xc0) == 0x80) at--;
        if (blank_at(s.p + at, s.n - at) != s.n - at) break;
        s.n = at;
    }
    return s;
}

struct slice score_visible(const char *text, size_t n) {
    static const char mark[] = "</think>";
    struct slice s = {text, n};
    const char *at;
    while ((at = memmem(s.p, s.n, mark, sizeof mark - 1))) {
        s.n -= (size_t)(at - s.p) + sizeof mark - 1;
        s.p = at + sizeof mark - 1;
    }
    return stripped(s);
}

void score_normal(struct buf *out, const char *text, size_t n) {
    struct buf b;
    buf_init(&b, MAX_TEXT);
    for (size_t i = 0; i < n;) {
        size_t k = blank_at(text + i, n - i);
        if (k && b.n && b.p[b.n - 1] != ' ') buf_putc(&b, ' ');
        if (!k) buf_putc(&b, text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] + 32) : text[i]);
        i += k ? k : 1;
    }
    struct slice s = {b.n ? b.p : "", b.n};
    if (s.n && s.p[s.n - 1] == ' ') s.n--;
    while (s.n && (*s.p == '"' || *s.p == '\'')) s.p++, s.n--;
    while (s.n && (s.p[s.n - 1] == '"' || s.p[s.n - 1] == '\'')) s.n--;
    while (s.n && s.p[s.n - 1] == '.') s.n--;
    s = stripped(s);
    buf_put(out, s.p, s.n);
    buf_fini(&b);
}

static struct buf normal_of(const char *text, size_t n) {
    struct buf b;
    buf_init(&b, MAX_TEXT);
    score_normal(&b, text, n);
    return b;
}

static bool has(const struct buf *b, const char *what, size_t n) {
    return n == 0 || (b->n && memmem(b->p, b->n, what, n) != NULL);
}

/* Returns true if the normalised `wanted` equals text, which is already normalised, or (within) is contained in
 * it. */
static bool matches(const struct buf *text, const json_t *wanted, bool within) {
    struct buf w = normal_of(json_string_value(wanted), json_string_length(wanted));
    bool same = within ? has(text, w.n ? w.p : "", w.n)
                       : w.n == text->n && (w.n == 0 || memcmp(w.p, text->p, w.n) == 0);
    buf_fini(&w);
    return same;
}

static size_t count_matches(const struct buf *text, const json_t *list, bool within) {
    size_t n = 0, i;
    json_t *w;
    json_array_foreach(list, i, w) n += matches(text, w, within);
    return n;
}

/* ---- numbers ---- */

bool score_last_number(const char *text, size_t n, double *out) {
    struct buf b;
    buf_init(&b, MAX_TEXT);
    for (size_t i = 0; i < n; i++) {
        bool group = text[i] == ',' && i > 0 && is_digit(text[i - 1]) && i + 3 < n &&
                     is_digit(text[i + 1]) && is_digit(text[i + 2]) && is_digit(text[i + 3]);
        if (!group) buf_putc(&b, text[i]);
    }
    bool found = false;
    for (size_t i = 0; i < b.n;) {
        size_t at = i, end;
        if (b.p[i] == '-' && i + 1 < b.n && is_digit(b.p[i + 1])) i++;
        else if (!is_digit(b.p[i])) {
            i++;
            continue;
        }
        while (i < b.n && is_digit(b.p[i])) i++;
        if (i + 1 < b.n && b.p[i] == '.' && is_digit(b.p[i + 1]))
            for (i++; i < b.n && is_digit(b.p[i]);) i++;
        end = i;
        char after = b.p[end]; /* at the end of the text this is the final NUL */
        b.p[end] = 0;
        *out = strtod(b.p + at, NULL);
        b.p[end] = after;
        found = true;
    }
    buf_fini(&b);
    return found;
}

static bool near(double got, double want) {
    double scale = fabs(want) > 1 ? fabs(want) : 1;
    return fabs(got - want) <= 1e-6 * scale;
}

/* ---- JSON ---- */

bool score_schema(const json_t *value, const json_t *schema) {
    const char *type = json_string_value(json_object_get(schema, "type"));
    if (!type) type = "string";
    if (strcmp(type, "object") == 0) {
        const json_t *props = json_object_get(schema, "properties");
        const char *key;
        json_t *v, *need;
        size_t i;
        if (!json_is_object(value)) return false;
        json_array_foreach(json_object_get(schema, "required"), i, need) {
            if (!json_object_get(value, json_string_value(need))) return false;
        }
        json_object_foreach((json_t *)value, key, v) {
            const json_t *sub = json_object_get(props, key);
            if (!sub || !score_schema(v, sub)) return false;
        }
        return true;
    }
    if (strcmp(type, "array") == 0) {
        size_t i;
        json_t *v;
        if (!json_is_array(value)) return false;
        json_array_foreach(value, i, v) {
            if (!score_schema(v, json_object_get(schema, "items"))) return false;
        }
        return true;
    }
    if (strcmp(type, "boolean") == 0) return json_is_boolean(value);
    if (strcmp(type, "integer") == 0) return json_is_integer(value);
    if (strcmp(type, "number") == 0) return json_is_number(value);
    if (!json_is_string(value)) return false;
    const json_t *list = json_object_get(schema, "enum");
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v) {
        if (json_equal(v, value)) return true;
    }
    return !list;
}

/* Like json_equal, but 3 and 3.0 are equal. */
static bool same_value(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    if (json_typeof(a) != json_typeof(b)) return false;
    if (json_is_array(a)) {
        if (json_array_size(a) != json_array_size(b)) return false;
        for (size_t i = 0; i < json_array_size(a); i++)
            if (!same_value(json_array_get(a, i), json_array_get(b, i))) return false;
        return true;
    }
    if (json_is_object(a)) {
        const char *key;
        json_t *v;
        if (json_object_size(a) != json_object_size(b)) return false;
        json_object_foreach((json_t *)a, key, v) {
            const json_t *other = json_object_get(b, key);
            if (!other || !same_value(v, other)) return false;
        }
        return true;
    }
    return json_equal(a, b);
}

static json_t *parse(struct slice s) {
    return json_loadb(s.p, s.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

/* ---- kinds of checks ---- */

struct check {
    const json_t *item, *check, *answer;
    struct slice text;
    struct buf normal; /* normalised text */
};
typedef int kind_fn(const struct check *c, struct score *s, struct err *e);

static int bad_item(struct err *e, const char *field, const char *expected) {
    return err_set(e, CHIMERE_EFORMAT, "check.%s: expected %s", field, expected);
}

static int strings(const json_t *list, const char *field, struct err *e) {
    size_t i;
    json_t *v;
    if (!json_is_array(list)) return bad_item(e, field, "a list of strings");
    json_array_foreach(list, i, v) {
        if (!json_is_string(v)) return bad_item(e, field, "a list of strings");
    }
    return 0;
}

static void set_valid(struct score *s, bool valid) {
    s->has_valid = true;
    s->valid = valid;
}

static int exact(const struct check *c, struct score *s, struct err *e) {
    int rc = strings(c->answer, "answer", e);
    if (!rc) s->right = count_matches(&c->normal, c->answer, false) > 0;
    return rc;
}

static int contains(const struct check *c, struct score *s, struct err *e) {
    int rc = strings(c->answer, "answer", e);
    if (!rc) s->right = count_matches(&c->normal, c->answer, true) == json_array_size(c->answer);
    return rc;
}

static int number(const struct check *c, struct score *s, struct err *e) {
    double got;
    if (!json_is_number(c->answer)) return bad_item(e, "answer", "a number");
    s->right =
        score_last_number(c->text.p, c->text.n, &got) && near(got, json_number_value(c->answer));
    return 0;
}

static int choice(const struct check *c, struct score *s, struct err *e) {
    const json_t *choices = json_object_get(c->check, "choices");
    int rc = strings(choices, "choices", e);
    if (!rc && !json_is_string(c->answer)) rc = bad_item(e, "answer", "a string");
    if (rc) return rc;
    char word[256];
    size_t n = 0;
    for (size_t i = 0; i < c->text.n; i++) {
        char ch = c->text.p[i];
        if (ch >= 'A' && ch <= 'Z') ch = (char)(ch + 32);
        bool letter = (ch >= 'a' && ch <= 'z') || ch == '_';
        if (!letter && n) break;
        if (letter && n < sizeof word - 1) word[n++] = ch;
    }
    word[n] = 0;
    size_t i;
    json_t *v;
    bool valid = false;
    json_array_foreach(choices, i, v) valid |= n && strcmp(json_string_value(v), word) == 0;
    s->right = n && strcmp(json_string_value(c->answer), word) == 0;
    set_valid(s, valid);
    return 0;
}

/* Returns the length of "[digits]" at p; 0: none. */
static size_t cite_at(const char *p, size_t n) {
    size_t k = 1;
    if (!n || *p != '[') return 0;
    while (k < n && is_digit(p[k])) k++;
    return k > 1 && k < n && p[k] == ']' ? k + 1 : 0;
}

static int citation(const struct check *c, struct score *s, struct err *e) {
    const json_t *source = json_object_get(c->check, "source");
    int rc = strings(c->answer, "answer", e);
    if (!rc && !json_is_integer(source)) rc = bad_item(e, "source", "an integer");
    if (rc) return rc;
    struct buf want;
    buf_init(&want, 64);
    buf_printf(&want, "[%lld]", (long long)json_integer_value(source));
    bool all = true, any = false;
    for (size_t i = 0; i < c->text.n; i++) {
        size_t k = cite_at(c->text.p + i, c->text.n - i);
        if (!k) continue;
        any = true;
        all &= k == want.n && memcmp(c->text.p + i, want.p, k) == 0;
    }
    buf_fini(&want);
    set_valid(s, count_matches(&c->normal, c->answer, true) > 0);
    s->right = s->valid && any && all;
    return 0;
}

static int refusal(const struct check *c, struct score *s, struct err *e) {
    int rc = strings(c->answer, "answer", e);
    size_t i;
    json_t *v;
    if (rc) return rc;
    json_array_foreach(c->answer, i, v) s->right |=
        has(&c->normal, json_string_value(v), json_string_length(v));
    return 0;
}

static int toolcall(const struct check *c, struct score *s, struct err *e) {
    const json_t *tools = json_object_get(c->item, "tools");
    if (!json_is_array(c->answer)) return bad_item(e, "answer", "a list of calls");
    bool well_formed;
    json_t *calls = score_calls(c->text.p, c->text.n, &well_formed);
    if (!calls) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    set_valid(s, well_formed && score_calls_valid(calls, tools));
    s->right = s->valid && score_calls_right(calls, c->answer);
    json_decref(calls);
    return 0;
}

static int json_schema(const struct check *c, struct score *s, struct err *e) {
    const json_t *schema = json_object_get(c->check, "schema");
    if (!json_is_object(schema) || !c->answer) return bad_item(e, "schema", "an object");
    json_t *v = parse(c->text);
    set_valid(s, v && !json_is_null(v) && score_schema(v, schema));
    s->right = s->valid && same_value(v, c->answer);
    json_decref(v);
    return 0;
}

static bool repeats(const json_t *list, size_t i) {
    for (size_t k = 0; k < i; k++)
        if (json_equal(json_array_get(list, k), json_array_get(list, i))) return true;
    return false;
}

static int array(const struct check *c, struct score *s, struct err *e) {
    const json_t *n = json_object_get(c->check, "n"), *part = json_object_get(c->check, "has");
    if (!json_is_integer(n) || !json_is_string(part)) return bad_item(e, "n, has", "both");
    json_t *v = parse(c->text), *item;
    size_t i;
    bool valid = json_is_array(v);
    json_array_foreach(v, i, item) valid &= json_is_string(item);
    bool right = valid && (json_int_t)json_array_size(v) == json_integer_value(n);
    if (right) { /* the list is as short as the item asks, so comparing all pairs is cheap */
        json_array_foreach(v, i, item) {
            struct buf b = normal_of(json_string_value(item), json_string_length(item));
            right &= !repeats(v, i) && has(&b, json_string_value(part), json_string_length(part));
            buf_fini(&b);
        }
    }
    set_valid(s, valid);
    s->right = right;
    json_decref(v);
    return 0;
}

static int verdict(const struct check *c, struct score *s, struct err *e) {
    static const char no[] = "\\boxed{incorrect}", yes[] = "\\boxed{correct}";
    const json_t *steps = json_object_get(c->check, "steps");
    int rc = strings(steps, "steps", e);
    if (!rc && !json_is_string(c->answer)) rc = bad_item(e, "answer", "yes or no");
    if (rc) return rc;
    size_t n_box = 0, n_no = 0;
    bool same = true;
    for (size_t i = 0; i < c->text.n; i++) {
        size_t left = c->text.n - i;
        bool is_no = left >= sizeof no - 1 && memcmp(c->text.p + i, no, sizeof no - 1) == 0;
        bool is_yes = left >= sizeof yes - 1 && memcmp(c->text.p + i, yes, sizeof yes - 1) == 0;
        if (!is_no && !is_yes) continue;
        const char *want = json_string_value(json_array_get(steps, n_box++));
        same &= want && strcmp(want, is_no ? "incorrect" : "correct") == 0;
        n_no += is_no;
    }
    set_valid(s, same && n_box == json_array_size(steps));
    s->is_verdict = true;
    s->wants_yes = strcmp(json_string_value(c->answer), "yes") == 0;
    s->right = n_box && s->wants_yes == (n_no == 0);
    return 0;
}

static int copy(const struct check *c, struct score *s, struct err *e) {
    if (!json_is_string(c->answer)) return bad_item(e, "answer", "a string");
    struct slice want =
        stripped((struct slice){json_string_value(c->answer), json_string_length(c->answer)});
    s->right = want.n == c->text.n && memcmp(want.p, c->text.p, want.n) == 0;
    return 0;
}

/* Searches the whole visible text, ignoring case. The number of steps is limited, because the pattern comes from a
 * file. */
static int regex(const struct check *c, struct score *s, struct err *e) {
    if (!json_is_string(c->answer)) return bad_item(e, "answer", "a regular expression");
    int code;
    PCRE2_SIZE at;
    pcre2_code *re =
        pcre2_compile((PCRE2_SPTR)json_string_value(c->answer), json_string_length(c->answer),
                      PCRE2_CASELESS | PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    if (!re) return bad_item(e, "answer", "a regular expression");
    pcre2_match_data *m = pcre2_match_data_create(1, NULL);
    pcre2_match_context *limits = pcre2_match_context_create(NULL);
    int rc = m && limits ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) {
        pcre2_set_match_limit(limits, 1000000);
        s->right = pcre2_match(re, (PCRE2_SPTR)c->text.p, c->text.n, 0, 0, m, limits) >= 0;
    }
    pcre2_match_context_free(limits);
    pcre2_match_data_free(m);
    pcre2_code_free(re);
    return rc;
}

/* Counts the groups of which at least one text occurs; a group lists different texts for one fact. */
static int count_groups(const struct check *c, const json_t *groups, size_t *n, struct err *e) {
    size_t i;
    json_t *group;
    json_array_foreach(groups, i, group) {
        int rc = strings(group, "all", e);
        if (rc) return rc;
        *n += count_matches(&c->normal, group, true) > 0;
    }
    return 0;
}

/* Passes if at least `least` of the facts occur (default: all) and none of the wrong texts does. */
static int facts(const struct check *c, struct score *s, struct err *e) {
    const json_t *all = json_object_get(c->check, "all"), *none = json_object_get(c->check, "none");
    const json_t *least = json_object_get(c->check, "least");
    size_t n = 0, want = json_array_size(all);
    if (!want) return bad_item(e, "all", "a list of lists of texts");
    if (least && (!json_is_integer(least) || json_integer_value(least) < 1 ||
                  json_integer_value(least) > (json_int_t)want))
        return bad_item(e, "least", "1 to the number of facts");
    if (least) want = (size_t)json_integer_value(least);
    int rc = count_groups(c, all, &n, e);
    if (!rc && none) rc = strings(none, "none", e);
    if (!rc) s->right = n >= want && count_matches(&c->normal, none, true) == 0;
    return rc;
}

/* The host of the evaluation runs the tests in a sandbox. */
static int python(const struct check *c, struct score *s, struct err *e) {
    if (!json_is_string(json_object_get(c->check, "tests")))
        return bad_item(e, "tests", "a program of assertions");
    s->is_program = true;
    return 0;
}

static const struct kind {
    const char *name;
    kind_fn *fn;
} kinds[] = {{"exact", exact},       {"number", number},
             {"choice", choice},     {"contains", contains},
             {"citation", citation}, {"refusal", refusal},
             {"toolcall", toolcall}, {"json_schema", json_schema},
             {"array", array},       {"verdict", verdict},
             {"copy", copy},         {"regex", regex},
             {"facts", facts},       {"python", python}};

int score_answer(const json_t *item, const char *text, size_t n, struct score *out, struct err *e) {
    struct check c = {.item = item, .check = json_object_get(item, "check")};
    const char *name = json_string_value(json_object_get(c.check, "kind"));
    *out = (struct score){.right = false};
    if (!name) return bad_item(e, "kind", "a string");
    c.answer = json_object_get(c.check, "answer");
    c.text = score_visible(text, n);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0) {
            c.normal = normal_of(c.text.p, c.text.n);
            int rc = c.normal.failed ? err_set(e, c.normal.failed, "answer: too long")
                                     : kinds[i].fn(&c, out, e);
            buf_fini(&c.normal);
            return rc;
        }
    return err_set(e, CHIMERE_EUNSUPPORTED, "check.kind: no kind named '%s'", name);
}
