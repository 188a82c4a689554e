/* grammar_schema_expand.c: expands a conjunction of schemas to its cases (see grammar_schema_impl.h).
 *
 * The agenda is a list of items that is processed from front to back. A schema is replaced by the assertions of
 * its keywords, which are appended at the end. The branches of a disjunction are tried one after the other, each
 * with the rest of the agenda. The negation of a schema is a disjunction of its negated keywords. A keyword
 * without an exact negation (items, additionalProperties, ...) is refused by name if its negation is needed. */
#include <string.h>

#include "base/mem.h"
#include "text/grammar/grammar_case_impl.h"

struct expansion {
    struct schema *s;
    case_fn *fn;
    void *arg;
    uint32_t first; /* start of this expansion in s->agenda */
    uint32_t depth;
};

static void expand(struct expansion *x, uint32_t next, uint32_t types);

static void push(struct schema *s, struct item item) {
    uint32_t i =
        grammar_vec_add(&s->b, &s->agenda, 1, sizeof item, "constraints on one value", 1 << 20);
    if (i != GRAMMAR_NONE) ((struct item *)s->agenda.p)[i] = item;
}

static void push_literal(struct schema *s, const json_t *j, bool negate) {
    push(s, (struct item){.kind = I_LITERAL, .json = j, .negate = negate});
}
static void push_types(struct schema *s, uint32_t types) {
    push(s, (struct item){.kind = I_TYPES, .n = types});
}
static void push_count(struct schema *s, enum item_kind kind, uint32_t n) {
    push(s, (struct item){.kind = (uint8_t)kind, .n = n});
}
static void push_json(struct schema *s, enum item_kind kind, const json_t *j, bool negate) {
    push(s, (struct item){.kind = (uint8_t)kind, .json = j, .negate = negate});
}
static void push_name(struct schema *s, enum item_kind kind, const char *name, size_t n) {
    push(s, (struct item){.kind = (uint8_t)kind, .name = name, .n_name = n});
}
static void push_string_name(struct schema *s, enum item_kind kind, const json_t *name) {
    push_name(s, kind, json_string_value(name), json_string_length(name));
}

/* Continues with the items pushed since `mark` as one branch of a disjunction, then removes them. */
static void branch(struct expansion *x, uint32_t mark, uint32_t next, uint32_t types) {
    if (!x->s->b.rc) expand(x, next, types);
    if (!x->s->b.rc) x->s->agenda.n = mark;
}

static uint32_t constant_types(const json_t *v) {
    return json_is_null(v) ? T_NULL : json_is_true(v) ? T_TRUE : json_is_false(v) ? T_FALSE : 0;
}

/* the value is one of values[n] */
static void expand_enum(struct expansion *x, const json_t *holder, const json_t *const *values,
                        size_t n, uint32_t next, uint32_t types) {
    struct schema *s = x->s;
    uint32_t mark = s->agenda.n, plain = 0;
    bool has_text = false;
    for (size_t i = 0; i < n; i++) {
        plain |= constant_types(values[i]);
        has_text |= json_is_string(values[i]);
    }
    if (plain & types) {
        push_types(s, plain);
        branch(x, mark, next, types);
    }
    if (has_text && (types & T_STR)) {
        push_types(s, T_STR);
        push_json(s, I_TEXTS, holder, false);
        branch(x, mark, next, types);
    }
    for (size_t i = 0; i < n && !s->b.rc; i++) {
        if (json_is_number(values[i]) && (types & T_NUM)) {
            push_types(s, T_NUM);
            push_json(s, I_MIN, values[i], false);
            push_json(s, I_MAX, values[i], false);
            branch(x, mark, next, types);
        } else if ((json_is_array(values[i]) && (types & T_ARR)) ||
                   (json_is_object(values[i]) && (types & T_OBJ))) {
            push_literal(s, schema_of_constant(s, values[i]), false);
            branch(x, mark, next, types);
        }
    }
}

/* Excludes one value; for numbers and structures this is another disjunction. */
static void push_unequal(struct schema *s, const json_t *v) {
    if (json_is_array(v) || json_is_object(v)) push_literal(s, schema_of_constant(s, v), true);
    else if (json_is_number(v)) push_json(s, I_LITERAL, v, true); /* expand_literal expands it */
    else if (constant_types(v)) push_types(s, T_ANY & ~constant_types(v));
}

