/* jinja_builtin_impl.h: operators, tables of built-ins, calls, JSON. */
#ifndef CHIMERE_TEXT_JINJA_JINJA_BUILTIN_IMPL_H
#define CHIMERE_TEXT_JINJA_JINJA_BUILTIN_IMPL_H

#include "text/jinja/jinja_value_impl.h"

/* jinja_ops.c */
struct jv j_binary(struct jr *r, int op, struct jv a, struct jv b);
struct jv j_neg(struct jr *r, struct jv a);
bool j_in(struct jr *r, struct jv a, struct jv container);
struct jv j_getattr(struct jr *r, struct jv o, struct jstr *name);
struct jv j_getitem(struct jr *r, struct jv o, struct jv key);
struct jv j_getslice(struct jr *r, struct jv o, struct jv start, struct jv stop, struct jv step);
bool j_compare(struct jr *r, int op, struct jv a, struct jv b);

/* jinja_method.c, jinja_filter.c, jinja_test.c, jinja_global.c: tables */
const struct jbuiltin *j_find_method(enum jv_kind kind, const char *name, size_t n);
const struct jbuiltin *j_find_filter(const char *name, size_t n);
const struct jbuiltin *j_find_test(const char *name, size_t n);
const struct jbuiltin *j_find_global(const char *name, size_t n);
/* the rest of the filters, in jinja_filter_seq.c */
extern const struct jbuiltin jinja_filters_seq[];
struct jv j_method_unsafe(struct jr *r, struct jv self, struct jv *v, const struct jcall *call);

/* jinja_eval.c */
struct jv j_call(struct jr *r, struct jv fn, const struct jcall *call);
struct jv j_call_builtin(struct jr *r, const struct jbuiltin *fn, struct jv self,
                         const struct jcall *call);
int j_run(struct jr *r); /* runs the whole template; the output is in r->out */
struct jv j_loop_attr(struct jr *r, struct jloop *loop, const struct jstr *name);
struct jv j_macro_attr(struct jr *r, const struct jmacro *macro, const struct jstr *name);
struct jv j_undefined_error(struct jr *r, struct jv undef); /* fails with the message of undef */
struct jv j_loop_call(struct jr *r, struct jloop *loop, struct jv items);
size_t j_loop_length(const struct jloop *loop);

/* jinja_json.c */
struct jv j_from_json(struct jr *r, json_t *json, const char *top, const char *key);
struct jv j_tojson(struct jr *r, struct jv self, struct jv *v, const struct jcall *call);

#endif
