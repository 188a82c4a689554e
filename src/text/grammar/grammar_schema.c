/* grammar_schema.c: parses a schema: keywords and their values, references, constants; and the entry functions.
 *
 * There is one row per keyword that asserts something or whose value is checked. Keywords without a row are
 * annotations, as in draft 2020-12. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/str.h"
#include "text/grammar/grammar_schema_impl.h"

enum value_kind {
    V_ANY,
    V_COUNT,
    V_NUMBER,
    V_STRING,
    V_BOOL,
    V_SCHEMA,
    V_SCHEMAS,
    V_SCHEMA_MAP,
    V_ARRAY,
    V_OBJECT
};

static const struct keyword_row {
    const char *name;
    uint8_t keyword, value;
} keywords[] = {
    {"type", K_TYPE, V_ANY},
    {"enum", K_ENUM, V_ARRAY},
    {"const", K_CONST, V_ANY},
    {"minimum", K_MINIMUM, V_NUMBER},
    {"maximum", K_MAXIMUM, V_NUMBER},
    {"exclusiveMinimum", K_EXCL_MINIMUM, V_NUMBER},
    {"exclusiveMaximum", K_EXCL_MAXIMUM, V_NUMBER},
    {"multipleOf", K_MULTIPLE_OF, V_NUMBER},
    {"minLength", K_MIN_LENGTH, V_COUNT},
    {"maxLength", K_MAX_LENGTH, V_COUNT},
    {"pattern", K_PATTERN, V_STRING},
    {"format", K_FORMAT, V_STRING},
    {"minItems", K_MIN_ITEMS, V_COUNT},
    {"maxItems", K_MAX_ITEMS, V_COUNT},
    {"prefixItems", K_PREFIX_ITEMS, V_SCHEMAS},
    {"items", K_ITEMS, V_SCHEMA},
    {"uniqueItems", K_UNIQUE_ITEMS, V_BOOL},
    {"minProperties", K_MIN_PROPS, V_COUNT},
    {"maxProperties", K_MAX_PROPS, V_COUNT},
    {"properties", K_PROPERTIES, V_SCHEMA_MAP},
    {"patternProperties", K_PATTERN_PROPS, V_SCHEMA_MAP},
    {"additionalProperties", K_ADDITIONAL_PROPS, V_SCHEMA},
    {"required", K_REQUIRED, V_ARRAY},
    {"propertyNames", K_PROP_NAMES, V_SCHEMA},
    {"dependentRequired", K_DEP_REQUIRED, V_OBJECT},
    {"dependentSchemas", K_DEP_SCHEMAS, V_SCHEMA_MAP},
    {"allOf", K_ALL_OF, V_SCHEMAS},
    {"anyOf", K_ANY_OF, V_SCHEMAS},
    {"oneOf", K_ONE_OF, V_SCHEMAS},
    {"not", K_NOT, V_SCHEMA},
    {"if", K_IF, V_SCHEMA},
    {"then", K_THEN_ELSE, V_SCHEMA},
    {"else", K_THEN_ELSE, V_SCHEMA},
    {"$ref", K_REF, V_STRING},
    {"contains", K_CONTAINS, V_SCHEMA},
    {"minContains", K_CONTAINS_COUNT, V_COUNT},
    {"maxContains", K_CONTAINS_COUNT, V_COUNT},
    {"unevaluatedProperties", K_UNEVALUATED, V_SCHEMA},
    {"unevaluatedItems", K_UNEVALUATED, V_SCHEMA},
    {"$dynamicRef", K_UNSUPPORTED, V_ANY},
    {"$recursiveRef", K_UNSUPPORTED, V_ANY},
    {"$defs", K_NOTE, V_OBJECT},
    {"definitions", K_NOTE, V_OBJECT},
    {"$schema", K_NOTE, V_STRING},
    {"$id", K_NOTE, V_STRING},
    {"$anchor", K_NOTE, V_STRING},
};

/* ---- errors ---- */