static void expand_one_of(struct expansion *x, const json_t *list, uint32_t next, uint32_t types) {
    struct schema *s = x->s;
    size_t n = json_array_size(list);
    uint32_t mark = s->agenda.n;
    for (size_t i = 0; i < n && !s->b.rc; i++) {
        const json_t *one = json_array_get(list, i);
        push_literal(s, one, false);
        for (size_t k = 0; k < n && !s->b.rc; k++) {
            struct literal both[2] = {{one, 0}, {json_array_get(list, k), 0}};
            if (k != i && !schema_is_empty(s, both, 2, 4)) push_literal(s, both[1].json, true);
        }
        branch(x, mark, next, types);
    }
}

/* contains has no effect with minContains 0 and without maxContains. */
static bool asserts_contains(const json_t *j) {
    const json_t *min = json_object_get(j, "minContains");
    return json_object_get(j, "maxContains") || !min || json_number_value(min) > 0;
}

/* Pushes the assertions of schema j that are not disjunctions. Returns the number of its disjunctions. */
static uint32_t push_assertions(struct schema *s, const json_t *j) {
    const char *name;
    json_t *v, *child;
    size_t i;
    uint32_t n = 0, n_branch = 0;
    bool has_array = false, has_object = false;
    json_object_foreach((json_t *)j, name, v) {
        enum schema_keyword k = schema_keyword_of(s, j, name, v);
        if (s->b.rc) return 0;
        switch (k) {
        case K_TYPE: push_types(s, schema_types(s, j, v)); break;
        case K_MINIMUM:
        case K_EXCL_MINIMUM: push_json(s, I_MIN, v, k == K_EXCL_MINIMUM); break;
        case K_MAXIMUM:
        case K_EXCL_MAXIMUM: push_json(s, I_MAX, v, k == K_EXCL_MAXIMUM); break;
        case K_MULTIPLE_OF: push_json(s, I_MULTIPLE, v, false); break;
        case K_MIN_LENGTH: schema_count(v, &n), push_count(s, I_MIN_LENGTH, n); break;
        case K_MAX_LENGTH: schema_count(v, &n), push_count(s, I_MAX_LENGTH, n); break;
        case K_MIN_ITEMS: schema_count(v, &n), push_count(s, I_MIN_ITEMS, n); break;
        case K_MAX_ITEMS: schema_count(v, &n), push_count(s, I_MAX_ITEMS, n); break;
        case K_MIN_PROPS: schema_count(v, &n), push_count(s, I_MIN_PROPS, n); break;
        case K_MAX_PROPS: schema_count(v, &n), push_count(s, I_MAX_PROPS, n); break;
        case K_PATTERN: push_json(s, I_PATTERN, v, false); break;
        case K_FORMAT:
            if (schema_format_pattern(json_string_value(v))) push_json(s, I_FORMAT, v, false);
            break;
        case K_PREFIX_ITEMS:
        case K_ITEMS: has_array = true; break;
        case K_PROPERTIES:
        case K_PATTERN_PROPS:
        case K_ADDITIONAL_PROPS: has_object = true; break;
        case K_UNIQUE_ITEMS:
            if (json_is_true(v)) push_json(s, I_UNIQUE, j, false);
            break;
        case K_CONTAINS:
            if (asserts_contains(j)) push_json(s, I_CONTAINS, j, false);
            break;
        case K_UNEVALUATED:
            if (!json_is_true(v)) schema_refuse(s, CHIMERE_EUNSUPPORTED, j, name, "not supported");
            break;
        case K_REQUIRED:
            json_array_foreach(v, i, child) {
                if (!json_is_string(child))
                    schema_refuse(s, CHIMERE_EFORMAT, j, name, "expected strings");
                else push_string_name(s, I_REQUIRED, child);
            }
            break;
        case K_PROP_NAMES: push_json(s, I_NAMES, v, false); break;
        case K_ALL_OF: json_array_foreach(v, i, child) push_literal(s, child, false); break;
        case K_NOT: push_literal(s, v, true); break;
        case K_REF: push_literal(s, schema_resolve(s, j), false); break;
        case K_ANY_OF:
            if (json_array_size(v) == 1) push_literal(s, json_array_get(v, 0), false);
            else n_branch++;
            break;
        case K_ENUM:
        case K_CONST:
        case K_ONE_OF: n_branch++; break;
        case K_IF: n_branch += json_object_get(j, "then") || json_object_get(j, "else"); break;
        case K_DEP_REQUIRED:
        case K_DEP_SCHEMAS: n_branch += (uint32_t)json_object_size(v); break;
        default: break;
        }
    }
    if (has_array) push_json(s, I_ARRAY, j, false);
    if (has_object) push_json(s, I_OBJECT, j, false);
    return n_branch;
}

