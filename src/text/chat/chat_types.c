#include "text/chat/chat_types.h"

#include <string.h>

enum { MAX_DEPTH = 16, MAX_VISIT = 4000 }; /* limit of schemas visited for one parameter */

static json_t *find_function(json_t *tools, const char *function) {
    size_t i;
    json_t *tool;
    json_array_foreach(tools, i, tool) {
        json_t *fn = json_object_get(tool, "function");
        if (!fn) fn = tool;
        const char *name = json_string_value(json_object_get(fn, "name"));
        if (name && strcmp(name, function) == 0) return fn;
    }
    return NULL;
}

bool chat_has_tool(json_t *tools, const char *function) {
    return find_function(tools, function) != NULL;
}

bool chat_has_tool_prefix(json_t *tools, const char *text, size_t n) {
    size_t i;
    json_t *tool;
    json_array_foreach(tools, i, tool) {
        json_t *fn = json_object_get(tool, "function");
        const char *name = json_string_value(json_object_get(fn ? fn : tool, "name"));
        if (name && strncmp(name, text, n) == 0) return true;
    }
    return false;
}

static unsigned type_bit(const char *s) {
    static const struct {
        const char *name;
        unsigned bit;
    } rows[] = {
        {"string", CHAT_T_STRING},
        {"integer", CHAT_T_INTEGER},
        {"number", CHAT_T_NUMBER | CHAT_T_INTEGER},
        {"boolean", CHAT_T_BOOLEAN},
        {"null", CHAT_T_NULL},
        {"object", CHAT_T_OBJECT},
        {"array", CHAT_T_ARRAY},
    };
    for (size_t i = 0; s && i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, s) == 0) return rows[i].bit;
    return 0;
}

static unsigned type_of_value(const json_t *v) {
    switch (json_typeof(v)) {
    case JSON_STRING: return CHAT_T_STRING;
    case JSON_INTEGER: return CHAT_T_INTEGER;
    case JSON_REAL: return CHAT_T_NUMBER | CHAT_T_INTEGER;
    case JSON_TRUE:
    case JSON_FALSE: return CHAT_T_BOOLEAN;
    case JSON_NULL: return CHAT_T_NULL;
    case JSON_OBJECT: return CHAT_T_OBJECT;
    case JSON_ARRAY: return CHAT_T_ARRAY;
    }
    return 0;
}

struct look {
    json_t *root; /* view */
    const char *name;
    int n_visit;
    unsigned types;
    bool is_named; /* a schema names the parameter */
};

static json_t *resolve(json_t *root, const char *ref) {
    char part[256];
    if (*ref++ != '#') return NULL;
    while (root && *ref == '/') {
        size_t n = strcspn(++ref, "/"), k = 0;
        if (n >= sizeof part) return NULL;
        for (size_t i = 0; i < n; i++)
            if (ref[i] == '~' && i + 1 < n) part[k++] = ref[++i] == '0' ? '~' : '/';
            else part[k++] = ref[i];
        part[k] = 0;
        if (json_is_array(root)) {
            size_t at = 0;
            for (size_t i = 0; i < k && at < 1000000; i++) at = at * 10 + (size_t)(part[i] - '0');
            root = json_array_get(root, at);
        } else {
            root = json_object_get(root, part);
        }
        ref += n;
    }
    return root;
}

static const char *const lists[] = {"anyOf", "oneOf", "allOf"};
static const char *const singles[] = {"if", "then", "else"};
static const char *const maps[] = {"dependentSchemas", "dependencies"};

/* Returns the types of the values that one schema allows. */
static unsigned types_of(struct look *l, json_t *s, int depth) {
    unsigned types = 0;
    size_t i;
    json_t *v, *t = json_object_get(s, "type");
    if (!json_is_object(s) || depth > MAX_DEPTH || ++l->n_visit > MAX_VISIT) return 0;
    const char *ref = json_string_value(json_object_get(s, "$ref"));
    if (ref) types |= types_of(l, resolve(l->root, ref), depth + 1);
    if (json_is_string(t)) types |= type_bit(json_string_value(t));
    json_array_foreach(t, i, v) types |= type_bit(json_string_value(v));
    if (types && t && json_is_true(json_object_get(s, "nullable"))) types |= CHAT_T_NULL;
    if (types) return types;
    for (size_t u = 0; u < sizeof lists / sizeof *lists; u++)
        json_array_foreach(json_object_get(s, lists[u]), i, v) types |= types_of(l, v, depth + 1);
    if (types) return types;
    json_array_foreach(json_object_get(s, "enum"), i, v) types |= type_of_value(v);
    v = json_object_get(s, "const");
    if (v) types |= type_of_value(v);
    if (!types && json_object_get(s, "properties")) types = CHAT_T_OBJECT;
    if (!types && json_object_get(s, "items")) types = CHAT_T_ARRAY;
    return types;
}

/* Adds the types that s, a schema of all parameters, gives to this one. others: use its additionalProperties
 * instead. */
static void collect(struct look *l, json_t *s, bool others, int depth) {
    size_t i;
    const char *key;
    json_t *v;
    if (!json_is_object(s) || depth > MAX_DEPTH || ++l->n_visit > MAX_VISIT) return;
    if (others) {
        l->types |= types_of(l, json_object_get(s, "additionalProperties"), 0);
        json_object_foreach(json_object_get(s, "patternProperties"), key, v) l->types |=
            types_of(l, v, 0);
    } else if ((v = json_object_get(json_object_get(s, "properties"), l->name))) {
        l->is_named = true;
        l->types |= types_of(l, v, 0);
    }
    const char *ref = json_string_value(json_object_get(s, "$ref"));
    if (ref) collect(l, resolve(l->root, ref), others, depth + 1);
    for (size_t u = 0; u < sizeof lists / sizeof *lists; u++)
        json_array_foreach(json_object_get(s, lists[u]), i, v) collect(l, v, others, depth + 1);
    for (size_t u = 0; u < sizeof singles / sizeof *singles; u++)
        collect(l, json_object_get(s, singles[u]), others, depth + 1);
    for (size_t u = 0; u < sizeof maps / sizeof *maps; u++)
        json_object_foreach(json_object_get(s, maps[u]), key, v) collect(l, v, others, depth + 1);
}

unsigned chat_schema_types(json_t *schema, const char *name) {
    struct look l = {.root = schema, .name = name};
    collect(&l, schema, false, 0);
    if (!l.is_named) collect(&l, schema, true, 0);
    return l.types;
}

unsigned chat_param_types(json_t *tools, const char *function, const char *param) {
    json_t *fn = find_function(tools, function);
    json_t *root = json_object_get(fn, "parameters");
    if (!root) root = json_object_get(fn, "input_schema");
    return chat_schema_types(root, param);
}

bool chat_is_text(unsigned types) { return types == 0 || types == CHAT_T_STRING; }
