/* grammar_schema_impl.h: a schema being compiled to an automaton, shared by grammar_schema*.c.
 *
 * A literal is a schema or its negation; a conjunction is a set of literals that all hold for one value. Every
 * conjunction becomes one rule, so that recursion through $ref ends. To emit the rule, the conjunction is expanded
 * to cases. A case is a list of items, each of them a plain constraint, in which one branch was chosen for every
 * disjunction (anyOf, enum, if, a negated list of keywords). Cases are exact: a value satisfies the conjunction
 * iff it satisfies one of them. */
#ifndef CHIMERE_TEXT_GRAMMAR_GRAMMAR_SCHEMA_IMPL_H
#define CHIMERE_TEXT_GRAMMAR_GRAMMAR_SCHEMA_IMPL_H

#include <jansson.h>

#include "text/grammar/grammar_dfa.h"
#include "text/grammar/grammar_impl.h"
#include "text/grammar/grammar_number.h"

#define SCHEMA_MAX_CASE 4096  /* cases of one conjunction */
#define SCHEMA_MAX_ITEM 20000 /* items of one case */
#define SCHEMA_MAX_PLACE 4096 /* positions of an array times matches of `contains` */
#define SCHEMA_MAX_VALUE 256  /* values of the items with uniqueItems */

enum value_type {
    T_NULL = 1,
    T_TRUE = 2,
    T_FALSE = 4,
    T_INT = 8,
    T_FRAC = 16,
    T_STR = 32,
    T_ARR = 64,
    T_OBJ = 128,
    T_BOOL = T_TRUE | T_FALSE,
    T_NUM = T_INT | T_FRAC,
    T_ANY = 255
};

enum item_kind {
    I_LITERAL, /* json, negate: still to be expanded */
    I_TYPES,   /* n: only these types */
    I_MIN,
    I_MAX,
    I_MULTIPLE, /* json; negate: the bound itself is excluded */
    I_MIN_LENGTH,
    I_MAX_LENGTH, /* n */
    I_PATTERN,
    I_FORMAT,
    I_TEXTS, /* json; negate: must not match */
    I_MIN_ITEMS,
    I_MAX_ITEMS, /* n */
    I_ARRAY,     /* json: schema whose prefixItems and items apply */
    I_ITEM,      /* n: position; json, negate: literal of that item */
    I_UNIQUE,
    I_CONTAINS, /* json: schema whose uniqueItems, whose *contains keywords apply */
    I_MIN_PROPS,
    I_MAX_PROPS, /* n */
    I_OBJECT,    /* json: schema whose *properties keywords apply */
    I_REQUIRED,
    I_FORBIDDEN, /* name */
    I_PROP,      /* name; json, negate: literal of its value */
    I_NAMES,     /* json, negate: literal of every name */
};

struct item {
    uint8_t kind;
    bool negate;
    uint32_t n;
    const json_t *json; /* borrowed */
    const char *name;   /* borrowed */
    size_t n_name;
};

struct literal {        /* compared as bytes when sorted into a set */
    const json_t *json; /* borrowed */
    uintptr_t negate;
};

struct schema {
    struct grammar_builder b;
    const json_t *given;             /* borrowed: the schema as given */
    const json_t *root;              /* borrowed: the schema converted to draft 2020-12 */
    const char *root_id;             /* borrowed, or NULL */
    struct map rules;                /* literal set -> rule */
    struct map strings;              /* key of a string constraint -> rule */
    struct map acyclic;              /* schema pointer -> 1 being visited, 2 done */
    struct grammar_vec jobs;         /* struct job: rules that are not emitted yet */
    struct grammar_vec sets;         /* literals of the jobs, stored back to back */
    struct grammar_vec made;         /* json_t *: owned synthetic schemas */
    struct map made_for;             /* value pointer -> index in made */
    struct grammar_vec agenda;       /* struct item: stack of the cases being expanded */
    uint32_t n_case, n_done;         /* number of cases being expanded; number of jobs done */
    uint32_t space;                  /* rule: bounded whitespace */
    uint32_t free_string;            /* rule: any string */
    const struct grammar_tags *tags; /* borrowed: for the parameters of calls */
    bool has_inner_id;
};

/* Called with the items of one case; items of other cases are before `first`. */
typedef void case_fn(struct schema *s, void *arg, const struct item *items, uint32_t n);