/* Expands disjunction number `which` of schema j. */
static void expand_branch(struct expansion *x, const json_t *j, uint32_t which, uint32_t next,
                          uint32_t types);

static void expand_dependency(struct expansion *x, const json_t *holder, const char *name,
                              size_t n_name, const json_t *v, uint32_t next, uint32_t types) {
    struct schema *s = x->s;
    uint32_t mark = s->agenda.n;
    size_t i;
    json_t *child;
    push_name(s, I_FORBIDDEN, name, n_name);
    branch(x, mark, next, types);
    push_types(s, T_OBJ);
    push_name(s, I_REQUIRED, name, n_name);
    if (schema_is_one(v)) push_literal(s, v, false);
    else if (!json_is_array(v))
        schema_refuse(s, CHIMERE_EFORMAT, holder, "dependentRequired", "expected lists of strings");
    json_array_foreach(v, i, child) {
        if (!json_is_string(child))
            schema_refuse(s, CHIMERE_EFORMAT, holder, "dependentRequired",
                          "expected lists of strings");
        else push_string_name(s, I_REQUIRED, child);
    }
    branch(x, mark, next, types);
}

static void expand_branch(struct expansion *x, const json_t *j, uint32_t which, uint32_t next,
                          uint32_t types) {
    struct schema *s = x->s;
    const json_t *any = json_object_get(j, "anyOf"), *one = json_object_get(j, "oneOf");
    const json_t *values = json_object_get(j, "enum"),
                 *constant_value = json_object_get(j, "const");
    const json_t *test = json_object_get(j, "if"), *yes = json_object_get(j, "then");
    const json_t *no = json_object_get(j, "else"), *list;
    uint32_t mark = s->agenda.n;
    const char *key;
    json_t *child;
    size_t i, n_key;
    if (constant_value && which-- == 0) {
        expand_enum(x, j, &constant_value, 1, next, types);
        return;
    }
    if (values && which-- == 0) {
        size_t n = json_array_size(values);
        const json_t **all = mem_alloc_array(n + 1, sizeof *all);
        if (!all) grammar_nomem(&s->b);
        for (i = 0; all && i < n; i++) all[i] = json_array_get(values, i);
        if (all) expand_enum(x, values, all, n, next, types);
        mem_free(all);
        return;
    }
    if (any && json_array_size(any) > 1 && which-- == 0) {
        json_array_foreach(any, i, child) {
            push_literal(s, child, false);
            branch(x, mark, next, types);
        }
        return;
    }
    if (one && which-- == 0) {
        expand_one_of(x, one, next, types);
        return;
    }
    if (test && (yes || no) && which-- == 0) {
        push_literal(s, test, false);
        if (yes) push_literal(s, yes, false);
        branch(x, mark, next, types);
        push_literal(s, test, true);
        if (no) push_literal(s, no, false);
        branch(x, mark, next, types);
        return;
    }
    for (int pass = 0; pass < 2; pass++) {
        list = json_object_get(j, pass == 0 ? "dependentRequired" : "dependentSchemas");
        if (!list) continue;
        json_object_keylen_foreach((json_t *)list, key, n_key, child) {
            if (which-- == 0) {
                expand_dependency(x, j, key, n_key, child, next, types);
                return;
            }
        }
    }
}

/* Queues the n disjunctions of j as I_LITERAL items with n = which + 1. */
static void push_branches(struct schema *s, const json_t *j, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        push(s, (struct item){.kind = I_LITERAL, .json = j, .n = i + 1});
}

