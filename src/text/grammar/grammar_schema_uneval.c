/* grammar_schema_uneval.c: replaces unevaluatedProperties by properties, patternProperties and
 * additionalProperties.
 *
 * A name is evaluated if it is mentioned by a schema that applies to the same object and holds. Schemas that
 * always apply (allOf, $ref) are united. Schemas that apply in some cases (anyOf, oneOf, if, dependentSchemas)
 * become an anyOf of all ways to decide them, each with the names that it evaluates. If more of these schemas hold
 * for an object than one way requires, another way covers it and allows more names. So no way needs a negation
 * that the schema does not contain. If there are more than MAX_WAY ways, or such keywords are nested,
 * unevaluatedProperties stays and is refused later. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "text/grammar/grammar_schema_impl.h"

enum { MAX_WAY = 64, MAX_BRANCH = 6, MAX_DEPTH = 32 };

struct way {
    json_t *holds; /* owned: schemas that this way requires */
    json_t *names; /* owned: {"properties": {NAME: true}, "patternProperties": {..}} */
    bool all;      /* every name is evaluated */
};

struct uneval {
    const json_t *root; /* borrowed */
    struct way ways[MAX_WAY];
    size_t n;
    int n_left; /* number of schemas that may still be visited */
    bool fits;
};

static const json_t *target(const struct uneval *x, const json_t *ref) {
    const char *s = json_string_value(ref);
    const json_t *at = x->root;
    if (!s || (strcmp(s, "#") != 0 && !str_starts(s, "#/"))) return NULL;
    for (s += s[1] ? 2 : 1; *s && at;) {
        char token[256];
        size_t n = strcspn(s, "/");
        if (n >= sizeof token || memchr(s, '~', n) || memchr(s, '%', n)) return NULL;
        memcpy(token, s, n);
        token[n] = 0;
        int64_t i;
        if (json_is_object(at)) at = json_object_get(at, token);
        else at = str_to_i64(token, 0, INT32_MAX, &i) ? json_array_get(at, (size_t)i) : NULL;
        s += n + (s[n] == '/');
    }
    return at;
}

static const char *const sometimes[] = {"anyOf", "oneOf", "if", "then", "else", "dependentSchemas"};

/* Returns true if the schema may evaluate a name, also if this is not known. */
static bool mentions(struct uneval *x, const json_t *j, int depth) {
    static const char *const keys[] = {"properties",           "patternProperties",
                                       "additionalProperties", "unevaluatedProperties",
                                       "$dynamicRef",          "$recursiveRef"};
    const char *key;
    json_t *child;
    size_t i;
    if (!json_is_object(j)) return false;
    if (depth > MAX_DEPTH || --x->n_left < 0) return true;
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        if (json_object_get(j, keys[k])) return true;
    const json_t *ref = json_object_get(j, "$ref");
    if (ref && (!target(x, ref) || mentions(x, target(x, ref), depth + 1))) return true;
    json_array_foreach(json_object_get(j, "allOf"), i, child) {
        if (mentions(x, child, depth + 1)) return true;
    }
    for (size_t k = 0; k < sizeof sometimes / sizeof *sometimes; k++) {
        json_t *v = json_object_get(j, sometimes[k]);
        bool is_map = strcmp(sometimes[k], "dependentSchemas") == 0;
        if (!is_map && json_is_object(v) && mentions(x, v, depth + 1)) return true;
        json_array_foreach(v, i, child) {
            if (mentions(x, child, depth + 1)) return true;
        }
        if (is_map) json_object_foreach(v, key, child) {
                if (mentions(x, child, depth + 1)) return true;
            }
    }
    return false;
}

static void add_names(struct way *w, const char *key, const json_t *map) {
    json_t *to = json_object_get(w->names, key), *v;
    const char *name;
    size_t n;
    if (!to) json_object_set_new(w->names, key, to = json_object());
    json_object_keylen_foreach((json_t *)map, name, n, v) {
        json_object_setn_new(to, name, n, json_true());
    }
}

/* Collects the names that j evaluates whenever it holds. is_top: j has the keyword; the caller decides its other
 * branches. */
static void collect(struct uneval *x, struct way *w, const json_t *j, bool is_top, int depth) {
    json_t *child;
    size_t i;
    if (!json_is_object(j)) return;
    if (depth > MAX_DEPTH || --x->n_left < 0) {
        x->fits = false;
        return;
    }
    add_names(w, "properties", json_object_get(j, "properties"));
    add_names(w, "patternProperties", json_object_get(j, "patternProperties"));
    w->all |= json_object_get(j, "additionalProperties") ||
              (!is_top && json_object_get(j, "unevaluatedProperties"));
    const json_t *ref = json_object_get(j, "$ref");
    if (ref && target(x, ref)) collect(x, w, target(x, ref), false, depth + 1);
    if (json_object_get(j, "$dynamicRef") || json_object_get(j, "$recursiveRef") ||
        (ref && !target(x, ref)))
        x->fits = false;
    json_array_foreach(json_object_get(j, "allOf"), i, child) {
        collect(x, w, child, false, depth + 1);
    }
    for (size_t k = 0; k < sizeof sometimes / sizeof *sometimes && !is_top; k++) {
        json_t *one = json_object_get(j, sometimes[k]);
        if (!one) continue;
        json_t *alone = json_pack("{s:O}", sometimes[k], one);
        if (!alone || mentions(x, alone, depth)) x->fits = false;
        json_decref(alone);
    }
}

/* ---- ways to decide ---- */