/* Writes the JSON pointer from `at` to `target`; false if target is not below `at`. */
static bool find_path(const json_t *at, const json_t *target, struct buf *path, int depth) {
    const char *key;
    json_t *child;
    size_t i, n = path->n;
    if (at == target) return true;
    if (depth > 200) return false;
    if (json_is_object(at)) {
        json_object_foreach((json_t *)at, key, child) {
            buf_printf(path, "/%s", key);
            if (find_path(child, target, path, depth + 1)) return true;
            buf_cut(path, n);
        }
    } else if (json_is_array(at)) {
        json_array_foreach(at, i, child) {
            buf_printf(path, "/%zu", i);
            if (find_path(child, target, path, depth + 1)) return true;
            buf_cut(path, n);
        }
    }
    return false;
}

void schema_refuse(struct schema *s, int code, const json_t *at, const char *keyword,
                   const char *why) {
    struct buf path;
    if (s->b.rc) return;
    buf_init(&path, 4096);
    bool found = find_path(s->root, at, &path, 0);
    grammar_fail(&s->b, code, "schema: keyword '%.80s' at #%.160s: %.160s", keyword,
                 found && path.p ? path.p : "", why);
    buf_fini(&path);
}

/* ---- keyword values ---- */

bool schema_count(const json_t *v, uint32_t *out) {
    double x = json_number_value(v);
    if (!json_is_number(v) || x < 0 || x != (double)(int64_t)x) return false;
    *out = x >= (double)(UINT32_MAX - 1) ? UINT32_MAX - 1 : (uint32_t)x;
    return true;
}

bool schema_is_one(const json_t *v) { return json_is_object(v) || json_is_boolean(v); }

static bool value_fits(const json_t *v, enum value_kind kind) {
    uint32_t ignored;
    size_t i;
    const char *key;
    json_t *child;
    switch (kind) {
    case V_ANY: return true;
    case V_COUNT: return schema_count(v, &ignored);
    case V_NUMBER: return json_is_number(v);
    case V_STRING: return json_is_string(v);
    case V_BOOL: return json_is_boolean(v);
    case V_SCHEMA: return schema_is_one(v);
    case V_ARRAY: return json_is_array(v);
    case V_OBJECT: return json_is_object(v);
    case V_SCHEMAS:
        json_array_foreach(v, i, child) {
            if (!schema_is_one(child)) return false;
        }
        return json_is_array(v) && json_array_size(v) > 0;
    case V_SCHEMA_MAP:
        json_object_foreach((json_t *)v, key, child) {
            if (!schema_is_one(child)) return false;
        }
        return json_is_object(v);
    }
    return false;
}

static const char *const expected[] = {"",
                                       "expected a count",
                                       "expected a number",
                                       "expected a string",
                                       "expected true or false",
                                       "expected a schema",
                                       "expected a list of schemas",
                                       "expected an object of schemas",
                                       "expected a list",
                                       "expected an object"};

static const struct keyword_row *row_of(const char *name) {
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (strcmp(keywords[i].name, name) == 0) return &keywords[i];
    return NULL;
}

bool schema_is_note(const char *name) {
    const struct keyword_row *row = row_of(name);
    return !row || row->keyword == K_NOTE;
}

enum schema_keyword schema_keyword_of(struct schema *s, const json_t *j, const char *name,
                                      const json_t *v) {
    const struct keyword_row *row = row_of(name);
    if (!row) return K_NOTE;
    if (!value_fits(v, (enum value_kind)row->value))
        schema_refuse(s, CHIMERE_EFORMAT, j, name, expected[row->value]);
    else if (row->keyword == K_UNSUPPORTED)
        schema_refuse(s, CHIMERE_EUNSUPPORTED, j, name, "not supported");
    return (enum schema_keyword)row->keyword;
}

static uint32_t type_named(const char *name) {
    static const struct {
        const char *name;
        uint32_t types;
    } types[] = {{"null", T_NULL},  {"boolean", T_BOOL}, {"integer", T_INT}, {"number", T_NUM},
                 {"string", T_STR}, {"array", T_ARR},    {"object", T_OBJ}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) return types[i].types;
    return 0;
}