/* ---- negation ---- */

static void branch_count(struct expansion *x, uint32_t type, enum item_kind kind, uint32_t n,
                         uint32_t next, uint32_t types) {
    uint32_t mark = x->s->agenda.n;
    push_types(x->s, type);
    push_count(x->s, kind, n);
    branch(x, mark, next, types);
}

static void branch_json(struct expansion *x, uint32_t type, enum item_kind kind, const json_t *v,
                        bool negate, uint32_t next, uint32_t types) {
    uint32_t mark = x->s->agenda.n;
    push_types(x->s, type);
    push_json(x->s, kind, v, negate);
    branch(x, mark, next, types);
}

static void negate_one_of(struct expansion *x, const json_t *list, uint32_t next, uint32_t types) {
    struct schema *s = x->s;
    uint32_t mark = s->agenda.n;
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) push_literal(s, json_array_get(list, i), true);
    branch(x, mark, next, types);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++) {
            push_literal(s, json_array_get(list, i), false);
            push_literal(s, json_array_get(list, k), false);
            branch(x, mark, next, types);
        }
}

static void negate_object(struct expansion *x, const json_t *j, enum schema_keyword k,
                          const json_t *v, uint32_t next, uint32_t types) {
    struct schema *s = x->s;
    uint32_t mark = s->agenda.n;
    const char *key;
    size_t n_key, i;
    json_t *child;
    if (k == K_PROPERTIES) json_object_keylen_foreach((json_t *)v, key, n_key, child) {
            push_types(s, T_OBJ);
            push_name(s, I_REQUIRED, key, n_key);
            push(s,
                 (struct item){
                     .kind = I_PROP, .name = key, .n_name = n_key, .json = child, .negate = true});
            branch(x, mark, next, types);
        }
    if (k == K_REQUIRED) json_array_foreach(v, i, child) {
            push_types(s, T_OBJ);
            push_string_name(s, I_FORBIDDEN, child);
            branch(x, mark, next, types);
        }
    if (k == K_DEP_REQUIRED) json_object_keylen_foreach((json_t *)v, key, n_key, child) {
            size_t m;
            json_t *name;
            json_array_foreach(child, m, name) {
                push_types(s, T_OBJ);
                push_name(s, I_REQUIRED, key, n_key);
                push_string_name(s, I_FORBIDDEN, name);
                branch(x, mark, next, types);
            }
        }
    if (k == K_DEP_SCHEMAS) json_object_keylen_foreach((json_t *)v, key, n_key, child) {
            push_types(s, T_OBJ);
            push_name(s, I_REQUIRED, key, n_key);
            push_literal(s, child, true);
            branch(x, mark, next, types);
        }
    (void)j;
}