static void fork_way(struct uneval *x, size_t from) {
    if (x->n == MAX_WAY) {
        x->fits = false;
        return;
    }
    const struct way *w = &x->ways[from];
    x->ways[x->n++] = (struct way){json_copy(w->holds), json_deep_copy(w->names), w->all};
}

/* Multiplies every way so far by n decisions: decide(x, way, which) adds what holds for decision `which`. */
static void multiply(struct uneval *x, size_t n, const json_t *v,
                     void (*decide)(struct uneval *x, struct way *w, const json_t *v,
                                    size_t which)) {
    size_t before = x->n;
    for (size_t i = 0; i < before && x->fits; i++) {
        for (size_t k = 1; k < n && x->fits; k++) {
            fork_way(x, i);
            if (x->fits) decide(x, &x->ways[x->n - 1], v, k);
        }
    }
    for (size_t i = 0; i < before && x->fits; i++) decide(x, &x->ways[i], v, 0);
}

static void hold(struct uneval *x, struct way *w, json_t *j) {
    if (json_array_append(w->holds, j)) x->fits = false;
    collect(x, w, j, false, 0);
}

/* which + 1 is a bitset of the branches that hold. */
static void decide_any(struct uneval *x, struct way *w, const json_t *v, size_t which) {
    for (size_t i = 0; i < json_array_size(v); i++)
        if ((which + 1) >> i & 1) hold(x, w, json_array_get(v, i));
}

static void decide_one(struct uneval *x, struct way *w, const json_t *v, size_t which) {
    hold(x, w, json_array_get(v, which));
}

static void decide_if(struct uneval *x, struct way *w, const json_t *j, size_t which) {
    json_t *test = json_object_get(j, "if"), *then = json_object_get(j, which ? "else" : "then");
    if (which && json_array_append_new(w->holds, json_pack("{s:O}", "not", test))) x->fits = false;
    if (!which) hold(x, w, test);
    if (then) hold(x, w, then);
}

static void decide_dependent(struct uneval *x, struct way *w, const json_t *pair, size_t which) {
    json_t *name = json_array_get(pair, 0),
           *has = json_pack("{s:s,s:[O]}", "type", "object", "required", name);
    if (which) hold(x, w, has), hold(x, w, json_array_get(pair, 1));
    else if (json_array_append_new(w->holds, json_pack("{s:O}", "not", has))) x->fits = false;
    json_decref(has);
}

static void decide_all(struct uneval *x, const json_t *j) {
    json_t *any = json_object_get(j, "anyOf"), *one = json_object_get(j, "oneOf"), *child;
    const char *key;
    size_t n = json_array_size(any);
    if (n) {
        if (n > MAX_BRANCH) x->fits = false;
        else multiply(x, ((size_t)1 << n) - 1, any, decide_any);
    }
    if (json_array_size(one)) multiply(x, json_array_size(one), one, decide_one);
    if (json_object_get(j, "if")) multiply(x, 2, j, decide_if);
    json_object_foreach(json_object_get(j, "dependentSchemas"), key, child) {
        json_t *pair = json_pack("[s,O]", key, child);
        if (pair) multiply(x, 2, pair, decide_dependent);
        else x->fits = false;
        json_decref(pair);
    }
}

/* Returns the schema of one way: what holds, and `value` for all other names. */
static json_t *schema_of(const struct way *w, json_t *value) {
    json_t *all = json_copy(w->holds), *closed = json_copy(w->names);
    if (!w->all) {
        json_object_set(closed, "additionalProperties", value);
        json_array_append(all, closed);
    }
    json_decref(closed);
    if (json_array_size(all)) return json_pack("{s:o}", "allOf", all);
    json_decref(all);
    return json_true();
}

static void replace(const json_t *root, json_t *j) {
    json_t *value = json_object_get(j, "unevaluatedProperties");
    if (json_is_true(value) || !schema_is_one(value)) return;
    struct uneval *x = mem_zalloc(sizeof *x);
    if (!x) return;
    *x = (struct uneval){.root = root, .n = 1, .n_left = 4000, .fits = true};
    x->ways[0] = (struct way){json_array(), json_object(), false};
    collect(x, &x->ways[0], j, true, 0);
    if (x->fits) decide_all(x, j);
    json_t *ways = json_array(), *all = json_object_get(j, "allOf");
    for (size_t i = 0; i < x->n; i++) {
        if (x->fits && json_array_append_new(ways, schema_of(&x->ways[i], value))) x->fits = false;
        json_decref(x->ways[i].holds), json_decref(x->ways[i].names);
    }
    if (x->fits) {
        if (!json_is_array(all)) json_object_set_new(j, "allOf", all = json_array());
        if (!json_array_append_new(all, json_pack("{s:O}", "anyOf", ways)))
            json_object_del(j, "unevaluatedProperties");
    }
    json_decref(ways);
    mem_free(x);
}

/* Processes a schema before the schemas within it, because the keyword of an inner schema evaluates every name. */
static void walk(const json_t *root, json_t *j, int depth) {
    const char *key;
    json_t *child;
    size_t i;
    if (depth > 200) return;
    json_array_foreach(j, i, child) walk(root, child, depth + 1);
    if (!json_is_object(j)) return;
    replace(root, j);
    json_object_foreach(j, key, child) {
        if (strcmp(key, "enum") != 0 && strcmp(key, "const") != 0 && strcmp(key, "default") != 0 &&
            strcmp(key, "examples") != 0)
            walk(root, child, depth + 1);
    }
}

void schema_close_unevaluated(json_t *root) { walk(root, root, 0); }
