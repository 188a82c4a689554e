/* grammar_schema_draft.c: rewrites forms of older drafts into draft 2020-12, once per schema.
 *
 *   items: [a, b], additionalItems: c      -> prefixItems: [a, b], items: c
 *   minimum: 3, exclusiveMinimum: true     -> exclusiveMinimum: 3 (draft 4; maximum likewise)
 *   dependencies: {a: [b], c: schema}      -> dependentRequired, dependentSchemas
 *   type: T, nullable: true                -> type: [T, null] (OpenAPI 3.0; an enum keeps its values)
 *   properties: {a: {required: true}}      -> required: [a] (draft 3)
 *   type: any                              -> no type (draft 3)
 *   keyword: null                          -> no keyword, as serializers write unset fields
 *   $ref beside other assertions           -> $ref alone, in drafts 3 to 7
 *
 * The result shares all values that contain no schema with the original. */
#include <string.h>

#include "text/grammar/grammar_schema_impl.h"

struct draft {
    bool is_old; /* a draft before 2019-09 */
    bool failed; /* out of memory */
};

static json_t *rewrite(struct draft *d, json_t *j);

static void put(struct draft *d, json_t *to, const char *key, json_t *v) {
    if (json_object_set_new(to, key, v)) d->failed = true;
}

static json_t *share(const json_t *v) { return json_incref((json_t *)v); }

static json_t *rewrite_list(struct draft *d, json_t *list) {
    json_t *out = json_array(), *v;
    size_t i;
    json_array_foreach(list, i, v) if (json_array_append_new(out, rewrite(d, v))) d->failed = true;
    return out;
}

/* Rewrites a map of schemas, or an object of an unknown keyword that a $ref may refer to. */
static json_t *rewrite_map(struct draft *d, json_t *map) {
    json_t *out = json_object(), *v;
    const char *key;
    size_t n;
    json_object_keylen_foreach(map, key, n, v) {
        if (json_object_setn_new(out, key, n, rewrite(d, v))) d->failed = true;
    }
    return out;
}

static bool is_data(const char *key) {
    static const char *const keys[] = {"const", "enum", "default", "example", "examples"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0) return true;
    return false;
}

static bool is_map(const char *key) {
    static const char *const keys[] = {"properties", "patternProperties", "$defs", "definitions",
                                       "dependentSchemas"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0) return true;
    return false;
}

static json_t *with_null(const json_t *type) {
    json_t *out, *v, *null = json_string("null");
    size_t i;
    if (json_is_array(type)) {
        out = json_array();
        json_array_foreach(type, i, v) if (!json_equal(v, null)) json_array_append(out, v);
    } else {
        out = json_equal(type, null) ? json_array() : json_pack("[O]", type);
    }
    json_array_append_new(out, null);
    return out;
}

static bool has_any(const json_t *type) {
    const json_t *v;
    size_t i;
    json_array_foreach(type, i, v) if (has_any(v)) return true;
    return json_is_string(type) && strcmp(json_string_value(type), "any") == 0;
}

/* Writes `bound` together with `flag`, which is a boolean in draft 4. */
static void put_bound(struct draft *d, json_t *to, const json_t *from, const char *bound,
                      const char *flag) {
    const json_t *value = json_object_get(from, bound), *excluded = json_object_get(from, flag);
    bool is_excluded = json_is_true(excluded) && json_is_number(value);
    if (value && !json_is_null(value) && !is_excluded) put(d, to, bound, share(value));
    if (is_excluded) put(d, to, flag, share(value));
    else if (excluded && !json_is_boolean(excluded) && !json_is_null(excluded))
        put(d, to, flag, share(excluded));
}

static void put_dependencies(struct draft *d, json_t *to, json_t *v) {
    json_t *names = json_object(), *schemas = json_object(), *one;
    const char *key;
    size_t n;
    json_object_keylen_foreach(v, key, n, one) {
        json_t *list = json_is_string(one) ? json_pack("[O]", one) : rewrite(d, one);
        bool is_schema = json_is_object(one) || json_is_boolean(one);
        if (json_object_setn_new(is_schema ? schemas : names, key, n, list)) d->failed = true;
    }
    if (json_object_size(names) && !json_object_get(to, "dependentRequired"))
        put(d, to, "dependentRequired", share(names));
    if (json_object_size(schemas) && !json_object_get(to, "dependentSchemas"))
        put(d, to, "dependentSchemas", share(schemas));
    json_decref(names), json_decref(schemas);
}

