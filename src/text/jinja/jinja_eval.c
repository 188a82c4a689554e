/* jinja_eval.c: walks the tree: scopes, expressions, statements, macros, loops, global functions.
 *
 * Names are stored in a chain of scopes that follows the template's blocks. A loop iteration, a macro call, a
 * with, set or filter block and a generation block open a scope; `if` does not. The parent of a macro's scope is
 * the scope in which the macro was defined. Names that no scope contains come from the context, then from the
 * global functions. */
#include <stdio.h>
#include <string.h>

#include "text/jinja/jinja_impl.h"

#define MAX_EVAL_DEPTH 2500 /* depth of nested evaluation: bounds the C stack */

struct jmacro {
    const struct jmacro_def *def;
    struct jscope *scope; /* the scope in which it was defined */
};
struct jloop {
    const struct jnode *node; /* JN_FOR */
    const struct jlist *items;
    struct jscope *scope; /* the scope around the loop */
    size_t i, depth0;
    struct jlist *changed; /* last arguments of changed() */
};
enum flow { NEXT, BREAK, CONTINUE };

static struct jv eval(struct jr *r, const struct jnode *n);
static enum flow exec_list(struct jr *r, struct jnode *const *list, uint32_t n);

/* ---- scopes ---- */

static struct jscope *scope_open(struct jr *r, struct jscope *up) {
    struct jscope *s = jr_alloc(r, sizeof *s);
    if (!s) return up;
    s->up = up;
    return s;
}

static void scope_set(struct jr *r, uint32_t id, struct jv v) {
    struct jscope *s = r->scope;
    if (r->rc) return;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->ids[i] == id) {
            s->vals[i] = v;
            return;
        }
    if (s->n == s->cap) {
        uint32_t cap = s->cap ? s->cap * 2 : 8;
        uint32_t *ids = jr_alloc(r, cap * sizeof *ids);
        struct jv *vals = jr_alloc(r, cap * sizeof *vals);
        if (!ids || !vals) return;
        if (s->n) {
            memcpy(ids, s->ids, s->n * sizeof *ids);
            memcpy(vals, s->vals, s->n * sizeof *vals);
        }
        s->ids = ids;
        s->vals = vals;
        s->cap = cap;
    }
    s->ids[s->n] = id;
    s->vals[s->n++] = v;
}

static void scope_hide(struct jr *r, const struct jhidden *hidden) {
    for (uint32_t i = 0; i < hidden->n && !r->rc; i++) scope_set(r, hidden->ids[i], jv_missing());
}

static struct jv undefined_name(struct jr *r, uint32_t id) {
    const struct jstr *name = r->j->names[id];
    return jv_undef(r, "'%.*s' is undefined", (int)(name->n > 80 ? 80 : name->n), name->p);
}

static struct jv lookup(struct jr *r, uint32_t id) {
    for (const struct jscope *s = r->scope; s; s = s->up)
        for (uint32_t i = 0; i < s->n; i++)
            if (s->ids[i] == id)
                return s->vals[i].kind == JV_MISSING ? undefined_name(r, id) : s->vals[i];
    if (r->context[id].kind != JV_MISSING) return r->context[id];
    const struct jstr *name = r->j->names[id];
    const struct jbuiltin *g = j_find_global(name->p, name->n);
    if (g) return (struct jv){.kind = JV_BUILTIN, .fn = g};
    return undefined_name(r, id);
}

static void scope_keep(struct jr *r) {
    for (struct jscope *s = r->scope; s && !s->is_kept; s = s->up) s->is_kept = true;
}

struct jv j_undefined_error(struct jr *r, struct jv undef) {
    jr_fail(r, CHIMERE_EFORMAT, "%s", undef.hint ? undef.hint : "value is undefined");
    return jv_none();
}

/* ---- calls ---- */

static void push_kw(struct jr *r, struct jcall *c, struct jstr *name, struct jv v) {
    struct jkwv *kw = jr_alloc(r, (c->n_kw + 1) * sizeof *kw);
    if (!kw) return;
    if (c->n_kw) memcpy(kw, c->kw, c->n_kw * sizeof *kw);
    kw[c->n_kw] = (struct jkwv){name, v};
    c->kw = kw;
    c->n_kw++;
}

