/* grammar_finish.c: turns the built nodes into an automaton in which every state leads to an end.
 *
 * Two least fixpoints are computed over the same dependency graph: is_nullable (a rule matches the empty text) and
 * is_live (a node can reach the end of its rule). Then left recursion is refused, dead edges are removed, and
 * bytes are sorted into classes. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "text/grammar/grammar_impl.h"

struct finish {
    struct grammar_builder *b; /* borrowed */
    struct grammar_node *nodes;
    struct grammar_edge *edges;
    struct grammar_rule *rules;
    struct grammar_object *objects;
    uint32_t n_node, n_rule;
    /* The nodes that depend on node i (slot i) or on rule r (slot n_node + r): users[first[slot]..first[slot+1]) */
    uint32_t *first, *users; /* owned */
    uint32_t *work;          /* owned [n_node] */
    bool *value;             /* owned [n_node]: the fixpoint being computed */
    bool want_nullable;
};

static const uint32_t *object_rules(const struct finish *f, const struct grammar_object *o) {
    return (const uint32_t *)f->b->object_rules.p + o->first_rule;
}

/* Calls fn for every slot that node i depends on. */
static void each_dependency(struct finish *f, uint32_t i,
                            void (*fn)(struct finish *, uint32_t slot, uint32_t user)) {
    const struct grammar_node *n = &f->nodes[i];
    switch ((enum grammar_op)n->op) {
    case G_RET: return;
    case G_BYTES:
    case G_ALT:
        for (uint32_t k = 0; k < n->b; k++) fn(f, f->edges[n->a + k].to, i);
        return;
    case G_CALL: fn(f, f->n_node + n->a, i); break;
    case G_GE:
        if (n->c != GRAMMAR_NONE) fn(f, f->n_node + n->c, i);
        break;
    case G_CLOSE: {
        const struct grammar_object *o = &f->objects[n->c];
        for (uint32_t k = 0; k < o->n_prop + o->n_other; k++)
            fn(f, f->n_node + object_rules(f, o)[k], i);
        break;
    }
    default: break;
    }
    fn(f, n->b, i);
}

static void count_user(struct finish *f, uint32_t slot, uint32_t user) {
    (void)user;
    f->first[slot + 1]++;
}

static void put_user(struct finish *f, uint32_t slot, uint32_t user) {
    f->users[f->first[slot]++] = user;
}

static int build_dependencies(struct finish *f) {
    size_t n_slot = (size_t)f->n_node + f->n_rule;
    f->first = mem_alloc_array(n_slot + 2, sizeof *f->first);
    if (!f->first) return grammar_nomem(f->b);
    for (uint32_t i = 0; i < f->n_node; i++) each_dependency(f, i, count_user);
    for (size_t i = 0; i < n_slot; i++) f->first[i + 1] += f->first[i];
    f->users = mem_alloc_array((size_t)f->first[n_slot] + 1, sizeof *f->users);
    if (!f->users) return grammar_nomem(f->b);
    for (uint32_t i = 0; i < f->n_node; i++) each_dependency(f, i, put_user);
    /* put_user moved each start to its end, so shift the starts back */
    memmove(f->first + 1, f->first, n_slot * sizeof *f->first);
    f->first[0] = 0;
    return 0;
}

static bool rule_value(const struct finish *f, uint32_t rule) {
    return f->rules[rule].entry != GRAMMAR_NONE && f->value[f->rules[rule].entry];
}

/* Returns true if the object can be closed: its required properties and enough others can be written. */
static bool object_is_feasible(const struct finish *f, const struct grammar_object *o) {
    const uint64_t *required = (const uint64_t *)f->b->words.p + o->first_word;
    uint32_t n_usable = 0;
    for (uint32_t k = 0; k < o->n_prop; k++) {
        bool live = rule_value(f, object_rules(f, o)[k]);
        if (!live && required[k / 64] >> k % 64 & 1) return false;
        n_usable += live;
    }
    for (uint32_t k = 0; k < o->n_other; k++)
        if (rule_value(f, object_rules(f, o)[o->n_prop + k])) n_usable = UINT32_MAX;
    return o->min <= n_usable && o->n_required <= o->max && o->min <= o->max;
}

static bool evaluate(const struct finish *f, uint32_t i) {
    const struct grammar_node *n = &f->nodes[i];
    switch ((enum grammar_op)n->op) {
    case G_RET: return true;
    case G_BYTES:
        if (f->want_nullable) return false;
        /* fall through */
    case G_ALT:
        for (uint32_t k = 0; k < n->b; k++)
            if (f->value[f->edges[n->a + k].to]) return true;
        return false;
    case G_CALL: return rule_value(f, n->a) && f->value[n->b];
    case G_GE: return f->value[n->b] && (n->a == 0 || n->c == GRAMMAR_NONE || rule_value(f, n->c));
    case G_CLOSE: return f->value[n->b] && object_is_feasible(f, &f->objects[n->c]);
    default: return f->value[n->b];
    }
}