/* Adds to the list the names whose schemas contain `required: true`. */
static void put_required(struct draft *d, json_t *to, const json_t *from) {
    const json_t *list = json_object_get(from, "required");
    json_t *props = json_object_get(from, "properties"), *made = NULL, *child;
    const char *key;
    size_t n;
    json_object_keylen_foreach(props, key, n, child) {
        if (!json_is_true(json_object_get(child, "required"))) continue;
        if (!made) made = json_is_array(list) ? json_copy((json_t *)list) : json_array();
        if (json_array_append_new(made, json_stringn(key, n))) d->failed = true;
    }
    if (made) put(d, to, "required", made);
    else if (list && !json_is_boolean(list) && !json_is_null(list))
        put(d, to, "required", share(list));
}

static void put_items(struct draft *d, json_t *to, json_t *from) {
    json_t *items = json_object_get(from, "items"),
           *more = json_object_get(from, "additionalItems");
    if (!json_is_array(items)) {
        if (items && !json_is_null(items)) put(d, to, "items", rewrite(d, items));
        return;
    }
    if (json_array_size(items)) put(d, to, "prefixItems", rewrite_list(d, items));
    if (more && !json_is_null(more)) put(d, to, "items", rewrite(d, more));
}

/* Returns true for keywords that the functions above read together. */
static bool is_paired(const char *key) {
    static const char *const keys[] = {"items",    "additionalItems",  "minimum",
                                       "maximum",  "exclusiveMinimum", "exclusiveMaximum",
                                       "required", "dependencies",     "nullable",
                                       "type"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0) return true;
    return false;
}

static void put_paired(struct draft *d, json_t *to, json_t *from) {
    const json_t *type = json_object_get(from, "type");
    put_items(d, to, from);
    put_bound(d, to, from, "minimum", "exclusiveMinimum");
    put_bound(d, to, from, "maximum", "exclusiveMaximum");
    put_required(d, to, from);
    put_dependencies(d, to, json_object_get(from, "dependencies"));
    if (type && !json_is_null(type) && !has_any(type)) {
        bool nullable = json_is_true(json_object_get(from, "nullable"));
        put(d, to, "type", nullable ? with_null(type) : share(type));
    }
}

static json_t *rewrite(struct draft *d, json_t *j) {
    const char *key;
    json_t *v;
    size_t n;
    if (json_is_array(j)) return rewrite_list(d, j);
    if (!json_is_object(j)) return share(j);
    json_t *out = json_object();
    bool lone = d->is_old && json_is_string(json_object_get(j, "$ref"));
    json_object_keylen_foreach(j, key, n, v) {
        json_t *made = NULL;
        if (strlen(key) != n || is_paired(key)) continue;
        if (json_is_null(v) && strcmp(key, "const") != 0) continue;
        if (lone && strcmp(key, "$ref") != 0 && !schema_is_note(key)) continue;
        if (is_data(key)) made = share(v);
        else made = is_map(key) && json_is_object(v) ? rewrite_map(d, v) : rewrite(d, v);
        put(d, out, key, made);
    }
    if (!lone) put_paired(d, out, j);
    return out;
}

json_t *schema_modern(const json_t *root) {
    struct draft d = {false, false};
    const char *dialect = json_string_value(json_object_get(root, "$schema"));
    d.is_old = dialect && (strstr(dialect, "draft-03") || strstr(dialect, "draft-04") ||
                           strstr(dialect, "draft-06") || strstr(dialect, "draft-07"));
    json_t *out = rewrite(&d, (json_t *)root);
    if (d.failed) {
        json_decref(out);
        return NULL;
    }
    schema_close_unevaluated(out);
    return out;
}