static void eval_stars(struct jr *r, const struct jargs *a, struct jcall *out) {
    if (a->star) {
        const struct jlist *more = jv_items(r, eval(r, a->star));
        struct jv *pos = jr_alloc(r, (out->n_pos + more->n + 1) * sizeof *pos);
        if (!pos) return;
        if (out->n_pos) memcpy(pos, out->pos, out->n_pos * sizeof *pos);
        if (more->n) memcpy(pos + out->n_pos, more->v, more->n * sizeof *pos);
        out->pos = pos;
        out->n_pos += more->n;
    }
    if (a->star2) {
        struct jv d = eval(r, a->star2);
        if (!r->rc && d.kind != JV_DICT)
            jr_fail(r, CHIMERE_EFORMAT, "argument after ** must be a mapping");
        for (size_t i = 0; !r->rc && i < d.d->n; i++)
            push_kw(r, out, jv_to_str(r, d.d->items[i].k), d.d->items[i].v);
    }
}

static struct jcall eval_args(struct jr *r, const struct jargs *a) {
    struct jcall out = {0};
    if (!a || r->rc) return out;
    out.pos = jr_alloc(r, (a->n_pos + 1) * sizeof *out.pos);
    out.kw = jr_alloc(r, (a->n_kw + 1) * sizeof *out.kw);
    if (r->rc) return out;
    for (uint32_t i = 0; i < a->n_pos && !r->rc; i++) out.pos[i] = eval(r, a->pos[i]);
    out.n_pos = a->n_pos;
    for (uint32_t i = 0; i < a->n_kw && !r->rc; i++)
        out.kw[i] = (struct jkwv){a->kw[i].name, eval(r, a->kw[i].value)};
    out.n_kw = a->n_kw;
    eval_stars(r, a, &out);
    return out;
}

/* Returns the position of a keyword in a list of parameter names, -1 if it is not in the list. */
static int find_param(const char *params, const struct jstr *name) {
    int i = 0;
    if (*params == '*') return -1;
    for (const char *p = params; *p; i++) {
        size_t k = strcspn(p, " ");
        if (jstr_eq(name, p, k)) return i;
        p += k + (p[k] == ' ');
    }
    return -1;
}

static int count_params(const char *params) {
    int n = *params != 0;
    for (; *params; params++) n += *params == ' ';
    return n;
}

struct jv j_call_builtin(struct jr *r, const struct jbuiltin *fn, struct jv self,
                         const struct jcall *call) {
    struct jv v[JINJA_MAX_PARAMS];
    if (!jr_step(r, 1)) return jv_none();
    if (!fn->params) return fn->fn(r, self, NULL, call);
    size_t n = (size_t)count_params(fn->params);
    for (size_t i = 0; i < JINJA_MAX_PARAMS; i++)
        v[i] = i < call->n_pos && i < n ? call->pos[i] : jv_missing();
    if (call->n_pos > n) {
        jr_fail(r, CHIMERE_EFORMAT, "%s takes at most %zu arguments (%zu given)", fn->name, n,
                call->n_pos);
        return jv_none();
    }
    for (size_t i = 0; i < call->n_kw; i++) {
        int at = find_param(fn->params, call->kw[i].name);
        if (at < 0 || v[at].kind != JV_MISSING) {
            const struct jstr *k = call->kw[i].name;
            jr_fail(r, CHIMERE_EFORMAT, "%s got an unexpected keyword argument '%.*s'", fn->name,
                    (int)(k->n > 80 ? 80 : k->n), k->p);
            return jv_none();
        }
        v[at] = call->kw[i].v;
    }
    for (size_t i = 0; i < fn->n_required; i++)
        if (v[i].kind == JV_MISSING) {
            jr_fail(r, CHIMERE_EFORMAT, "%s wants at least %u arguments", fn->name, fn->n_required);
            return jv_none();
        }
    return fn->fn(r, self, v, call);
}

static bool take_kw(const struct jcall *call, const struct jstr *name, bool *used, struct jv *v) {
    for (size_t i = 0; i < call->n_kw; i++)
        if (jstr_eq(name, call->kw[i].name->p, call->kw[i].name->n)) {
            used[i] = true;
            *v = call->kw[i].v;
            return true;
        }
    return false;
}

