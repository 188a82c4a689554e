/* grammar_schema_case.c: what a case, a list of plain constraints, requires of each type of value. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "text/grammar/grammar_case_impl.h"

void literal_push(struct schema *s, struct grammar_vec *v, const json_t *json, bool negate) {
    struct literal l = {json, negate};
    for (uint32_t i = 0; i < v->n; i++)
        if (memcmp((struct literal *)v->p + i, &l, sizeof l) == 0) return;
    uint32_t i = grammar_vec_add(&s->b, v, 1, sizeof l, "constraints on one value", 1 << 20);
    if (i != GRAMMAR_NONE) ((struct literal *)v->p)[i] = l;
}

static void raise_bound(struct schema *s, struct number_spec *spec, const struct item *it) {
    struct decimal d;
    bool is_min = it->kind == I_MIN;
    if (!decimal_from_json(it->json, &d)) {
        grammar_fail(&s->b, CHIMERE_EUNSUPPORTED, "schema: a number has more than %d digits",
                     DECIMAL_MAX_DIGIT);
        return;
    }
    bool has = is_min ? spec->has_min : spec->has_max;
    struct decimal *now = is_min ? &spec->min : &spec->max;
    bool *excluded = is_min ? &spec->min_excluded : &spec->max_excluded;
    int c = has ? decimal_compare(&d, now) : 0;
    if (!has || (is_min ? c > 0 : c < 0)) *now = d, *excluded = it->negate;
    else if (c == 0) *excluded |= it->negate;
    if (is_min) spec->has_min = true;
    else spec->has_max = true;
}

static void add_multiple(struct schema *s, struct number_spec *spec, const struct item *it) {
    struct decimal d;
    if (json_number_value(it->json) <= 0)
        grammar_fail(&s->b, CHIMERE_EFORMAT,
                     "schema: keyword 'multipleOf': expected a number above 0");
    else if (!decimal_from_json(it->json, &d) || !number_add_multiple(spec, &d, it->negate))
        grammar_fail(
            &s->b, CHIMERE_EUNSUPPORTED,
            "schema: keyword 'multipleOf': multiples whose digits exceed %d, or two of them "
            "negated, are not supported",
            NUMBER_MAX_MULTIPLE);
}

static void at_least(uint32_t *x, uint32_t n) {
    if (n > *x) *x = n;
}
static void at_most(uint32_t *x, uint32_t n) {
    if (n < *x) *x = n;
}

void case_facts(struct schema *s, const struct item *items, uint32_t n, struct type_facts *out) {
    *out = (struct type_facts){
        .types = T_ANY, .max_length = UINT32_MAX, .max_items = UINT32_MAX, .max_props = UINT32_MAX};
    for (uint32_t i = 0; i < n; i++)
        if (items[i].kind == I_TYPES) out->types &= items[i].n;
    for (uint32_t i = 0; i < n && !s->b.rc; i++) {
        const struct item *it = &items[i];
        switch ((enum item_kind)it->kind) {
        case I_MIN:
        case I_MAX:
            if (out->types & T_NUM) raise_bound(s, &out->number, it);
            break;
        case I_MULTIPLE:
            if (out->types & T_NUM) add_multiple(s, &out->number, it);
            break;
        case I_MIN_LENGTH: at_least(&out->min_length, it->n); break;
        case I_MAX_LENGTH: at_most(&out->max_length, it->n); break;
        case I_MIN_ITEMS: at_least(&out->min_items, it->n); break;
        case I_MAX_ITEMS: at_most(&out->max_items, it->n); break;
        case I_MIN_PROPS: at_least(&out->min_props, it->n); break;
        case I_MAX_PROPS: at_most(&out->max_props, it->n); break;
        default: break;
        }
    }
    out->number.is_int = out->types & T_INT;
    out->number.is_fraction = out->types & T_FRAC;
}

/* ---- strings ---- */

static struct slice string_slice(const json_t *j) {
    return (struct slice){json_string_value(j), json_string_length(j)};
}

