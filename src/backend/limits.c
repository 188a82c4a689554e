#include "backend/limits.h"

/* Defaults chosen by hand or measured once. Route: the rules file sets it. Web: of 60 facts that chimere-nano was not
 * taught, 50 are above 0.3; of 60 that it was taught, 7. The limit 0.9 caught 20 and 2. */
const struct limits_row limits_table[LIMIT_N] = {
    [LIMIT_ROUTE] = {"route", 0, 0, 1},      [LIMIT_EASY] = {"easy", 0.30, 0, 1},
    [LIMIT_HARD] = {"hard", 0.70, 0, 1},     [LIMIT_SURE] = {"sure", 0.45, 0, 10},
    [LIMIT_UNSURE] = {"unsure", 0.9, 0, 10}, [LIMIT_WEB] = {"web", 0.3, 0, 10},
};

struct limits limits_default(void) {
    struct limits l = {.route_of = 0};
    for (int i = 0; i < LIMIT_N; i++) l.v[i] = limits_table[i].usual;
    return l;
}

json_t *limits_to_json(const struct limits *l) {
    json_t *v = json_object();
    for (int i = 0; v && i < LIMIT_N; i++)
        if (json_object_set_new(v, limits_table[i].name, json_real(l->v[i]))) {
            json_decref(v);
            return NULL;
        }
    return v ? json_pack("{s:i,s:o,s:f}", "version", 1, "limits", v, "route_of", l->route_of)
             : NULL;
}

int limits_from_json(struct limits *out, const json_t *o, struct err *e) {
    const json_t *v = json_object_get(o, "limits"), *of = json_object_get(o, "route_of");
    if (json_integer_value(json_object_get(o, "version")) != 1 || !json_is_number(of))
        return err_set(e, CHIMERE_EFORMAT, "expected limits of version 1");
    out->route_of = json_number_value(of);
    for (int i = 0; i < LIMIT_N; i++) {
        const struct limits_row *row = &limits_table[i];
        const json_t *x = json_object_get(v, row->name);
        out->v[i] = json_number_value(x);
        if (!json_is_number(x) || !(out->v[i] >= row->low && out->v[i] <= row->high))
            return err_set(e, CHIMERE_EFORMAT, "limit %s: expected %g to %g", row->name, row->low,
                           row->high);
    }
    if (out->v[LIMIT_EASY] > out->v[LIMIT_HARD] || out->v[LIMIT_SURE] > out->v[LIMIT_UNSURE])
        return err_set(e, CHIMERE_EFORMAT, "limits: a lower one is above its upper one");
    return 0;
}

double limits_route(const struct limits *l, double of) {
    bool replaces = l->v[LIMIT_ROUTE] > 0 && of > 0 && l->route_of == of;
    return replaces ? l->v[LIMIT_ROUTE] : of;
}
