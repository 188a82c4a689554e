/* jinja_scope.c: finds the names that are local to a block from its start.
 *
 * Jinja2 decides once per block where each of its names comes from. If the block assigns a name before reading it,
 * in all cases and not only in some branches of an `if`, the name is local to the block from its start. Inner
 * blocks that read the name earlier see it as undefined, whatever the context contains. This pass finds these
 * names; the evaluator enters them as unset when it opens the block's scope. */
#include <string.h>

#include "text/jinja/jinja_impl.h"

/* beyond this limit (never reached by real templates) no more names are found */
#define MAX_WORK_BYTES (64u << 20)

enum load { L_NONE, L_PARAM, L_OUTSIDE, L_UNDEFINED };

struct frame {
    const struct frame *up;
    uint8_t *load;   /* [n_name] enum load */
    uint8_t *stored; /* [n_name] */
};

struct scoper {
    struct jinja *j;
    struct arena work;
    bool failed;
};

static bool frame_init(struct scoper *s, struct frame *f, const struct frame *up) {
    f->up = up;
    f->load = s->failed ? NULL : arena_alloc(&s->work, 2 * (size_t)s->j->n_name + 2);
    if (!f->load) {
        s->failed = true;
        return false;
    }
    f->stored = f->load + s->j->n_name;
    return true;
}

static bool known_above(const struct frame *f, uint32_t id) {
    for (f = f->up; f; f = f->up)
        if (f->load[id]) return true;
    return false;
}

static void see_load(struct frame *f, uint32_t id) {
    if (!f->load[id] && !known_above(f, id)) f->load[id] = L_OUTSIDE;
}
static void see_store(struct frame *f, uint32_t id) {
    f->stored[id] = 1;
    if (!f->load[id]) f->load[id] = known_above(f, id) ? L_OUTSIDE : L_UNDEFINED;
}

static void see_args(struct frame *f, const struct jargs *a);

static void see_expr(struct frame *f, const struct jnode *n) {
    if (!n) return;
    if (n->kind == JN_NAME || n->kind == JN_NSREF) {
        see_load(f, n->name);
        return;
    }
    see_expr(f, n->a);
    see_expr(f, n->b);
    see_expr(f, n->c);
    for (uint32_t i = 0; i < n->n; i++) see_expr(f, n->list[i]);
    see_args(f, n->args);
}

static void see_args(struct frame *f, const struct jargs *a) {
    if (!a) return;
    for (uint32_t i = 0; i < a->n_pos; i++) see_expr(f, a->pos[i]);
    for (uint32_t i = 0; i < a->n_kw; i++) see_expr(f, a->kw[i].value);
    see_expr(f, a->star);
    see_expr(f, a->star2);
}

static void see_target(struct frame *f, const struct jnode *t, bool param) {
    if (t->kind == JN_TUPLE) {
        for (uint32_t i = 0; i < t->n; i++) see_target(f, t->list[i], param);
    } else if (t->kind == JN_NSREF) {
        see_load(f, t->name);
    } else if (param) {
        f->load[t->name] = L_PARAM;
        f->stored[t->name] = 1;
    } else {
        see_store(f, t->name);
    }
}

static void see_list(struct scoper *s, struct frame *f, struct jnode *const *list, uint32_t n);

/* A name that only some branches assign comes from outside in the other branches. */
static void join_branches(struct scoper *s, struct frame *f, const struct frame *branch) {
    for (uint32_t id = 0; id < s->j->n_name; id++) {
        int n = 0;
        for (int b = 0; b < 3; b++) {
            n += branch[b].stored[id] && !f->stored[id];
            if (branch[b].load[id]) f->load[id] = branch[b].load[id];
        }
        if (n == 1 || n == 2) f->load[id] = L_OUTSIDE;
        if (n) f->stored[id] = 1;
    }
}

static void see_if(struct scoper *s, struct frame *f, const struct jnode *n, bool with_rest) {
    struct frame branch[3];
    see_expr(f, n->a);
    for (int b = 0; b < 3; b++) {
        if (!frame_init(s, &branch[b], f->up)) return;
        memcpy(branch[b].load, f->load, 2 * (size_t)s->j->n_name);
    }
    see_list(s, &branch[0], n->list, n->n);
    for (n = with_rest ? n->c : NULL; n && !s->failed; n = n->c)
        if (n->kind == JN_IF) see_if(s, &branch[1], n, false);
        else see_list(s, &branch[2], n->list, n->n);
    if (!s->failed) join_branches(s, f, branch);
}