static void texts_dfa(struct schema *s, const json_t *holder, struct dfa *out) {
    size_t n = json_is_array(holder) ? json_array_size(holder) : 1, k = 0;
    struct slice *texts = mem_alloc_array(n + 1, sizeof *texts);
    if (!texts) grammar_nomem(&s->b);
    for (size_t i = 0; texts && i < n; i++) {
        const json_t *v =
            json_is_array(holder) ? json_array_get(holder, i) : json_object_get(holder, "const");
        if (json_is_string(v)) texts[k++] = string_slice(v);
    }
    if (texts) dfa_from_texts(&s->b, texts, (uint32_t)k, out);
    mem_free(texts);
}

static void format_dfa(struct schema *s, const json_t *name, struct type_facts *facts,
                       struct dfa *out) {
    const char *pattern = schema_format_pattern(json_string_value(name));
    char what[120];
    snprintf(what, sizeof what, "schema: format '%.60s'", json_string_value(name));
    dfa_from_regex(&s->b, (struct slice){pattern, strlen(pattern)}, false, what, out);
    if (strcmp(json_string_value(name), "hostname") == 0) {
        static const char encoded[] = "(?:^|\\.)[xX][nN]--";
        struct dfa all = *out, bad;
        dfa_from_regex(&s->b, (struct slice){encoded, sizeof encoded - 1}, true, what, &bad);
        dfa_intersect(&s->b, &all, &bad, true, out);
        dfa_free(&all), dfa_free(&bad);
        if (facts) at_most(&facts->max_length, 253);
    }
}

static void item_dfa(struct schema *s, const struct item *it, struct type_facts *facts,
                     struct dfa *out) {
    *out = (struct dfa){.n_state = 0};
    if (it->kind == I_TEXTS) texts_dfa(s, it->json, out);
    else if (it->kind == I_PATTERN)
        dfa_from_regex(&s->b, string_slice(it->json), true, "schema: keyword 'pattern'", out);
    else format_dfa(s, it->json, it->negate ? NULL : facts, out);
    if (it->negate && it->kind == I_FORMAT && strcmp(json_string_value(it->json), "hostname") == 0)
        grammar_fail(
            &s->b, CHIMERE_EUNSUPPORTED,
            "schema: keyword 'format': 'hostname' is not supported where its negation is needed");
}

static void any_text(struct schema *s, struct dfa *out) {
    dfa_from_length(&s->b, 0, UINT32_MAX, out);
}

void case_string_dfa(struct schema *s, const struct item *items, uint32_t n,
                     struct type_facts *facts, bool *has_dfa, struct dfa *out) {
    *has_dfa = false;
    *out = (struct dfa){.n_state = 0};
    for (uint32_t i = 0; i < n && !s->b.rc; i++) {
        struct dfa one, both;
        if (items[i].kind != I_PATTERN && items[i].kind != I_FORMAT && items[i].kind != I_TEXTS)
            continue;
        item_dfa(s, &items[i], facts, &one);
        if (!*has_dfa && !items[i].negate) {
            *out = one;
        } else {
            if (!*has_dfa) any_text(s, out);
            dfa_intersect(&s->b, out, &one, items[i].negate, &both);
            dfa_free(out), dfa_free(&one);
            *out = both;
        }
        *has_dfa = true;
    }
}

/* ---- arrays ---- */

uint32_t case_n_prefix(struct schema *s, const struct item *items, uint32_t n) {
    uint32_t max = 0;
    (void)s;
    for (uint32_t i = 0; i < n; i++) {
        if (items[i].kind == I_ITEM) at_least(&max, items[i].n + 1);
        if (items[i].kind == I_ARRAY)
            at_least(&max,
                     (uint32_t)json_array_size(json_object_get(items[i].json, "prefixItems")));
    }
    return max;
}

const json_t *case_special(struct schema *s, const struct item *items, uint32_t n,
                           enum item_kind kind) {
    const json_t *found = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (items[i].kind != kind || items[i].json == found) continue;
        if (found && kind == I_CONTAINS)
            schema_refuse(s, CHIMERE_EUNSUPPORTED, items[i].json, "contains",
                          "two of them are not supported");
        found = items[i].json;
    }
    return found;
}

