/* jinja_value_impl.h: values of templates, the state of a render, and the functions of jinja_value.c.
 *
 * Errors during a render are sticky in struct jr: the first one is kept, functions then return none at once, and
 * loops check r->rc. Values are small structs passed by value. What they point to is in the render's arena, in the
 * program or in the JSON context. It is immutable, except namespaces, loops, iterators and cyclers. */
#ifndef CHIMERE_TEXT_JINJA_JINJA_VALUE_IMPL_H
#define CHIMERE_TEXT_JINJA_JINJA_VALUE_IMPL_H

#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "text/jinja/jinja.h"

enum jv_kind {
    JV_MISSING, /* an argument that was not given; templates never see it */
    JV_UNDEF,
    JV_NONE,
    JV_BOOL,
    JV_INT,
    JV_FLOAT,
    JV_STR,
    JV_LIST,
    JV_TUPLE,
    JV_DICT,
    JV_RANGE,
    JV_ITER, /* a generator: can be read once */
    JV_VIEW, /* keys(), values(), items() */
    JV_NAMESPACE,
    JV_LOOP,
    JV_MACRO,
    JV_BUILTIN, /* global function or type */
    JV_METHOD,  /* a bound method */
    JV_CYCLER,
    JV_JOINER,
};

struct jstr {
    const char *p;       /* view: arena, program or context; valid UTF-8 */
    const uint8_t *from; /* [n] 1: from the template; NULL: all bytes are as `tmpl` states */
    size_t n;
    size_t n_char;        /* code points, SIZE_MAX: not counted yet */
    struct jstr_buf *buf; /* set if the string was made by +: bytes may be appended in place */
    bool tmpl;
    bool is_markup; /* made by safe or escape: + escapes the other operand */
};

struct jv {
    uint8_t kind;
    bool b; /* JV_BOOL: the value; JV_DICT: a context object; JV_TUPLE: made by groupby */
    union {
        int64_t i;
        double f;
        struct jstr *s;
        struct jlist *l; /* JV_LIST, JV_TUPLE, JV_ITER, JV_VIEW */
        struct jdict *d; /* JV_DICT, JV_NAMESPACE */
        struct jrange *range;
        struct jloop *loop;
        struct jmacro *macro;
        struct jcycler *cycler; /* JV_CYCLER, JV_JOINER */
        const struct jbuiltin *fn;
        struct jmethod *method;
        const char *hint; /* JV_UNDEF: error message; view */
    };
};

struct jlist {
    struct jv *v; /* [n] */
    size_t n, cap;
    size_t next;      /* JV_ITER: index of the next item */
    const char *name; /* JV_ITER, JV_VIEW: type name, "dict_keys" */
    /* JV_ITER: error of a generator that fails after its last item; NULL: it ends normally */
    const char *error;
};
struct jpair {
    struct jv k, v;
};
struct jdict { /* insertion order; the index is made from 9 pairs on */
    struct jpair *items;
    uint32_t *index; /* [n_index] 1 + position, 0: empty */
    size_t n, cap, n_index;
};
struct jrange {
    int64_t start, stop, step, n;
};
struct jcycler {
    struct jv *v; /* [n]; joiner: v[0] is the separator */
    size_t n, pos;
};
struct jmethod {
    struct jv self;
    const struct jbuiltin *fn;
};

/* ---- render state ---- */

struct jscope {
    struct jscope *up;
    uint32_t *ids;
    struct jv *vals;
    uint32_t n, cap;
    bool is_kept; /* a macro refers to it, so it must not be reused */
};

struct jr {
    const struct jinja *j;
    const struct jinja_env *env;
    const struct jinja_limits *limits;
    struct err *e;
    int rc;
    struct arena arena;
    struct jv *context; /* [n_name] JV_MISSING if the context has no such name */
    struct jscope *scope;
    uint64_t n_step;
    uint32_t line; /* line of the node being evaluated */
    uint32_t depth, n_eval;
    struct tm now;
    struct jv piped; /* input of the filters of a filter block or set block */
    /* output under construction: captures are nested, so one stack of bytes is enough */
    char *out;         /* owned [n_out], heap */
    uint8_t *out_from; /* owned [n_out] */
    size_t n_out, cap_out;
    size_t mark; /* start of the innermost capture */
};