static void see_list(struct scoper *s, struct frame *f, struct jnode *const *list, uint32_t n) {
    for (uint32_t i = 0; i < n && !s->failed; i++) {
        const struct jnode *t = list[i];
        switch ((enum jn_kind)t->kind) {
        case JN_OUTPUT:
            for (uint32_t k = 0; k < t->n; k++) see_expr(f, t->list[k]);
            break;
        case JN_IF: see_if(s, f, t, true); break;
        case JN_FOR: see_expr(f, t->b); break;
        case JN_SET:
            see_expr(f, t->b);
            see_target(f, t->a, false);
            break;
        case JN_SET_BLOCK: see_target(f, t->a, false); break;
        case JN_MACRO: see_store(f, t->name); break;
        case JN_CALL_BLOCK: see_expr(f, t->a); break;
        case JN_FILTER_BLOCK: see_expr(f, t->b); break;
        case JN_WITH:
            for (uint32_t k = 1; k < t->args->n_pos; k += 2) see_expr(f, t->args->pos[k]);
            break;
        default: break;
        }
    }
}

static struct jhidden take_hidden(struct scoper *s, const struct frame *f) {
    struct jhidden h = {NULL, 0};
    for (uint32_t id = 0; id < s->j->n_name; id++) h.n += f->load[id] == L_UNDEFINED;
    h.ids = h.n ? arena_alloc(&s->j->arena, h.n * sizeof *h.ids) : NULL;
    if (!h.ids) return (struct jhidden){NULL, 0};
    h.n = 0;
    for (uint32_t id = 0; id < s->j->n_name; id++)
        if (f->load[id] == L_UNDEFINED) h.ids[h.n++] = id;
    return h;
}

static void scope_blocks(struct scoper *s, const struct frame *f, struct jnode *const *list,
                         uint32_t n);

/* Processes a block with its own scope; frame already has its parameters. */
static struct jhidden scope_one(struct scoper *s, struct frame *f, struct jnode *const *list,
                                uint32_t n) {
    see_list(s, f, list, n);
    if (s->failed) return (struct jhidden){NULL, 0};
    struct jhidden h = take_hidden(s, f);
    scope_blocks(s, f, list, n);
    return h;
}

static void scope_block(struct scoper *s, const struct frame *f, struct jnode *t) {
    struct frame in;
    if (!frame_init(s, &in, f)) return;
    if (t->kind == JN_FOR) {
        see_target(&in, t->a, true);
        in.load[s->j->id_loop] = L_PARAM;
        t->hidden = scope_one(s, &in, t->list, t->n);
        if (t->args->n_pos && frame_init(s, &in, f))
            t->args->hidden = scope_one(s, &in, t->args->pos, t->args->n_pos);
    } else if (t->kind == JN_MACRO || t->kind == JN_CALL_BLOCK) {
        struct jmacro_def *m = t->macro;
        for (uint32_t i = 0; i < m->n_param; i++) in.load[m->params[i].name] = L_PARAM;
        for (uint32_t i = 0; i < m->n_param; i++) see_expr(&in, m->params[i].def);
        t->hidden = m->hidden = scope_one(s, &in, m->body, m->n_body);
    } else {
        for (uint32_t k = 0; t->kind == JN_WITH && k < t->args->n_pos; k += 2)
            see_target(&in, t->args->pos[k], true);
        t->hidden = scope_one(s, &in, t->list, t->n);
    }
}

static void scope_blocks(struct scoper *s, const struct frame *f, struct jnode *const *list,
                         uint32_t n) {
    for (uint32_t i = 0; i < n && !s->failed; i++) {
        switch ((enum jn_kind)list[i]->kind) {
        case JN_IF:
            for (const struct jnode *t = list[i]; t && !s->failed; t = t->c)
                scope_blocks(s, f, t->list, t->n);
            break;
        case JN_FOR:
        case JN_MACRO:
        case JN_CALL_BLOCK:
        case JN_SET_BLOCK:
        case JN_FILTER_BLOCK:
        case JN_WITH:
        case JN_SCOPE: scope_block(s, f, list[i]); break;
        default: break;
        }
    }
}

void jinja_scopes(struct jinja *j) {
    struct scoper s = {.j = j};
    struct frame root;
    arena_init(&s.work, MAX_WORK_BYTES);
    if (frame_init(&s, &root, NULL)) j->hidden = scope_one(&s, &root, j->body, j->n_body);
    arena_fini(&s.work);
}