void case_item_literals(struct schema *s, const struct item *items, uint32_t n, uint32_t i,
                        struct grammar_vec *out) {
    for (uint32_t k = 0; k < n; k++) {
        const struct item *it = &items[k];
        if (it->kind == I_ITEM && it->n == i) literal_push(s, out, it->json, it->negate);
        if (it->kind != I_ARRAY) continue;
        const json_t *prefix = json_object_get(it->json, "prefixItems");
        const json_t *rest = json_object_get(it->json, "items");
        if (i < json_array_size(prefix)) literal_push(s, out, json_array_get(prefix, i), false);
        else if (rest) literal_push(s, out, rest, false);
    }
}

/* ---- objects ---- */

static bool same_name(const struct item *it, struct slice name) {
    return it->n_name == name.n && memcmp(it->name, name.p, name.n) == 0;
}

bool case_is_required(const struct item *items, uint32_t n, struct slice name) {
    for (uint32_t i = 0; i < n; i++)
        if (items[i].kind == I_REQUIRED && same_name(&items[i], name)) return true;
    return false;
}

static void name_push(struct schema *s, struct grammar_vec *v, struct map *seen, const char *p,
                      size_t n) {
    if (map_find(seen, p, n, &(uint32_t){0})) return;
    uint32_t i = grammar_vec_add(&s->b, v, 1, sizeof(struct slice), "properties in one object",
                                 GRAMMAR_MAX_PROP);
    if (i == GRAMMAR_NONE) return;
    ((struct slice *)v->p)[i] = (struct slice){p, n};
    if (map_put(seen, p, n, 1) < 0) grammar_nomem(&s->b);
}

void case_names(struct schema *s, const struct item *items, uint32_t n, struct grammar_vec *out) {
    const char *key;
    size_t n_key;
    json_t *child;
    struct map seen;
    map_init(&seen, (size_t)64 << 20);
    for (uint32_t i = 0; i < n && !s->b.rc; i++) {
        const struct item *it = &items[i];
        if (it->kind == I_REQUIRED || it->kind == I_FORBIDDEN || it->kind == I_PROP)
            name_push(s, out, &seen, it->name, it->n_name);
        if (it->kind == I_OBJECT)
            json_object_keylen_foreach(json_object_get(it->json, "properties"), key, n_key, child)
                name_push(s, out, &seen, key, n_key);
    }
    map_fini(&seen);
}

bool case_name_matches(struct schema *s, const char *pattern, struct slice name) {
    struct dfa d;
    dfa_from_regex(&s->b, (struct slice){pattern, strlen(pattern)}, true,
                   "schema: keyword 'patternProperties'", &d);
    bool matches = !s->b.rc && dfa_matches(&d, name);
    dfa_free(&d);
    return matches;
}

void case_prop_literals(struct schema *s, const struct item *items, uint32_t n, struct slice name,
                        struct grammar_vec *out) {
    const char *pattern;
    json_t *child;
    for (uint32_t i = 0; i < n && !s->b.rc; i++) {
        const struct item *it = &items[i];
        if (it->kind == I_PROP && same_name(it, name)) literal_push(s, out, it->json, it->negate);
        if (it->kind == I_FORBIDDEN && same_name(it, name))
            literal_push(s, out, json_false(), false);
        if (it->kind != I_OBJECT) continue;
        bool is_named = false;
        const json_t *one =
            json_object_getn(json_object_get(it->json, "properties"), name.p, name.n);
        if (one) literal_push(s, out, one, false), is_named = true;
        json_object_foreach(json_object_get(it->json, "patternProperties"), pattern, child) {
            if (case_name_matches(s, pattern, name))
                literal_push(s, out, child, false), is_named = true;
        }
        const json_t *rest = json_object_get(it->json, "additionalProperties");
        if (!is_named && rest) literal_push(s, out, rest, false);
    }
}

struct name_union {
    struct dfa all;
    bool has_any;
};