/* Sets f->value to the least fixpoint. Every node enters the work list at most once. */
static void fixpoint(struct finish *f, const uint32_t *rule_of_entry, const uint32_t *next_rule) {
    uint32_t n_work = 0;
    memset(f->value, 0, f->n_node * sizeof *f->value);
    for (uint32_t i = 0; i < f->n_node; i++)
        if (f->nodes[i].op == G_RET) f->value[i] = true, f->work[n_work++] = i;
    while (n_work) {
        uint32_t i = f->work[--n_work];
        uint32_t rule = rule_of_entry[i];
        for (uint32_t slot = i;;) {
            for (uint32_t k = f->first[slot]; k < f->first[slot + 1]; k++) {
                uint32_t user = f->users[k];
                if (!f->value[user] && evaluate(f, user))
                    f->value[user] = true, f->work[n_work++] = user;
            }
            if (rule == GRAMMAR_NONE) break;
            slot = f->n_node + rule;
            rule = next_rule[rule];
        }
    }
}

static int analyse(struct finish *f) {
    uint32_t *rule_of_entry = mem_alloc_array((size_t)f->n_node + 1, sizeof *rule_of_entry);
    uint32_t *next_rule = mem_alloc_array((size_t)f->n_rule + 1, sizeof *next_rule);
    f->work = mem_alloc_array((size_t)f->n_node + 1, sizeof *f->work);
    f->value = mem_alloc_array((size_t)f->n_node + 1, sizeof *f->value);
    int rc = rule_of_entry && next_rule && f->work && f->value ? build_dependencies(f)
                                                               : grammar_nomem(f->b);
    if (rc == 0) {
        memset(rule_of_entry, 0xff, f->n_node * sizeof *rule_of_entry);
        for (uint32_t r = 0; r < f->n_rule; r++) {
            uint32_t entry = f->rules[r].entry;
            if (entry == GRAMMAR_NONE) continue;
            next_rule[r] = rule_of_entry[entry];
            rule_of_entry[entry] = r;
        }
        f->want_nullable = true;
        fixpoint(f, rule_of_entry, next_rule);
        for (uint32_t r = 0; r < f->n_rule; r++) f->rules[r].is_nullable = rule_value(f, r);
        f->want_nullable = false;
        fixpoint(f, rule_of_entry, next_rule);
        for (uint32_t r = 0; r < f->n_rule; r++) f->rules[r].is_live = rule_value(f, r);
        for (uint32_t i = 0; i < f->n_node; i++) f->nodes[i].is_live = f->value[i];
    }
    mem_free(rule_of_entry);
    mem_free(next_rule);
    return rc;
}

/* Appends to calls the rules that `rule` may call before it has consumed a byte. */
static void left_calls(struct finish *f, uint32_t rule, uint32_t *seen, struct grammar_vec *calls) {
    uint32_t *stack = f->work, n_stack = 0, stamp = rule + 1;
    if (f->rules[rule].entry != GRAMMAR_NONE) stack[n_stack++] = f->rules[rule].entry;
    if (n_stack) seen[stack[0]] = stamp;
    while (n_stack && !f->b->rc) {
        const struct grammar_node *n = &f->nodes[stack[--n_stack]];
        if (n->op == G_BYTES || n->op == G_RET) continue;
        if (n->op == G_CALL) {
            uint32_t i = grammar_vec_add(f->b, calls, 1, 4, "calls", UINT32_MAX / 8);
            if (i != GRAMMAR_NONE) ((uint32_t *)calls->p)[i] = n->a;
            if (!f->rules[n->a].is_nullable) continue;
        }
        uint32_t n_next = n->op == G_ALT ? n->b : 1;
        for (uint32_t k = 0; k < n_next; k++) {
            uint32_t to = n->op == G_ALT ? f->edges[n->a + k].to : n->b;
            if (seen[to] != stamp) seen[to] = stamp, stack[n_stack++] = to;
        }
    }
}

/* Depth-first search over these calls: a rule that occurs twice on a path is left-recursive. */
static int refuse_left_recursion(struct finish *f) {
    struct grammar_vec calls = {NULL, 0, 0};
    size_t n = (size_t)f->n_rule + 2;
    uint32_t *seen = mem_alloc_array((size_t)f->n_node + 1, 4), *first = mem_alloc_array(n, 4);
    uint32_t *path = mem_alloc_array(n, 4), *at = mem_alloc_array(n, 4);
    uint8_t *mark = mem_zalloc(n);
    int rc = seen && first && path && at && mark ? 0 : grammar_nomem(f->b);
    for (uint32_t r = 0; rc == 0 && r < f->n_rule; r++) {
        left_calls(f, r, seen, &calls);
        first[r + 1] = calls.n;
        rc = f->b->rc;
    }
    for (uint32_t start = 0; rc == 0 && start < f->n_rule; start++) {
        uint32_t depth = 0;
        if (mark[start]) continue;
        path[depth++] = start, mark[start] = 1, at[start] = first[start];
        while (depth) {
            uint32_t r = path[depth - 1];
            if (at[r] == first[r + 1]) {
                mark[r] = 2, depth--;
                continue;
            }
            uint32_t s = ((uint32_t *)calls.p)[at[r]++];
            if (mark[s] == 1) {
                f->b->bad_rule = s;
                rc = grammar_fail(f->b, CHIMERE_EFORMAT, "grammar: left recursion");
                break;
            }
            if (!mark[s]) mark[s] = 1, at[s] = first[s], path[depth++] = s;
        }
    }
    mem_free(seen), mem_free(first), mem_free(calls.p), mem_free(path), mem_free(at),
        mem_free(mark);
    return rc;
}