uint32_t schema_types(struct schema *s, const json_t *j, const json_t *v) {
    uint32_t types = json_is_string(v) ? type_named(json_string_value(v)) : 0;
    size_t i;
    json_t *one;
    json_array_foreach(v, i, one) {
        uint32_t t = json_is_string(one) ? type_named(json_string_value(one)) : 0;
        types |= t;
        if (!t)
            schema_refuse(s, CHIMERE_EFORMAT, j, "type",
                          "expected null, boolean, integer, number, string, array or object");
    }
    if (!types) schema_refuse(s, CHIMERE_EFORMAT, j, "type", "expected a type or a list of types");
    return types;
}

/* ---- references ---- */

/* Returns the member `token`, also by its name before schema_modern; `next`: the following token, or NULL. */
static const json_t *object_step(const json_t *at, const char *token, const char *next) {
    static const struct {
        const char *old, *now;
    } moved[] = {{"additionalItems", "items"}, {"dependencies", "dependentSchemas"}};
    if (strcmp(token, "items") == 0 && next && *next >= '0' && *next <= '9') token = "prefixItems";
    const json_t *v = json_object_get(at, token);
    for (size_t i = 0; !v && i < sizeof moved / sizeof *moved; i++)
        if (strcmp(moved[i].old, token) == 0) v = json_object_get(at, moved[i].now);
    return v;
}

/* Follows one step of a JSON pointer; `token` is unescaped in place. */
static const json_t *pointer_step(const json_t *at, char *token, const char *next) {
    char *to = token;
    for (char *from = token; *from; from++) {
        unsigned hex;
        if (*from == '%' && from[1] && from[2] && sscanf(from + 1, "%2x", &hex) == 1) {
            *to++ = (char)hex;
            from += 2;
        } else {
            *to++ = *from;
        }
    }
    *to = 0;
    to = token;
    for (char *from = token; *from; from++) {
        if (*from == '~' && (from[1] == '0' || from[1] == '1')) *to++ = *++from == '0' ? '~' : '/';
        else *to++ = *from;
    }
    *to = 0;
    if (json_is_object(at)) return object_step(at, token, next);
    int64_t i;
    if (json_is_array(at) && str_to_i64(token, 0, INT32_MAX, &i))
        return json_array_get(at, (size_t)i);
    return NULL;
}

static const json_t *find_anchor(const json_t *at, const char *anchor, int depth) {
    const char *key;
    json_t *child;
    size_t i;
    const json_t *found = NULL;
    if (depth > 200) return NULL;
    if (json_is_object(at)) {
        const json_t *name = json_object_get(at, "$anchor");
        if (json_is_string(name) && strcmp(json_string_value(name), anchor) == 0) return at;
        json_object_foreach((json_t *)at, key, child) {
            if (!found && strcmp(key, "enum") != 0 && strcmp(key, "const") != 0)
                found = find_anchor(child, anchor, depth + 1);
        }
    } else if (json_is_array(at)) {
        json_array_foreach(at, i, child) {
            if (!found) found = find_anchor(child, anchor, depth + 1);
        }
    }
    return found;
}

const json_t *schema_resolve(struct schema *s, const json_t *j) {
    const char *ref = json_string_value(json_object_get(j, "$ref"));
    size_t n_id = s->root_id ? strcspn(s->root_id, "#") : 0;
    if (s->has_inner_id) {
        schema_refuse(s, CHIMERE_EUNSUPPORTED, j, "$id",
                      "not supported below the root beside $ref");
        return NULL;
    }
    if (n_id && strncmp(ref, s->root_id, n_id) == 0 && (ref[n_id] == '#' || !ref[n_id]))
        ref += n_id;
    if (*ref && *ref != '#') {
        schema_refuse(s, CHIMERE_EUNSUPPORTED, j, "$ref", "only references into the schema itself");
        return NULL;
    }
    if (*ref == '#') ref++;
    const json_t *at = *ref && *ref != '/' ? find_anchor(s->root, ref, 0) : s->root;
    char *copy = mem_strdup(ref);
    if (!copy) {
        grammar_nomem(&s->b);
        return NULL;
    }
    if (*copy == '/')
        for (char *token = copy + 1, *end; at && token; token = end ? end + 1 : NULL) {
            end = strchr(token, '/');
            if (end) *end = 0;
            at = pointer_step(at, token, end ? end + 1 : NULL);
        }
    mem_free(copy);
    if (!at) schema_refuse(s, CHIMERE_EFORMAT, j, "$ref", "leads nowhere");
    else if (!schema_is_one(at))
        schema_refuse(s, CHIMERE_EFORMAT, j, "$ref", "leads to what is no schema");
    return s->b.rc ? NULL : at;
}