/* Adds one branch for each way in which a keyword of j can fail. */
static void negate_keyword(struct expansion *x, const json_t *j, const char *name, const json_t *v,
                           uint32_t next, uint32_t types) {
    struct schema *s = x->s;
    enum schema_keyword k = schema_keyword_of(s, j, name, v);
    uint32_t mark = s->agenda.n, n = 0;
    size_t i;
    json_t *child;
    if (s->b.rc) return;
    switch (k) {
    case K_TYPE: push_types(s, T_ANY & ~schema_types(s, j, v)), branch(x, mark, next, types); break;
    case K_CONST:
        push_unequal(s, v);
        if (json_is_string(v)) push_json(s, I_TEXTS, j, true);
        branch(x, mark, next, types);
        break;
    case K_ENUM:
        json_array_foreach(v, i, child) push_unequal(s, child);
        push_json(s, I_TEXTS, v, true);
        branch(x, mark, next, types);
        break;
    case K_MINIMUM:
    case K_EXCL_MINIMUM: branch_json(x, T_NUM, I_MAX, v, k == K_MINIMUM, next, types); break;
    case K_MAXIMUM:
    case K_EXCL_MAXIMUM: branch_json(x, T_NUM, I_MIN, v, k == K_MAXIMUM, next, types); break;
    case K_MULTIPLE_OF: branch_json(x, T_NUM, I_MULTIPLE, v, true, next, types); break;
    case K_MIN_LENGTH:
        if (schema_count(v, &n) && n) branch_count(x, T_STR, I_MAX_LENGTH, n - 1, next, types);
        break;
    case K_MAX_LENGTH:
        schema_count(v, &n), branch_count(x, T_STR, I_MIN_LENGTH, n + 1, next, types);
        break;
    case K_MIN_ITEMS:
        if (schema_count(v, &n) && n) branch_count(x, T_ARR, I_MAX_ITEMS, n - 1, next, types);
        break;
    case K_MAX_ITEMS:
        schema_count(v, &n), branch_count(x, T_ARR, I_MIN_ITEMS, n + 1, next, types);
        break;
    case K_MIN_PROPS:
        if (schema_count(v, &n) && n) branch_count(x, T_OBJ, I_MAX_PROPS, n - 1, next, types);
        break;
    case K_MAX_PROPS:
        schema_count(v, &n), branch_count(x, T_OBJ, I_MIN_PROPS, n + 1, next, types);
        break;
    case K_PATTERN: branch_json(x, T_STR, I_PATTERN, v, true, next, types); break;
    case K_FORMAT:
        if (schema_format_pattern(json_string_value(v)))
            branch_json(x, T_STR, I_FORMAT, v, true, next, types);
        break;
    case K_PREFIX_ITEMS:
        json_array_foreach(v, i, child) {
            push_types(s, T_ARR);
            push_count(s, I_MIN_ITEMS, (uint32_t)i + 1);
            push(s, (struct item){.kind = I_ITEM, .n = (uint32_t)i, .json = child, .negate = true});
            branch(x, mark, next, types);
        }
        break;
    case K_PROPERTIES:
    case K_REQUIRED:
    case K_DEP_REQUIRED:
    case K_DEP_SCHEMAS: negate_object(x, j, k, v, next, types); break;
    case K_ALL_OF:
        json_array_foreach(v, i, child) push_literal(s, child, true), branch(x, mark, next, types);
        break;
    case K_ANY_OF:
        json_array_foreach(v, i, child) push_literal(s, child, true);
        branch(x, mark, next, types);
        break;
    case K_ONE_OF: negate_one_of(x, v, next, types); break;
    case K_NOT: push_literal(s, v, false), branch(x, mark, next, types); break;
    case K_REF: push_literal(s, schema_resolve(s, j), true), branch(x, mark, next, types); break;
    case K_IF:
        for (int no = 0; no < 2; no++) {
            const json_t *then = json_object_get(j, no ? "else" : "then");
            if (!then) continue;
            push_literal(s, v, no);
            push_literal(s, then, true);
            branch(x, mark, next, types);
        }
        break;
    case K_CONTAINS: /* no item matches */
        if (!asserts_contains(j)) break;
        if (json_object_get(j, "minContains") || json_object_get(j, "maxContains"))
            schema_refuse(s, CHIMERE_EUNSUPPORTED, j, name,
                          "not supported where its negation is needed");
        push_types(s, T_ARR);
        push_json(s, I_ARRAY, schema_keep(s, json_pack("{s:{s:O}}", "items", "not", v)), false);
        branch(x, mark, next, types);
        break;
    case K_CONTAINS_COUNT:
    case K_NOTE:
    case K_THEN_ELSE: break;
    case K_UNIQUE_ITEMS:
        if (json_is_false(v)) break;
        /* fall through */
    default:
        if ((k == K_ITEMS || k == K_ADDITIONAL_PROPS || k == K_PROP_NAMES || k == K_UNEVALUATED) &&
            json_is_true(v))
            break;
        schema_refuse(s, CHIMERE_EUNSUPPORTED, j, name,
                      "not supported where its negation is needed");
    }
}

/* All numbers except v, and all values that are not numbers. */
static void negate_number(struct expansion *x, const json_t *v, uint32_t next, uint32_t types) {
    uint32_t mark = x->s->agenda.n;
    if (types & ~(uint32_t)T_NUM) {
        push_types(x->s, T_ANY & ~(uint32_t)T_NUM);
        branch(x, mark, next, types);
    }
    if (!(types & T_NUM)) return;
    branch_json(x, T_NUM, I_MAX, v, true, next, types);
    branch_json(x, T_NUM, I_MIN, v, true, next, types);
}