enum schema_keyword {
    K_NOTE, /* no assertion about the value */
    K_TYPE,
    K_ENUM,
    K_CONST,
    K_MINIMUM,
    K_MAXIMUM,
    K_EXCL_MINIMUM,
    K_EXCL_MAXIMUM,
    K_MULTIPLE_OF,
    K_MIN_LENGTH,
    K_MAX_LENGTH,
    K_PATTERN,
    K_FORMAT,
    K_MIN_ITEMS,
    K_MAX_ITEMS,
    K_PREFIX_ITEMS,
    K_ITEMS,
    K_UNIQUE_ITEMS,
    K_MIN_PROPS,
    K_MAX_PROPS,
    K_PROPERTIES,
    K_PATTERN_PROPS,
    K_ADDITIONAL_PROPS,
    K_REQUIRED,
    K_PROP_NAMES,
    K_DEP_REQUIRED,
    K_DEP_SCHEMAS,
    K_ALL_OF,
    K_ANY_OF,
    K_ONE_OF,
    K_NOT,
    K_IF,
    K_THEN_ELSE,
    K_REF,
    K_CONTAINS,
    K_CONTAINS_COUNT,
    K_UNEVALUATED,
    K_UNSUPPORTED
};

/* ---- grammar_schema.c ---- */
/* Sets a sticky error that names a keyword and the position of its schema. */
void schema_refuse(struct schema *s, int code, const json_t *at, const char *keyword,
                   const char *why);
bool schema_is_one(const json_t *v); /* an object or a boolean */
/* Returns the keyword called name in schema j, after checking its value; K_NOTE if it is unknown. */
enum schema_keyword schema_keyword_of(struct schema *s, const json_t *j, const char *name,
                                      const json_t *v);
bool schema_is_note(const char *name);
bool schema_count(const json_t *v, uint32_t *out);
uint32_t schema_types(struct schema *s, const json_t *j, const json_t *v); /* value of `type` */
const json_t *schema_resolve(struct schema *s, const json_t *j);           /* its $ref */
/* Refuses a schema that applies itself to the same value, because validation would not end. */
void schema_refuse_cycle(struct schema *s, const json_t *j, uint32_t depth);
/* Returns a schema of types, counts and constants that is satisfied only by values equal to `value`, an array or
 * object. */
const json_t *schema_of_constant(struct schema *s, const json_t *value);

/* Takes ownership of `made` and keeps it until the grammar is built. NULL: out of memory. */
const json_t *schema_keep(struct schema *s, json_t *made);
/* Appends {const: V} for each value V that the conjunction allows, and possibly others. Returns false if there are
 * more than SCHEMA_MAX_VALUE values or they are not known. */
bool schema_values(struct schema *s, const struct literal *lits, uint32_t n, json_t *out);

/* Converts the schema to draft 2020-12 and stores it in s->root; false: refused. */
bool schema_set_root(struct schema *s, const json_t *root);
/* Calls schema_set_root, then emits the rule for its values and all rules that it needs; returns the rule. */
uint32_t schema_root_rule(struct schema *s, const json_t *root);
/* Builds a grammar whose start rule is the result of emit. */
typedef uint32_t schema_emit_fn(struct schema *s, void *arg);
int schema_build(struct grammar **out, schema_emit_fn *emit, void *arg,
                 const struct grammar_limits *lim, struct err *e);

/* ---- grammar_schema_draft.c ---- */
/* Returns a copy in which forms of older drafts are converted to draft 2020-12; NULL: out of memory. */
json_t *schema_modern(const json_t *root);

/* grammar_schema_uneval.c: replaces unevaluatedProperties if the result is equivalent and small. */
void schema_close_unevaluated(json_t *root);

/* ---- grammar_schema_expand.c ---- */
/* Calls fn for every case of the conjunction of lits[n]. */
void schema_cases(struct schema *s, const struct literal *lits, uint32_t n, case_fn *fn, void *arg);
/* Returns true only if it is certain that no value satisfies the conjunction. */
bool schema_is_empty(struct schema *s, const struct literal *lits, uint32_t n, int depth);

/* ---- grammar_schema_case.c; its queries, and strings: grammar_case_impl.h ---- */
void literal_push(struct schema *s, struct grammar_vec *v, const json_t *json, bool negate);

/* ---- grammar_schema_emit.c ---- */
/* Returns the rule of a conjunction; a new rule is emitted later. */
uint32_t schema_rule(struct schema *s, struct literal *lits, uint32_t n);
void schema_emit_prelude(struct schema *s);
void schema_emit_jobs(struct schema *s);
uint32_t schema_emit_root(struct schema *s, uint32_t value);
/* Returns the rule for a call's arguments under this schema, as JSON, or as parameters with s->tags. */
uint32_t schema_args_rule(struct schema *s, const json_t *root, bool tags);
void schema_push_node(struct schema *s, struct grammar_vec *v, uint32_t node);
const char *schema_format_pattern(const char *name); /* grammar_format.c; NULL: unknown */

#endif