struct jkwv {
    struct jstr *name;
    struct jv v;
};
struct jcall { /* evaluated arguments of a call */
    struct jv *pos;
    struct jkwv *kw;
    size_t n_pos, n_kw;
};
/* A filter, test, method or global function. With `params` (names separated by spaces, '*' first: positional
 * only), v[] has one value per name, JV_MISSING if not given. Otherwise the function reads `call`. */
struct jbuiltin {
    const char *name;
    struct jv (*fn)(struct jr *r, struct jv self, struct jv *v, const struct jcall *call);
    const char *params;
    uint8_t n_required;
    uint8_t tag; /* for use by the function */
};
#define JINJA_MAX_PARAMS 8

int jr_fail(struct jr *r, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool jr_step(struct jr *r, size_t n); /* false: failed now or earlier */
void *jr_alloc(struct jr *r, size_t n);
/* Recursion guard for nested values; each call that returns true needs a jr_leave. */
bool jr_enter(struct jr *r);
void jr_leave(struct jr *r);

/* jinja_value.c */
static inline struct jv jv_none(void) { return (struct jv){.kind = JV_NONE}; }
static inline struct jv jv_missing(void) { return (struct jv){.kind = JV_MISSING}; }
static inline struct jv jv_bool(bool b) { return (struct jv){.kind = JV_BOOL, .b = b}; }
static inline struct jv jv_int(int64_t i) { return (struct jv){.kind = JV_INT, .i = i}; }
static inline struct jv jv_float(double f) { return (struct jv){.kind = JV_FLOAT, .f = f}; }
static inline bool jv_is_numeric(struct jv v) { return v.kind >= JV_BOOL && v.kind <= JV_FLOAT; }
static inline bool jv_is_integral(struct jv v) { return v.kind == JV_BOOL || v.kind == JV_INT; }
static inline int64_t jv_as_int(struct jv v) { return v.kind == JV_BOOL ? v.b : v.i; }
static inline double jv_as_float(struct jv v) {
    return v.kind == JV_FLOAT ? v.f : (double)jv_as_int(v);
}
struct jv jv_undef(struct jr *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct jv jv_list(struct jr *r, enum jv_kind kind, size_t n); /* n items, JV_NONE */
/* Returns a generator over list. A template error that occurred while its items were made is reported only when
 * they are read, because generators in Python are lazy. */
struct jv jv_iter(struct jr *r, struct jv list, const char *name);
void jlist_push(struct jr *r, struct jlist *l, struct jv v);
struct jv jv_dict(struct jr *r, enum jv_kind kind);
void jdict_set(struct jr *r, struct jdict *d, struct jv k, struct jv v);
struct jv *jdict_find(struct jr *r, const struct jdict *d, struct jv k);
struct jv *jdict_find_text(struct jr *r, const struct jdict *d, const char *k, size_t n);
bool jv_truth(struct jr *r, struct jv v);
bool jv_eq(struct jr *r, struct jv a, struct jv b);
/* fails if the values have no order */
int jv_cmp(struct jr *r, struct jv a, struct jv b, const char *op);
int jnum_cmp(struct jv a, struct jv b);      /* -1, 0, 1; 2: one of them is not a number */
uint64_t jv_hash(struct jr *r, struct jv v); /* fails if the value has no hash */
const char *jv_type_name(struct jv v);
int64_t jv_len(struct jr *r, struct jv v); /* -1: it has no length */
/* Returns all items as a new or shared list; consumes iterators; fails if the value is not iterable. */
struct jlist *jv_items(struct jr *r, struct jv v);
bool jv_is_iterable(struct jv v);
struct jv jv_sorted(struct jr *r, const struct jlist *items, const struct jv *keys, bool reverse);

#endif