/* Binds varargs, kwargs and caller of a macro call; refuses other remaining arguments. */
static void bind_rest(struct jr *r, const struct jmacro_def *m, const struct jcall *call,
                      bool *used) {
    struct jstr caller = {.p = "caller", .n = 6};
    struct jv v;
    if (m->uses_caller && !m->has_caller_param) {
        if (!take_kw(call, &caller, used, &v) || v.kind == JV_NONE)
            v = jv_undef(r, "No caller defined");
        scope_set(r, r->j->id_caller, v);
    }
    struct jv rest = jv_dict(r, JV_DICT);
    for (size_t i = 0; i < call->n_kw && !r->rc; i++)
        if (!used[i])
            jdict_set(r, rest.d, (struct jv){.kind = JV_STR, .s = call->kw[i].name}, call->kw[i].v);
    if (r->rc) return;
    const char *name = m->name ? m->name->p : "caller";
    if (m->uses_kwargs) scope_set(r, r->j->id_kwargs, rest);
    else if (rest.d->n)
        jr_fail(r, CHIMERE_EFORMAT, "macro '%.60s' takes no keyword argument '%.60s'", name,
                rest.d->items[0].k.s->p);
    if (m->uses_varargs) {
        struct jv more = jv_list(r, JV_TUPLE, 0);
        for (size_t i = m->n_param; i < call->n_pos && !r->rc; i++)
            jlist_push(r, more.l, call->pos[i]);
        scope_set(r, r->j->id_varargs, more);
    } else if (call->n_pos > m->n_param) {
        jr_fail(r, CHIMERE_EFORMAT, "macro '%.60s' takes not more than %u argument(s)", name,
                m->n_param);
    }
}

static struct jv call_macro(struct jr *r, const struct jmacro *macro, const struct jcall *call) {
    const struct jmacro_def *m = macro->def;
    struct jscope *outer = r->scope;
    if (!jr_enter(r)) return jv_none();
    bool *used = jr_alloc(r, call->n_kw + 1);
    r->scope = scope_open(r, macro->scope);
    scope_hide(r, &m->hidden);
    for (uint32_t i = 0; i < m->n_param && used && !r->rc; i++) {
        struct jv v = jv_missing();
        if (i < call->n_pos) v = call->pos[i];
        else if (!take_kw(call, m->params[i].text, used, &v) && m->params[i].def)
            v = eval(r, m->params[i].def);
        if (v.kind == JV_MISSING)
            v = jv_undef(r, "parameter '%.80s' was not provided", m->params[i].text->p);
        scope_set(r, m->params[i].name, v);
    }
    if (!r->rc) bind_rest(r, m, call, used);
    size_t mark = jb_begin(r);
    if (!r->rc) exec_list(r, m->body, m->n_body);
    struct jv out = jb_end(r, mark);
    r->scope = outer;
    jr_leave(r);
    return out;
}

struct jv j_call(struct jr *r, struct jv fn, const struct jcall *call) {
    if (r->rc) return jv_none();
    switch ((enum jv_kind)fn.kind) {
    case JV_MACRO: return call_macro(r, fn.macro, call);
    case JV_BUILTIN: return j_call_builtin(r, fn.fn, jv_none(), call);
    case JV_METHOD: return j_call_builtin(r, fn.method->fn, fn.method->self, call);
    case JV_LOOP:
        if (call->n_pos == 1 && !call->n_kw) return j_loop_call(r, fn.loop, call->pos[0]);
        jr_fail(r, CHIMERE_EFORMAT, "loop(...) takes one sequence");
        return jv_none();
    case JV_JOINER:
        if (fn.cycler->pos++) return fn.cycler->v[0];
        return jv_view(r, "", 0, true);
    case JV_UNDEF: return j_undefined_error(r, fn);
    default:
        jr_fail(r, CHIMERE_EFORMAT, "'%s' object is not callable", jv_type_name(fn));
        return jv_none();
    }
}

/* ---- loop variable ---- */

size_t j_loop_length(const struct jloop *loop) { return loop->items->n; }

static struct jv loop_cycle(struct jr *r, struct jv self, struct jv *v, const struct jcall *call) {
    (void)v;
    if (call->n_pos) return call->pos[self.loop->i % call->n_pos];
    jr_fail(r, CHIMERE_EFORMAT, "no items for cycling given");
    return jv_none();
}

static struct jv loop_changed(struct jr *r, struct jv self, struct jv *v,
                              const struct jcall *call) {
    (void)v;
    struct jlist *old = self.loop->changed;
    bool same = old && old->n == call->n_pos;
    for (size_t i = 0; same && i < call->n_pos; i++) same = jv_eq(r, old->v[i], call->pos[i]);
    if (same) return jv_bool(false);
    struct jv now = jv_list(r, JV_TUPLE, call->n_pos);
    if (r->rc) return jv_none();
    if (call->n_pos) memcpy(now.l->v, call->pos, call->n_pos * sizeof *call->pos);
    self.loop->changed = now.l;
    return jv_bool(true);
}