/* Refuses a schema that applies itself to the same value, because validation would not end. */
void schema_refuse_cycle(struct schema *s, const json_t *j, uint32_t depth) {
    static const char *const one[] = {"not", "if", "then", "else"};
    static const char *const many[] = {"allOf", "anyOf", "oneOf", "dependentSchemas"};
    uint32_t mark;
    const char *key;
    json_t *child;
    size_t i;
    if (!json_is_object(j) || !grammar_tick(&s->b, 4)) return;
    if (map_find(&s->acyclic, (char *)&j, sizeof j, &mark)) {
        if (mark == 1)
            schema_refuse(s, CHIMERE_EFORMAT, j, "$ref", "the schema refers to itself in a loop");
        return;
    }
    if (depth > s->b.lim.depth) {
        grammar_fail(&s->b, CHIMERE_ELIMIT, "schema: nested deeper than %u", s->b.lim.depth);
        return;
    }
    if (map_put(&s->acyclic, (char *)&j, sizeof j, 1) < 0) grammar_nomem(&s->b);
    if (json_is_string(json_object_get(j, "$ref")))
        schema_refuse_cycle(s, schema_resolve(s, j), depth + 1);
    for (size_t k = 0; k < 4 && !s->b.rc; k++) {
        schema_refuse_cycle(s, json_object_get(j, one[k]), depth + 1);
        const json_t *list = json_object_get(j, many[k]);
        json_array_foreach(list, i, child) schema_refuse_cycle(s, child, depth + 1);
        if (json_is_object(list))
            json_object_foreach((json_t *)list, key, child)
                schema_refuse_cycle(s, child, depth + 1);
    }
    if (!s->b.rc && map_put(&s->acyclic, (char *)&j, sizeof j, 2) < 0) grammar_nomem(&s->b);
}

/* ---- synthetic schemas ---- */

const json_t *schema_keep(struct schema *s, json_t *made) {
    uint32_t i = made ? grammar_vec_add(&s->b, &s->made, 1, sizeof made, "constants", UINT32_MAX)
                      : GRAMMAR_NONE;
    if (i == GRAMMAR_NONE) {
        json_decref(made);
        grammar_nomem(&s->b);
        return NULL;
    }
    return ((json_t **)s->made.p)[i] = made;
}

/* Keeps `made` as the schema that represents `value`. */
static const json_t *keep(struct schema *s, const json_t *value, json_t *made) {
    uint32_t i = s->made.n;
    if (!schema_keep(s, made)) return NULL;
    if (map_put(&s->made_for, (char *)&value, sizeof value, i) < 0) grammar_nomem(&s->b);
    return s->b.rc ? NULL : made;
}

static json_t *constant(const json_t *value) { return json_pack("{s:O}", "const", value); }

/* Returns a schema of types, counts and constants that is satisfied only by values equal to `value`, an array or
 * object. */
const json_t *schema_of_constant(struct schema *s, const json_t *value) {
    uint32_t i;
    const char *key;
    json_t *child;
    size_t k;
    if (map_find(&s->made_for, (char *)&value, sizeof value, &i)) return ((json_t **)s->made.p)[i];
    if (json_is_array(value)) {
        json_t *prefix = json_array();
        json_int_t n = (json_int_t)json_array_size(value);
        json_array_foreach(value, k, child) json_array_append_new(prefix, constant(child));
        json_t *made = json_pack("{s:s,s:I,s:I}", "type", "array", "minItems", n, "maxItems", n);
        if (n && made) json_object_set_new(made, "prefixItems", prefix);
        else json_decref(prefix);
        return keep(s, value, made);
    }
    json_t *props = json_object(), *names = json_array();
    json_object_foreach((json_t *)value, key, child) {
        json_object_set_new(props, key, constant(child));
        json_array_append_new(names, json_string(key));
    }
    return keep(s, value,
                json_pack("{s:s,s:o,s:o,s:I}", "type", "object", "properties", props, "required",
                          names, "maxProperties", (json_int_t)json_object_size(value)));
}

