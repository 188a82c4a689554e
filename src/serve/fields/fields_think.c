/* fields_think.c: the field reasoning_effort, and "think": how long to think, in more detail than the APIs' own fields.
 *
 *   "think": true | false | a name of think_preset ("quality") | {
 *       "mode": a name,             the settings that the others change
 *       "budget_tokens": n,         thinking tokens at most
 *       "stop_when_sure": true | certainty, 0..1
 *       "extend": n, "unsure": certainty,
 *       "suppress": true | certainty,
 *       "window": n, "min_tokens": n, "language": "en" | "fr"}
 *
 * "certainty" is another name of the number in stop_when_sure. Each error begins with the field's name. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "serve/fields/fields_impl.h"

/* ---- reasoning_effort ---- */

static const struct {
    const char *name;
    bool think;
    int32_t budget; /* tokens; -1: no limit */
} efforts[] = {
    {"none", false, -1}, {"minimal", true, 512}, {"low", true, 2048}, {"medium", true, 8192},
    {"high", true, -1},  {"xhigh", true, -1},    {"max", true, -1},
};

int fields_effort(struct fields *f, const json_t *v, const char *name, struct err *e) {
    const char *s = json_string_value(v);
    for (size_t i = 0; s && i < sizeof efforts / sizeof *efforts; i++) {
        if (strcmp(s, efforts[i].name) != 0) continue;
        f->request->think = efforts[i].think;
        f->think_named = true;
        if (f->request->sampling.think_budget < 0)
            f->request->sampling.think_budget = efforts[i].budget;
        return fields_context(f->request, "reasoning_effort", (json_t *)v, e);
    }
    return fields_expected(e, name, "none, minimal, low, medium, high, xhigh or max");
}

void fields_put_budgets(struct buf *out) {
    const char *sep = "{";
    for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++) {
        if (efforts[i].budget < 0) continue;
        buf_printf(out, "%s\"%s\":%d", sep, efforts[i].name, efforts[i].budget);
        sep = ",";
    }
    buf_putc(out, '}');
}

/* ---- think ---- */

struct reader {
    struct fields *f;
    struct think_control *c;
};

typedef int read_fn(struct reader *r, const json_t *v, const char *name, struct err *e);

static int read_share(const json_t *v, const char *name, float *out, struct err *e) {
    double x = json_number_value(v);
    if (!json_is_number(v) || !(x >= 0 && x <= 1))
        return err_set(e, CHIMERE_EINVAL, "%s: expected a number from 0 to 1", name);
    *out = (float)x;
    return 0;
}

static int read_count(const json_t *v, const char *name, int32_t low, int32_t high, int32_t *out,
                      struct err *e) {
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || n < low || n > high)
        return err_set(e, CHIMERE_EINVAL, "%s: expected a whole number from %d to %d", name, low,
                       high);
    *out = (int32_t)n;
    return 0;
}

/* Reads true (the value of "quality"), false (never), or a certainty. */
static int read_switch(const json_t *v, const char *name, float on, float *out, struct err *e) {
    if (json_is_number(v)) return read_share(v, name, out, e);
    if (!json_is_boolean(v))
        return err_set(e, CHIMERE_EINVAL, "%s: expected true, false or a number from 0 to 1", name);
    *out = json_is_true(v) ? on : 2;
    return 0;
}

static int preset(struct reader *r, const json_t *v, const char *name, struct err *e) {
    const char *s = json_string_value(v);
    if (!s || !think_preset(s, &r->f->request->think, r->c))
        return err_set(e, CHIMERE_EINVAL,
                       "%s: expected fast, think, budget, cgrs, extend, quality or ultra", name);
    return 0;
}

static void quality(struct think_control *c) {
    bool think;
    think_defaults(c);
    think_preset("quality", &think, c);
}

static int t_budget(struct reader *r, const json_t *v, const char *name, struct err *e) {
    return read_count(v, name, 0, INT32_MAX, &r->f->request->sampling.think_budget, e);
}
static int t_stop(struct reader *r, const json_t *v, const char *name, struct err *e) {
    struct think_control q;
    quality(&q);
    /* a certainty that was set before stays */
    float on = r->c->stop <= 1 ? r->c->stop : q.stop;
    return read_switch(v, name, on, &r->c->stop, e);
}
static int t_certainty(struct reader *r, const json_t *v, const char *name, struct err *e) {
    return read_share(v, name, &r->c->stop, e);
}
static int t_suppress(struct reader *r, const json_t *v, const char *name, struct err *e) {
    struct think_control q;
    quality(&q);
    return read_switch(v, name, q.suppress, &r->c->suppress, e);
}
static int t_extend(struct reader *r, const json_t *v, const char *name, struct err *e) {
    bool think;
    struct think_control ultra;
    think_preset("ultra", &think, &ultra);
    if (r->c->unsure <= 0) r->c->unsure = ultra.unsure;
    return read_count(v, name, 0, THINK_MAX_EXTEND, &r->c->extend, e);
}
static int t_unsure(struct reader *r, const json_t *v, const char *name, struct err *e) {
    return read_share(v, name, &r->c->unsure, e);
}
static int t_window(struct reader *r, const json_t *v, const char *name, struct err *e) {
    return read_count(v, name, 1, THINK_MAX_WINDOW, &r->c->window, e);
}
static int t_min(struct reader *r, const json_t *v, const char *name, struct err *e) {
    return read_count(v, name, 0, 1 << 20, &r->c->min_tokens, e);
}
static int t_language(struct reader *r, const json_t *v, const char *name, struct err *e) {
    const char *s = json_string_value(v);
    if (s && strcmp(s, "en") == 0) r->c->langs = THINK_EN;
    else if (s && strcmp(s, "fr") == 0) r->c->langs = THINK_FR;
    else return err_set(e, CHIMERE_EINVAL, "%s: expected en or fr", name);
    return 0;
}

/* Applied in this order, independent of the order in the request. */
static const struct {
    const char *name;
    read_fn *read;
} rows[] = {{"mode", preset},           {"budget_tokens", t_budget}, {"certainty", t_certainty},
            {"stop_when_sure", t_stop}, {"extend", t_extend},        {"unsure", t_unsure},
            {"suppress", t_suppress},   {"window", t_window},        {"min_tokens", t_min},
            {"language", t_language}};
enum { N_ROW = sizeof rows / sizeof *rows };

static int refuse_others(json_t *v, const char *name, struct err *e) {
    const char *key;
    json_t *x;
    json_object_foreach(v, key, x) {
        size_t i = 0;
        while (i < N_ROW && strcmp(rows[i].name, key) != 0) i++;
        if (i == N_ROW)
            return err_set(e, CHIMERE_EUNSUPPORTED, "%s.%.40s: unknown field", name, key);
    }
    return 0;
}

int fields_think(struct fields *f, json_t *v, const char *name, struct err *e) {
    struct reader r = {f, &f->request->sampling.think};
    f->think_named = true;
    if (json_is_boolean(v)) {
        f->request->think = json_is_true(v);
        return 0;
    }
    if (json_is_string(v)) return preset(&r, v, name, e);
    if (!json_is_object(v))
        return err_set(e, CHIMERE_EINVAL, "%s: expected true, false, a mode or an object", name);
    f->request->think = true;
    int rc = refuse_others(v, name, e);
    for (size_t i = 0; i < N_ROW && !rc; i++) {
        char where[64];
        json_t *x = json_object_get(v, rows[i].name);
        if (!x || json_is_null(x)) continue;
        snprintf(where, sizeof where, "%s.%s", name, rows[i].name);
        rc = rows[i].read(&r, x, where, e);
    }
    return rc;
}