static const struct jbuiltin loop_methods[] = {
    {"cycle", loop_cycle, NULL, 0, 0},
    {"changed", loop_changed, NULL, 0, 0},
};

struct jv j_loop_attr(struct jr *r, struct jloop *l, const struct jstr *name) {
    size_t n = l->items->n;
    const struct {
        const char *name;
        size_t value;
    } numbers[] = {{"index", l->i + 1},         {"index0", l->i}, {"revindex", n - l->i},
                   {"revindex0", n - l->i - 1}, {"length", n},    {"depth", l->depth0 + 1},
                   {"depth0", l->depth0}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (jstr_eq(name, numbers[i].name, strlen(numbers[i].name)))
            return jv_int((int64_t)numbers[i].value);
    if (jstr_eq(name, "first", 5)) return jv_bool(l->i == 0);
    if (jstr_eq(name, "last", 4)) return jv_bool(l->i + 1 == n);
    if (jstr_eq(name, "previtem", 8))
        return l->i ? l->items->v[l->i - 1] : jv_undef(r, "there is no previous item");
    if (jstr_eq(name, "nextitem", 8))
        return l->i + 1 < n ? l->items->v[l->i + 1] : jv_undef(r, "there is no next item");
    for (size_t i = 0; i < 2; i++)
        if (jstr_eq(name, loop_methods[i].name, strlen(loop_methods[i].name))) {
            struct jmethod *m = jr_alloc(r, sizeof *m);
            if (!m) return jv_none();
            *m = (struct jmethod){{.kind = JV_LOOP, .loop = l}, &loop_methods[i]};
            return (struct jv){.kind = JV_METHOD, .method = m};
        }
    return jv_missing();
}

struct jv j_macro_attr(struct jr *r, const struct jmacro *macro, const struct jstr *name) {
    const struct jmacro_def *m = macro->def;
    if (jstr_eq(name, "name", 4))
        return m->name ? (struct jv){.kind = JV_STR, .s = m->name} : jv_none();
    if (jstr_eq(name, "catch_kwargs", 12)) return jv_bool(m->uses_kwargs);
    if (jstr_eq(name, "catch_varargs", 13)) return jv_bool(m->uses_varargs);
    if (jstr_eq(name, "caller", 6)) return jv_bool(m->uses_caller);
    if (!jstr_eq(name, "arguments", 9)) return jv_missing();
    struct jv out = jv_list(r, JV_TUPLE, m->n_param);
    for (uint32_t i = 0; i < m->n_param && !r->rc; i++)
        out.l->v[i] = (struct jv){.kind = JV_STR, .s = m->params[i].text};
    return out;
}

/* ---- expressions ---- */

static struct jv eval_compare(struct jr *r, const struct jnode *n) {
    struct jv a = eval(r, n->a);
    for (uint32_t i = 0; i < n->n && !r->rc; i++) {
        struct jv b = eval(r, n->list[i]->a);
        if (r->rc || !j_compare(r, n->list[i]->op, a, b)) return jv_bool(false);
        a = b;
    }
    return jv_bool(true);
}

static struct jv eval_items(struct jr *r, const struct jnode *n) {
    struct jv out = jv_list(r, n->kind == JN_TUPLE ? JV_TUPLE : JV_LIST, n->n);
    for (uint32_t i = 0; i < n->n && !r->rc; i++) {
        struct jv v = eval(r, n->list[i]);
        if (!r->rc) out.l->v[i] = v;
    }
    return out;
}

static struct jv eval_dict(struct jr *r, const struct jnode *n) {
    struct jv out = jv_dict(r, JV_DICT);
    for (uint32_t i = 0; i + 1 < n->n && !r->rc; i += 2) {
        struct jv k = eval(r, n->list[i]), v = eval(r, n->list[i + 1]);
        if (!r->rc) jdict_set(r, out.d, k, v);
    }
    return out;
}

static struct jv eval_concat(struct jr *r, const struct jnode *n) {
    struct jv first = eval(r, n->list[0]); /* one by one with +, which appends in place */
    struct jstr left = *jv_to_str(r, first);
    left.is_markup = false;
    struct jv out = (struct jv){.kind = JV_STR, .s = &left};
    for (uint32_t i = 1; i < n->n && !r->rc; i++) {
        struct jstr right = *jv_to_str(r, eval(r, n->list[i]));
        right.is_markup = false;
        out = jstr_concat(r, out.s, &right);
    }
    return r->rc ? jv_none() : out;
}

static struct jv eval_getitem(struct jr *r, const struct jnode *n) {
    struct jv o = eval(r, n->a);
    const struct jnode *k = n->b;
    if (r->rc) return jv_none();
    if (k->kind != JN_SLICE) {
        struct jv key = eval(r, k);
        return j_getitem(r, o, key);
    }
    struct jv a = k->a ? eval(r, k->a) : jv_missing(), b = k->b ? eval(r, k->b) : jv_missing();
    struct jv c = k->c ? eval(r, k->c) : jv_missing();
    return r->rc ? jv_none() : j_getslice(r, o, a, b, c);
}

static struct jv eval_builtin(struct jr *r, const struct jnode *n, struct jv self) {
    if (r->rc) return jv_none();
    if (!n->fn) {
        jr_fail(r, CHIMERE_EFORMAT, "No %s named '%.80s'.",
                n->kind == JN_FILTER ? "filter" : "test", r->j->names[n->name]->p);
        return jv_none();
    }
    struct jcall call = eval_args(r, n->args);
    if (r->rc) return jv_none();
    r->line = n->line;
    return j_call_builtin(r, n->fn, self, &call);
}

static struct jv eval_call(struct jr *r, const struct jnode *n) {
    struct jv fn = eval(r, n->a);
    if (r->rc) return jv_none();
    struct jcall call = eval_args(r, n->args);
    r->line = n->line;
    return j_call(r, fn, &call);
}

static struct jv eval_node(struct jr *r, const struct jnode *n) {
    struct jv a;
    switch ((enum jn_kind)n->kind) {
    case JN_CONST: return n->value;
    case JN_NAME: return lookup(r, n->name);
    case JN_TUPLE:
    case JN_LIST: return eval_items(r, n);
    case JN_DICT: return eval_dict(r, n);
    case JN_CONCAT: return eval_concat(r, n);
    case JN_NEG: return j_neg(r, eval(r, n->a));
    case JN_POS:
        a = eval(r, n->a);
        if (a.kind == JV_BOOL) return jv_int(a.b);
        return jv_is_numeric(a) || r->rc ? a : j_neg(r, a);
    case JN_NOT: return jv_bool(!jv_truth(r, eval(r, n->a)));
    case JN_AND: a = eval(r, n->a); return r->rc || !jv_truth(r, a) ? a : eval(r, n->b);
    case JN_OR: a = eval(r, n->a); return r->rc || jv_truth(r, a) ? a : eval(r, n->b);
    case JN_BINARY: {
        a = eval(r, n->a);
        struct jv b = r->rc ? a : eval(r, n->b);
        r->line = n->line;
        return j_binary(r, n->op, a, b);
    }
    case JN_COMPARE: return eval_compare(r, n);
    case JN_COND:
        if (jv_truth(r, eval(r, n->b))) return eval(r, n->a);
        if (n->c) return eval(r, n->c);
        return jv_undef(r,
                        "the inline if-expression on line %u evaluated to false and no else "
                        "section was defined.",
                        n->line);
    case JN_GETATTR: return j_getattr(r, eval(r, n->a), r->j->names[n->name]);
    case JN_GETITEM: return eval_getitem(r, n);
    case JN_CALL: return eval_call(r, n);
    case JN_FILTER: return eval_builtin(r, n, n->a ? eval(r, n->a) : r->piped);
    case JN_TEST: return eval_builtin(r, n, eval(r, n->a));
    default: jr_fail(r, CHIMERE_EINTERNAL, "node %u is no expression", n->kind); return jv_none();
    }
}

static struct jv eval(struct jr *r, const struct jnode *n) {
    if (!jr_step(r, 1)) return jv_none();
    r->line = n->line;
    if (r->n_eval >= MAX_EVAL_DEPTH) {
        jr_fail(r, CHIMERE_ELIMIT, "calls and expressions are nested too deep");
        return jv_none();
    }
    r->n_eval++;
    struct jv v = eval_node(r, n);
    r->n_eval--;
    return r->rc ? jv_none() : v;
}

/* ---- statements ---- */

static void assign(struct jr *r, const struct jnode *t, struct jv v) {
    if (r->rc) return;
    if (t->kind == JN_NAME) {
        scope_set(r, t->name, v);
    } else if (t->kind == JN_NSREF) {
        struct jv ns = lookup(r, t->name);
        struct jstr *attr = r->j->names[t->name2];
        if (ns.kind != JV_NAMESPACE)
            jr_fail(r, CHIMERE_EFORMAT, "cannot assign attribute on non-namespace object");
        else if (attr->p[0] == '_')
            jr_fail(r, CHIMERE_EFORMAT, "a namespace takes no attribute that begins with '_'");
        else jdict_set(r, ns.d, (struct jv){.kind = JV_STR, .s = attr}, v);
    } else {
        const struct jlist *l = jv_items(r, v);
        if (!r->rc && l->n != t->n)
            jr_fail(r, CHIMERE_EFORMAT,
                    l->n < t->n ? "not enough values to unpack (expected %u, got %zu)"
                                : "too many values to unpack (expected %u, got %zu)",
                    t->n, l->n);
        for (uint32_t i = 0; i < t->n && !r->rc; i++) assign(r, t->list[i], l->v[i]);
    }
}

/* Executes a list in its own scope and captures the output as text. */
static struct jv capture(struct jr *r, const struct jnode *node) {
    struct jscope *outer = r->scope;
    r->scope = scope_open(r, outer);
    scope_hide(r, &node->hidden);
    size_t mark = jb_begin(r);
    exec_list(r, node->list, node->n);
    struct jv v = jb_end(r, mark);
    r->scope = outer;
    return v;
}

static struct jv pipe_through(struct jr *r, const struct jnode *filter, struct jv v) {
    if (!filter || r->rc) return v;
    struct jv outer = r->piped;
    r->piped = v;
    v = eval(r, filter);
    r->piped = outer;
    return v;
}

static const struct jlist *filter_items(struct jr *r, const struct jnode *n,
                                        const struct jlist *items) {
    struct jv out = jv_list(r, JV_LIST, 0);
    struct jscope *outer = r->scope;
    r->scope = scope_open(r, outer);
    for (size_t i = 0; i < items->n && !r->rc; i++) {
        assign(r, n->a, items->v[i]);
        if (jv_truth(r, eval(r, n->c)) && !r->rc) jlist_push(r, out.l, items->v[i]);
    }
    r->scope = outer;
    return r->rc ? items : out.l;
}

static enum flow run_loop(struct jr *r, const struct jnode *n, struct jv iterable,
                          struct jscope *around, size_t depth0) {
    const struct jlist *items = jv_items(r, iterable);
    struct jscope *outer = r->scope;
    r->scope = around;
    if (n->c && !r->rc) items = filter_items(r, n, items);
    enum flow flow = NEXT;
    struct jloop *loop = jr_alloc(r, sizeof *loop);
    struct jscope *pass = scope_open(r, around);
    if (loop) *loop = (struct jloop){.node = n, .items = items, .scope = around, .depth0 = depth0};
    for (size_t i = 0; i < items->n && flow != BREAK && jr_step(r, 1); i++) {
        if (pass->is_kept) pass = scope_open(r, around);
        if (r->rc) break;
        pass->n = 0;
        r->scope = pass;
        loop->i = i;
        scope_set(r, r->j->id_loop, (struct jv){.kind = JV_LOOP, .loop = loop});
        scope_hide(r, &n->hidden);
        assign(r, n->a, items->v[i]);
        if (!r->rc) flow = exec_list(r, n->list, n->n);
    }
    if (!items->n && n->args->n_pos && !r->rc) {
        r->scope = scope_open(r, around);
        scope_hide(r, &n->args->hidden);
        /* a break there belongs to the loop around this one */
        flow = exec_list(r, n->args->pos, n->args->n_pos);
    } else {
        flow = NEXT;
    }
    r->scope = outer;
    return flow;
}

struct jv j_loop_call(struct jr *r, struct jloop *loop, struct jv items) {
    if (!loop->node->op) {
        jr_fail(r, CHIMERE_EFORMAT,
                "The loop must have the 'recursive' marker to be called recursively.");
        return jv_none();
    }
    if (!jr_enter(r)) return jv_none();
    size_t mark = jb_begin(r);
    run_loop(r, loop->node, items, loop->scope, loop->depth0 + 1);
    struct jv out = jb_end(r, mark);
    jr_leave(r);
    return out;
}

static struct jv make_macro(struct jr *r, const struct jmacro_def *def) {
    struct jmacro *m = jr_alloc(r, sizeof *m);
    if (!m) return jv_none();
    *m = (struct jmacro){def, r->scope};
    scope_keep(r);
    return (struct jv){.kind = JV_MACRO, .macro = m};
}

static void exec_call_block(struct jr *r, const struct jnode *n) {
    struct jstr *name = r->j->names[r->j->id_caller];
    struct jv fn = eval(r, n->a->a);
    struct jcall call = eval_args(r, n->a->args);
    struct jv caller = make_macro(r, n->macro);
    push_kw(r, &call, name, caller);
    jb_put_value(r, j_call(r, fn, &call));
}

static enum flow exec_with(struct jr *r, const struct jnode *n) {
    struct jscope *outer = r->scope, *inner = scope_open(r, outer);
    for (uint32_t i = 0; i + 1 < n->args->n_pos && !r->rc; i += 2) {
        r->scope = outer; /* the values cannot see the new names */
        struct jv v = eval(r, n->args->pos[i + 1]);
        r->scope = inner;
        assign(r, n->args->pos[i], v);
    }
    r->scope = inner;
    scope_hide(r, &n->hidden);
    enum flow flow = exec_list(r, n->list, n->n);
    r->scope = outer;
    return flow;
}

static enum flow exec_if(struct jr *r, const struct jnode *n) {
    for (; n && !r->rc; n = n->c) {
        if (n->kind == JN_BODY) return exec_list(r, n->list, n->n);
        bool yes = jv_truth(r, eval(r, n->a));
        if (yes && !r->rc) return exec_list(r, n->list, n->n);
    }
    return NEXT;
}

static enum flow exec(struct jr *r, const struct jnode *n) {
    if (!jr_step(r, 1)) return NEXT;
    r->line = n->line;
    switch ((enum jn_kind)n->kind) {
    case JN_DATA: jb_put(r, n->value.s->p, n->value.s->n, true); break;
    case JN_OUTPUT:
        for (uint32_t i = 0; i < n->n && !r->rc; i++) {
            struct jv v = eval(r, n->list[i]);
            if (!r->rc) jb_put_value(r, v);
        }
        break;
    case JN_IF: return exec_if(r, n);
    case JN_FOR: {
        struct jv items = eval(r, n->b);
        return r->rc ? NEXT : run_loop(r, n, items, r->scope, 0);
    }
    case JN_SET: {
        struct jv v = eval(r, n->b);
        assign(r, n->a, v);
        break;
    }
    case JN_SET_BLOCK: {
        struct jv v = capture(r, n);
        v = pipe_through(r, n->b, v);
        assign(r, n->a, v);
        break;
    }
    case JN_MACRO: scope_set(r, n->name, make_macro(r, n->macro)); break;
    case JN_CALL_BLOCK: exec_call_block(r, n); break;
    case JN_FILTER_BLOCK: {
        struct jv v = capture(r, n);
        jb_put_value(r, pipe_through(r, n->b, v));
        break;
    }
    case JN_WITH: return exec_with(r, n);
    case JN_SCOPE: {
        struct jscope *outer = r->scope;
        r->scope = scope_open(r, outer);
        scope_hide(r, &n->hidden);
        exec_list(r, n->list, n->n);
        r->scope = outer;
        break;
    }
    case JN_BREAK: return BREAK;
    case JN_CONTINUE: return CONTINUE;
    default: jr_fail(r, CHIMERE_EINTERNAL, "node %u is no statement", n->kind);
    }
    return NEXT;
}

static enum flow exec_list(struct jr *r, struct jnode *const *list, uint32_t n) {
    enum flow flow = NEXT;
    if (r->n_eval >= MAX_EVAL_DEPTH) {
        jr_fail(r, CHIMERE_ELIMIT, "blocks are nested too deep");
        return NEXT;
    }
    r->n_eval++;
    for (uint32_t i = 0; i < n && flow == NEXT && !r->rc; i++) flow = exec(r, list[i]);
    r->n_eval--;
    return flow;
}

int j_run(struct jr *r) {
    r->scope = scope_open(r, NULL);
    scope_hide(r, &r->j->hidden);
    if (!r->rc) exec_list(r, r->j->body, r->j->n_body);
    return r->rc;
}
