/* jinja_value_impl.h: values of templates, the state of a render, and what jinja_value.c offers.
 *
 * Errors during a render stick in struct jr: the first one wins, functions then return none at once,
 * and loops look at r->rc. Values are small structs passed by value; what they point to lives in the
 * render's arena, in the program or in the JSON context, and is immutable but for namespaces, loops,
 * iterators, cyclers. */
#ifndef CHIMERE_TEXT_JINJA_JINJA_VALUE_IMPL_H
#define CHIMERE_TEXT_JINJA_JINJA_VALUE_IMPL_H

#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "text/jinja/jinja.h"

enum jv_kind {
    JV_MISSING, /* an argument that was not given; never seen by templates */
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
    JV_ITER, /* generator: read once */
    JV_VIEW, /* keys(), values(), items() */
    JV_NAMESPACE,
    JV_LOOP,
    JV_MACRO,
    JV_BUILTIN, /* global function or type */
    JV_METHOD,  /* bound */
    JV_CYCLER,
    JV_JOINER,
};

struct jstr {
    const char *p;       /* view: arena, program or context; valid UTF-8 */
    const uint8_t *from; /* [n] 1: from the template; NULL: all bytes are as `tmpl` says */
    size_t n;
    size_t n_char;        /* code points, SIZE_MAX: not counted yet */
    struct jstr_buf *buf; /* set when made by +: the bytes may be continued in place */
    bool tmpl;
    bool is_markup; /* made by safe or escape: + escapes what it is joined with */
};

struct jv {
    uint8_t kind;
    bool b; /* JV_BOOL; JV_DICT: a context object; JV_TUPLE: of groupby */
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
        const char *hint; /* JV_UNDEF: message for errors; view */
    };
};

struct jlist {
    struct jv *v; /* [n] */
    size_t n, cap;
    size_t next;      /* JV_ITER: the next one to give */
    const char *name; /* JV_ITER, JV_VIEW: type name, "dict_keys" */
    const char
        *error; /* JV_ITER: a generator that fails behind its last item; NULL: it just ends */
};
struct jpair {
    struct jv k, v;
};
struct jdict { /* insertion order; index made from 9 pairs on */
    struct jpair *items;
    uint32_t *index; /* [n_index] 1 + position, 0 empty */
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
    bool is_kept; /* a macro closed over it: it must not be reused */
};

struct jr {
    const struct jinja *j;
    const struct jinja_env *env;
    const struct jinja_limits *limits;
    struct err *e;
    int rc;
    struct arena arena;
    struct jv *context; /* [n_name] JV_MISSING where the context has none */
    struct jscope *scope;
    uint64_t n_step;
    uint32_t line; /* of the node being evaluated */
    uint32_t depth, n_eval;
    struct tm now;
    struct jv piped; /* what a filter block or set block feeds its filters */
    /* output under construction: captures nest, so one stack of bytes serves all */
    char *out;         /* owned [n_out], heap */
    uint8_t *out_from; /* owned [n_out] */
    size_t n_out, cap_out;
    size_t mark; /* begin of the innermost capture */
};

struct jkwv {
    struct jstr *name;
    struct jv v;
};
struct jcall { /* evaluated arguments */
    struct jv *pos;
    struct jkwv *kw;
    size_t n_pos, n_kw;
};
/* A filter, test, method or global. With `params` (space separated names, '*' first: positional
 * only), v[] holds one value per name, JV_MISSING where not given; else the function reads `call`. */
struct jbuiltin {
    const char *name;
    struct jv (*fn)(struct jr *r, struct jv self, struct jv *v, const struct jcall *call);
    const char *params;
    uint8_t n_required;
    uint8_t tag; /* free for the function's use */
};
#define JINJA_MAX_PARAMS 8

int jr_fail(struct jr *r, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool jr_step(struct jr *r, size_t n); /* false: failed now or before */
void *jr_alloc(struct jr *r, size_t n);
/* Recursion guard for values inside values; each true needs a jr_leave. */
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
/* A generator over list. A template error that came up while its items were made is put off until they
 * are asked for, as generators are lazy in Python. */
struct jv jv_iter(struct jr *r, struct jv list, const char *name);
void jlist_push(struct jr *r, struct jlist *l, struct jv v);
struct jv jv_dict(struct jr *r, enum jv_kind kind);
void jdict_set(struct jr *r, struct jdict *d, struct jv k, struct jv v);
struct jv *jdict_find(struct jr *r, const struct jdict *d, struct jv k);
struct jv *jdict_find_text(struct jr *r, const struct jdict *d, const char *k, size_t n);
bool jv_truth(struct jr *r, struct jv v);
bool jv_eq(struct jr *r, struct jv a, struct jv b);
int jv_cmp(struct jr *r, struct jv a, struct jv b, const char *op); /* fails where unordered */
int jnum_cmp(struct jv a, struct jv b);      /* -1, 0, 1; 2: not a number is involved */
uint64_t jv_hash(struct jr *r, struct jv v); /* fails for unhashable */
const char *jv_type_name(struct jv v);
int64_t jv_len(struct jr *r, struct jv v); /* -1: has none */
/* All items as a fresh or shared list; consumes iterators; fails where not iterable. */
struct jlist *jv_items(struct jr *r, struct jv v);
bool jv_is_iterable(struct jv v);
struct jv jv_sorted(struct jr *r, const struct jlist *items, const struct jv *keys, bool reverse);

#endif