static void prune(struct finish *f) {
    for (uint32_t i = 0; i < f->n_node; i++) {
        struct grammar_node *n = &f->nodes[i];
        if (n->op != G_BYTES && n->op != G_ALT) continue;
        uint32_t k = 0;
        for (uint32_t j = 0; j < n->b; j++)
            if (f->nodes[f->edges[n->a + j].to].is_live) f->edges[n->a + k++] = f->edges[n->a + j];
        n->b = k;
        if (n->op == G_BYTES && n->c != GRAMMAR_NONE && !f->nodes[n->c].is_live)
            n->c = GRAMMAR_NONE;
    }
    for (uint32_t i = 0; i < f->b->objects.n; i++) {
        struct grammar_object *o = &f->objects[i];
        uint64_t *usable = (uint64_t *)f->b->words.p + o->first_word + o->n_word;
        for (uint32_t k = 0; k < o->n_prop; k++)
            if (f->rules[object_rules(f, o)[k]].is_live) usable[k / 64] |= 1ULL << k % 64;
        for (uint32_t k = 0; k < o->n_other; k++)
            o->has_other |= f->rules[object_rules(f, o)[o->n_prop + k]].is_live;
    }
}

static void classify_bytes(struct grammar *g) {
    bool starts[257] = {true};
    for (uint32_t i = 0; i < g->n_node; i++) {
        const struct grammar_node *n = &g->nodes[i];
        for (uint32_t k = 0; n->op == G_BYTES && k < n->b; k++) {
            starts[g->edges[n->a + k].lo] = true;
            starts[g->edges[n->a + k].hi + 1] = true;
        }
    }
    for (uint32_t c = 0; c < 256; c++) {
        if (starts[c]) g->byte_of[g->n_class++] = (uint8_t)c;
        g->class_of[c] = (uint8_t)(g->n_class - 1);
    }
}

int grammar_finish(struct grammar_builder *b, uint32_t root, struct grammar **out) {
    *out = NULL;
    if (b->rc) return b->rc;
    struct finish f = {.b = b,
                       .nodes = b->nodes.p,
                       .edges = b->edges.p,
                       .rules = b->rules.p,
                       .objects = b->objects.p,
                       .n_node = b->nodes.n,
                       .n_rule = b->rules.n};
    int rc = analyse(&f);
    if (rc == 0) rc = refuse_left_recursion(&f);
    struct grammar *g = NULL;
    if (rc == 0 && !f.rules[root].is_live)
        rc = grammar_fail(b, CHIMERE_EREFUSED, "grammar: no text can match it");
    if (rc == 0) {
        prune(&f);
        g = mem_zalloc(sizeof *g);
        if (!g) rc = grammar_nomem(b);
    }
    mem_free(f.first), mem_free(f.users), mem_free(f.work), mem_free(f.value);
    if (rc) return rc;
    *g = (struct grammar){.nodes = b->nodes.p,
                          .edges = b->edges.p,
                          .rules = b->rules.p,
                          .objects = b->objects.p,
                          .object_rules = b->object_rules.p,
                          .words = b->words.p,
                          .n_node = b->nodes.n,
                          .n_edge = b->edges.n,
                          .n_rule = b->rules.n,
                          .n_object = b->objects.n,
                          .n_object_rule = b->object_rules.n,
                          .n_word = b->words.n,
                          .root = root,
                          .free_string = b->free_string};
    b->nodes = b->edges = b->rules = b->objects = b->object_rules = b->words =
        (struct grammar_vec){NULL, 0, 0};
    classify_bytes(g);
    g->compile_ms = (double)(clock_cpu_ns() - b->start_ns) * 1e-6;
    *out = g;
    return 0;
}

void grammar_free(struct grammar *g) {
    if (!g) return;
    mem_free(g->nodes);
    mem_free(g->edges);
    mem_free(g->rules);
    mem_free(g->objects);
    mem_free(g->object_rules);
    mem_free(g->words);
    mem_free(g);
}

void grammar_stats(const struct grammar *g, struct grammar_stats *out) {
    *out = (struct grammar_stats){
        .n_rule = g->n_rule,
        .n_node = g->n_node,
        .n_edge = g->n_edge,
        .compile_ms = g->compile_ms,
        .n_bytes = sizeof *g + g->n_node * sizeof *g->nodes + g->n_edge * sizeof *g->edges +
                   g->n_rule * sizeof *g->rules + g->n_object * sizeof *g->objects +
                   g->n_object_rule * sizeof *g->object_rules + g->n_word * sizeof *g->words};
}