static void expand_literal(struct expansion *x, struct item it, uint32_t next, uint32_t types) {
    struct schema *s = x->s;
    const char *name;
    json_t *v;
    if (json_is_boolean(it.json)) {
        if (json_is_true(it.json) != it.negate) expand(x, next, types);
        return;
    }
    if (it.n) {
        expand_branch(x, it.json, it.n - 1, next, types);
        return;
    }
    if (it.negate && json_is_number(it.json)) {
        negate_number(x, it.json, next, types);
        return;
    }
    schema_refuse_cycle(s, it.json, 0);
    if (s->b.rc) return;
    if (!it.negate) {
        push_branches(s, it.json, push_assertions(s, it.json));
        if (!s->b.rc) expand(x, next, types);
        return;
    }
    json_object_foreach((json_t *)it.json, name, v) {
        if (!s->b.rc) negate_keyword(x, it.json, name, v, next, types);
    }
}

static bool is_repeated(const struct item *items, uint32_t i) {
    for (uint32_t k = 0; k < i; k++)
        if (items[k].kind == I_LITERAL && items[k].json == items[i].json &&
            items[k].negate == items[i].negate && items[k].n == items[i].n)
            return true;
    return false;
}

/* Processes the agenda from item `next` on; at its end there is a complete case. `types`: types that the earlier
 * items allow. */
static void expand(struct expansion *x, uint32_t next, uint32_t types) {
    struct schema *s = x->s;
    if (++x->depth > 4 * s->b.lim.depth)
        grammar_fail(&s->b, CHIMERE_ELIMIT, "schema: more than %u constraints on one value",
                     4 * s->b.lim.depth);
    for (; !s->b.rc; next++) {
        if (next - x->first >= SCHEMA_MAX_ITEM)
            grammar_fail(&s->b, CHIMERE_ELIMIT, "schema: more than %d constraints on one value",
                         SCHEMA_MAX_ITEM);
        if (next == s->agenda.n) {
            if (++s->n_case > SCHEMA_MAX_CASE)
                grammar_fail(&s->b, CHIMERE_ELIMIT,
                             "schema: more than %d combinations of alternatives", SCHEMA_MAX_CASE);
            uint32_t n = s->agenda.n - x->first;
            /* the case is copied, because fn may expand other conjunctions on the same agenda */
            struct item *items = mem_alloc_array((size_t)n + 1, sizeof *items);
            if (!items) grammar_nomem(&s->b);
            if (!s->b.rc) {
                if (n) memcpy(items, (struct item *)s->agenda.p + x->first, n * sizeof *items);
                x->fn(s, x->arg, items, n);
            }
            mem_free(items);
            break;
        }
        struct item it = ((struct item *)s->agenda.p)[next];
        if (!grammar_tick(&s->b, 1)) break;
        if (it.kind == I_TYPES) {
            types &= it.n;
            if (!types) break;
        }
        if (it.kind != I_LITERAL) continue;
        if (is_repeated((struct item *)s->agenda.p + x->first, next - x->first)) continue;
        expand_literal(x, it, next + 1, types);
        break;
    }
    x->depth--;
}

void schema_cases(struct schema *s, const struct literal *lits, uint32_t n, case_fn *fn,
                  void *arg) {
    struct expansion x = {s, fn, arg, s->agenda.n, 0};
    uint32_t before = s->n_case;
    if (s->b.rc) return;
    s->n_case = 0;
    for (uint32_t i = 0; i < n; i++) push_literal(s, lits[i].json, lits[i].negate);
    if (!s->b.rc) expand(&x, x.first, T_ANY);
    if (!s->b.rc) s->agenda.n = x.first;
    s->n_case = before;
}

struct emptiness {
    int depth;
    bool is_empty;
};

static void note_possible(struct schema *s, void *arg, const struct item *items, uint32_t n) {
    struct emptiness *e = arg;
    if (e->is_empty && !case_is_empty(s, items, n, e->depth)) e->is_empty = false;
}

bool schema_is_empty(struct schema *s, const struct literal *lits, uint32_t n, int depth) {
    struct emptiness e = {depth - 1, true};
    if (depth <= 0) return false;
    schema_cases(s, lits, n, note_possible, &e);
    return e.is_empty && !s->b.rc;
}