/* ---- finite sets of values ---- */

/* Appends {const: v}, unless the list has an equal value. */
static bool value_push(json_t *out, const json_t *v) {
    json_t *one;
    size_t i;
    json_array_foreach(out, i, one) {
        const json_t *old = json_object_get(one, "const");
        bool mixed = json_is_real(old) != json_is_real(v);
        if (mixed && json_is_number(old) && json_is_number(v)
                ? json_number_value(old) == json_number_value(v)
                : json_equal(old, v))
            return true;
    }
    return json_array_size(out) < SCHEMA_MAX_VALUE && !json_array_append_new(out, constant(v));
}

/* Appends the integers between inclusive bounds, if `type` is integer. */
static bool range_push(const json_t *j, json_t *out) {
    const json_t *min = json_object_get(j, "minimum"), *max = json_object_get(j, "maximum");
    if (!json_is_integer(min) || !json_is_integer(max)) return false;
    json_int_t low = json_integer_value(min), high = json_integer_value(max);
    if (high - (double)low > SCHEMA_MAX_VALUE) return false;
    for (json_int_t i = low; i <= high; i++) {
        json_t *v = json_integer(i);
        bool ok = value_push(out, v);
        json_decref(v);
        if (!ok) return false;
    }
    return true;
}

static bool values_of(struct schema *s, const json_t *j, json_t *out);

static bool values_of_all(struct schema *s, const json_t *list, json_t *out) {
    json_t *one;
    size_t i;
    json_array_foreach(list, i, one) if (!values_of(s, one, out)) return false;
    return json_array_size(list) > 0;
}

/* Appends the values that one type allows, if they are few: null, booleans, bounded integers. */
static bool values_of_type(struct schema *s, const json_t *j, json_t *out) {
    const json_t *type = json_object_get(j, "type");
    uint32_t types = type ? schema_types(s, j, type) : T_ANY;
    bool ok = !(types & (T_FRAC | T_STR | T_ARR | T_OBJ));
    if (ok && types & T_NULL) ok = value_push(out, json_null());
    if (ok && types & T_TRUE) ok = value_push(out, json_true()) && value_push(out, json_false());
    if (ok && types & T_INT) ok = range_push(j, out);
    return ok;
}

static bool values_of(struct schema *s, const json_t *j, json_t *out) {
    const json_t *list = json_object_get(j, "enum"), *one;
    size_t i;
    if (json_is_false(j)) return true;
    if (!json_is_object(j) || s->b.rc) return false;
    if ((one = json_object_get(j, "const"))) return value_push(out, one);
    if (json_is_array(list)) {
        json_array_foreach(list, i, one) if (!value_push(out, one)) return false;
        return true;
    }
    if (json_is_string(json_object_get(j, "$ref")) && values_of(s, schema_resolve(s, j), out))
        return true;
    if (values_of_all(s, json_object_get(j, "anyOf"), out)) return true;
    if (values_of_all(s, json_object_get(j, "oneOf"), out)) return true;
    json_array_foreach(json_object_get(j, "allOf"), i, one) if (values_of(s, one, out)) return true;
    return values_of_type(s, j, out);
}

bool schema_values(struct schema *s, const struct literal *lits, uint32_t n, json_t *out) {
    for (uint32_t i = 0; i < n; i++) {
        if (lits[i].negate) continue;
        json_array_clear(out);
        schema_refuse_cycle(s, lits[i].json, 0);
        if (values_of(s, lits[i].json, out)) return true;
    }
    return false;
}

/* ---- entry ---- */

static void look_for_inner_ids(struct schema *s, const json_t *at, int depth) {
    const char *key;
    json_t *child;
    size_t i;
    if (depth > 0 && json_is_string(json_object_get(at, "$id"))) s->has_inner_id = true;
    if (json_is_object(at))
        json_object_foreach((json_t *)at, key, child) look_for_inner_ids(s, child, depth + 1);
    json_array_foreach(at, i, child) look_for_inner_ids(s, child, depth + 1);
}