/* Adds the strings of one case to the union. */
static void unite(struct schema *s, void *arg, const struct item *items, uint32_t n) {
    struct name_union *u = arg;
    struct type_facts facts;
    struct dfa d, length, any, not_u, not_d, neither;
    bool has_dfa;
    case_facts(s, items, n, &facts);
    if (!(facts.types & T_STR) || facts.min_length > facts.max_length) return;
    case_string_dfa(s, items, n, &facts, &has_dfa, &d);
    if (!has_dfa) dfa_from_length(&s->b, facts.min_length, facts.max_length, &d);
    else if (facts.min_length > 0 || facts.max_length != UINT32_MAX) {
        struct dfa both;
        dfa_from_length(&s->b, facts.min_length, facts.max_length, &length);
        dfa_intersect(&s->b, &d, &length, false, &both);
        dfa_free(&d), dfa_free(&length);
        d = both;
    }
    if (!u->has_any) {
        u->all = d;
        u->has_any = true;
        return;
    }
    any_text(s, &any);
    dfa_intersect(&s->b, &any, &u->all, true, &not_u);
    dfa_intersect(&s->b, &not_u, &d, true, &neither);
    dfa_free(&u->all), dfa_free(&d);
    dfa_intersect(&s->b, &any, &neither, true, &u->all);
    not_d = any;
    dfa_free(&not_d), dfa_free(&not_u), dfa_free(&neither);
}

void case_names_dfa(struct schema *s, const struct item *items, uint32_t n, bool *has_dfa,
                    struct dfa *out) {
    struct grammar_vec lits = {NULL, 0, 0};
    struct name_union u = {{.n_state = 0}, false};
    for (uint32_t i = 0; i < n; i++)
        if (items[i].kind == I_NAMES) literal_push(s, &lits, items[i].json, items[i].negate);
    *has_dfa = lits.n > 0;
    if (lits.n) schema_cases(s, lits.p, lits.n, unite, &u);
    *out = u.all;
    mem_free(lits.p);
}

/* ---- emptiness ---- */

static bool numbers_are_empty(const struct type_facts *f) {
    return !(f->types & T_NUM) || number_is_empty(&f->number);
}

static bool strings_are_empty(struct schema *s, const struct item *items, uint32_t n,
                              struct type_facts *f) {
    struct dfa d;
    bool has_dfa;
    if (!(f->types & T_STR) || f->min_length > f->max_length) return true;
    case_string_dfa(s, items, n, f, &has_dfa, &d);
    bool empty = has_dfa && dfa_is_empty(&d) && !s->b.rc;
    dfa_free(&d);
    return empty;
}

static bool literals_are_empty(struct schema *s, struct grammar_vec *lits, int depth) {
    bool empty = schema_is_empty(s, lits->p, lits->n, depth);
    mem_free(lits->p);
    return empty;
}

static bool arrays_are_empty(struct schema *s, const struct item *items, uint32_t n,
                             const struct type_facts *f, int depth) {
    if (!(f->types & T_ARR) || f->min_items > f->max_items) return true;
    uint32_t n_prefix = case_n_prefix(s, items, n);
    for (uint32_t i = 0; i < f->min_items && i <= n_prefix && i < 64 && !s->b.rc; i++) {
        struct grammar_vec lits = {NULL, 0, 0};
        case_item_literals(s, items, n, i, &lits);
        if (literals_are_empty(s, &lits, depth)) return true;
    }
    return false;
}

static bool objects_are_empty(struct schema *s, const struct item *items, uint32_t n,
                              const struct type_facts *f, int depth) {
    uint32_t n_required = 0;
    if (!(f->types & T_OBJ) || f->min_props > f->max_props) return true;
    for (uint32_t i = 0; i < n && !s->b.rc; i++) {
        struct slice name = {items[i].name, items[i].n_name};
        struct grammar_vec lits = {NULL, 0, 0};
        if (items[i].kind != I_REQUIRED || case_is_required(items, i, name)) continue;
        n_required++;
        case_prop_literals(s, items, n, name, &lits);
        if (literals_are_empty(s, &lits, depth)) return true;
    }
    return n_required > f->max_props;
}

bool case_is_empty(struct schema *s, const struct item *items, uint32_t n, int depth) {
    struct type_facts f;
    case_facts(s, items, n, &f);
    return !s->b.rc && !(f.types & (T_NULL | T_BOOL)) && numbers_are_empty(&f) &&
           strings_are_empty(s, items, n, &f) && arrays_are_empty(s, items, n, &f, depth) &&
           objects_are_empty(s, items, n, &f, depth);
}