static bool is_deeper(const json_t *at, uint32_t limit) {
    const char *key;
    json_t *child;
    size_t i;
    if (limit == 0) return true;
    if (json_is_object(at))
        json_object_foreach((json_t *)at, key, child) if (is_deeper(child, limit - 1)) return true;
    json_array_foreach(at, i, child) if (is_deeper(child, limit - 1)) return true;
    return false;
}

bool schema_set_root(struct schema *s, const json_t *root) {
    s->given = s->root = root;
    s->has_inner_id = false;
    if (!schema_is_one(root)) {
        grammar_fail(&s->b, CHIMERE_EFORMAT, "schema: expected an object, true or false");
        return false;
    }
    const char *dialect = json_string_value(json_object_get(root, "$schema"));
    if (dialect && !strstr(dialect, "json-schema.org/")) {
        schema_refuse(s, CHIMERE_EUNSUPPORTED, root, "$schema", "only dialects of json-schema.org");
        return false;
    }
    if (is_deeper(root, s->b.lim.depth)) {
        grammar_fail(&s->b, CHIMERE_ELIMIT, "schema: nested deeper than %u", s->b.lim.depth);
        return false;
    }
    s->root = keep(s, root, schema_modern(root));
    s->root_id = json_string_value(json_object_get(s->root, "$id"));
    look_for_inner_ids(s, s->root, 0);
    return !s->b.rc;
}

uint32_t schema_root_rule(struct schema *s, const json_t *root) {
    if (!schema_set_root(s, root)) return 0;
    struct literal one = {s->root, 0};
    uint32_t value = schema_rule(s, &one, 1);
    schema_emit_jobs(s);
    return value;
}

static uint32_t emit_value(struct schema *s, void *arg) {
    uint32_t value = schema_root_rule(s, arg);
    return s->b.rc ? 0 : schema_emit_root(s, value);
}

int schema_build(struct grammar **out, schema_emit_fn *emit, void *arg,
                 const struct grammar_limits *lim, struct err *e) {
    struct schema s = {.root = NULL};
    uint32_t start = 0;
    *out = NULL;
    int rc = grammar_builder_init(&s.b, lim, e);
    map_init(&s.rules, (size_t)64 << 20);
    map_init(&s.strings, (size_t)64 << 20);
    map_init(&s.acyclic, (size_t)64 << 20);
    map_init(&s.made_for, (size_t)64 << 20);
    grammar_vec_add(&s.b, &s.agenda, 0, sizeof(struct item), "constraints", 1);
    if (rc == 0) {
        schema_emit_prelude(&s);
        start = emit(&s, arg);
    }
    rc = s.b.rc ? s.b.rc : grammar_finish(&s.b, start, out);
    if (rc == CHIMERE_EREFUSED) err_set(e, rc, "schema: no value satisfies it");
    for (uint32_t i = 0; i < s.made.n; i++) json_decref(((json_t **)s.made.p)[i]);
    map_fini(&s.rules), map_fini(&s.strings), map_fini(&s.acyclic), map_fini(&s.made_for);
    mem_free(s.jobs.p), mem_free(s.sets.p), mem_free(s.made.p), mem_free(s.agenda.p);
    grammar_builder_fini(&s.b);
    return rc;
}

int grammar_from_json(struct grammar **out, const json_t *schema, const struct grammar_limits *lim,
                      struct err *e) {
    return schema_build(out, emit_value, (void *)schema, lim, e);
}

int grammar_from_schema(struct grammar **out, const char *text, size_t n,
                        const struct grammar_limits *lim, struct err *e) {
    size_t max = lim && lim->text_bytes ? lim->text_bytes : 1 << 20;
    json_error_t je;
    *out = NULL;
    if (n > max) return err_set(e, CHIMERE_ELIMIT, "schema: longer than %zu bytes", max);
    json_t *j = json_loadb(text, n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (!j) {
        bool deep = json_error_code(&je) == json_error_stack_overflow;
        return err_set(e, deep ? CHIMERE_ELIMIT : CHIMERE_EFORMAT, "schema: %s (line %d, byte %d)",
                       je.text, je.line, je.position);
    }
    int rc = grammar_from_json(out, j, lim, e);
    json_decref(j);
    return rc;
}
