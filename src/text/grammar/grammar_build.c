/* grammar_build.c: builds the automaton: rules, nodes, objects, sticky errors. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "text/grammar/grammar_impl.h"

int grammar_builder_init(struct grammar_builder *b, const struct grammar_limits *lim,
                         struct err *e) {
    *b = (struct grammar_builder){
        .start_ns = clock_cpu_ns(), .free_string = GRAMMAR_NONE, .bad_rule = GRAMMAR_NONE, .e = e};
    if (lim) b->lim = *lim;
    if (!b->lim.text_bytes) b->lim.text_bytes = 1 << 20;
    if (!b->lim.depth) b->lim.depth = 256;
    if (!b->lim.n_rule) b->lim.n_rule = 65536;
    if (!b->lim.n_node) b->lim.n_node = 1000000;
    if (!b->lim.time_ms) b->lim.time_ms = 800;
    if (!b->lim.space) b->lim.space = GRAMMAR_MAX_SPACE;
    map_init(&b->interned, (size_t)b->lim.n_node * 64);
    b->ret = grammar_add_node(b, G_RET, 0, 0, GRAMMAR_NONE);
    return b->rc;
}

void grammar_builder_fini(struct grammar_builder *b) {
    mem_free(b->nodes.p);
    mem_free(b->edges.p);
    mem_free(b->rules.p);
    mem_free(b->objects.p);
    mem_free(b->object_rules.p);
    mem_free(b->words.p);
    map_fini(&b->interned);
}

int grammar_fail(struct grammar_builder *b, int code, const char *fmt, ...) {
    if (b->rc) return b->rc;
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return b->rc = err_set(b->e, code, "%s", text);
}

int grammar_nomem(struct grammar_builder *b) {
    return grammar_fail(b, CHIMERE_ENOMEM, "grammar: out of memory");
}

bool grammar_tick(struct grammar_builder *b, uint32_t n_work) {
    uint32_t before = b->n_tick;
    b->n_tick += n_work;
    if (!b->rc && (before >> 10) != (b->n_tick >> 10) &&
        (clock_cpu_ns() - b->start_ns) / 1000000 > b->lim.time_ms)
        grammar_fail(b, CHIMERE_ELIMIT, "grammar: compiling takes more than %u ms", b->lim.time_ms);
    return !b->rc;
}

uint32_t grammar_vec_add(struct grammar_builder *b, struct grammar_vec *v, uint32_t n_item,
                         size_t item_size, const char *what, uint32_t max) {
    if (b->rc) return GRAMMAR_NONE;
    if (n_item > max || v->n > max - n_item) {
        grammar_fail(b, CHIMERE_ELIMIT, "grammar: more than %u %s", max, what);
        return GRAMMAR_NONE;
    }
    if (!v->p || v->cap - v->n < n_item) { /* an empty vector is allocated too, to avoid NULL + 0 */
        uint32_t cap = v->cap ? v->cap : 64;
        while (cap - v->n < n_item) cap = cap > UINT32_MAX / 2 ? UINT32_MAX : cap * 2;
        size_t bytes;
        void *p = size_mul(cap, item_size, &bytes) ? mem_realloc(v->p, bytes) : NULL;
        if (!p) {
            grammar_nomem(b);
            return GRAMMAR_NONE;
        }
        v->p = p;
        v->cap = cap;
    }
    if (n_item) memset((char *)v->p + v->n * item_size, 0, n_item * item_size);
    v->n += n_item;
    return v->n - n_item;
}

static struct grammar_node *node_at(struct grammar_builder *b, uint32_t i) {
    return (struct grammar_node *)b->nodes.p + i;
}

uint32_t grammar_add_rule(struct grammar_builder *b) {
    uint32_t i =
        grammar_vec_add(b, &b->rules, 1, sizeof(struct grammar_rule), "rules", b->lim.n_rule);
    if (i == GRAMMAR_NONE) return 0;
    ((struct grammar_rule *)b->rules.p)[i] =
        (struct grammar_rule){.entry = GRAMMAR_NONE, .object = GRAMMAR_NONE};
    return i;
}

void grammar_set_entry(struct grammar_builder *b, uint32_t rule, uint32_t node) {
    if (!b->rc) ((struct grammar_rule *)b->rules.p)[rule].entry = node;
}

uint32_t grammar_add_node(struct grammar_builder *b, enum grammar_op op, uint32_t a, uint32_t next,
                          uint32_t c) {
    if (!grammar_tick(b, 1)) return 0;
    uint32_t i =
        grammar_vec_add(b, &b->nodes, 1, sizeof(struct grammar_node), "states", b->lim.n_node);
    if (i == GRAMMAR_NONE) return 0;
    *node_at(b, i) = (struct grammar_node){.op = (uint8_t)op, .a = a, .b = next, .c = c};
    return i;
}

uint32_t grammar_add_call(struct grammar_builder *b, uint32_t rule, uint32_t next) {
    return grammar_add_node(b, G_CALL, rule, next, GRAMMAR_NONE);
}

uint32_t grammar_reserve(struct grammar_builder *b) {
    return grammar_add_node(b, G_ALT, 0, 0, GRAMMAR_NONE);
}

/* Makes room for n edges; there may be at most eight times as many edges as states. */
static struct grammar_edge *add_edges(struct grammar_builder *b, uint32_t n, uint32_t *first) {
    uint32_t max = b->lim.n_node > UINT32_MAX / 8 ? UINT32_MAX : b->lim.n_node * 8;
    *first = grammar_vec_add(b, &b->edges, n, sizeof(struct grammar_edge), "transitions", max);
    if (*first == GRAMMAR_NONE || !grammar_tick(b, n)) return NULL;
    return (struct grammar_edge *)b->edges.p + *first;
}

void grammar_define_alt(struct grammar_builder *b, uint32_t node, const uint32_t *to, uint32_t n) {
    uint32_t first;
    struct grammar_edge *edge = add_edges(b, n, &first);
    if (!edge) return;
    for (uint32_t i = 0; i < n; i++) edge[i].to = to[i];
    *node_at(b, node) = (struct grammar_node){.op = G_ALT, .a = first, .b = n, .c = GRAMMAR_NONE};
}

uint32_t grammar_add_alt(struct grammar_builder *b, const uint32_t *to, uint32_t n) {
    if (n == 1) return to[0];
    uint32_t node = grammar_reserve(b);
    grammar_define_alt(b, node, to, n);
    return node;
}

static int by_byte(const void *x, const void *y) {
    return ((const struct grammar_edge *)x)->lo - ((const struct grammar_edge *)y)->lo;
}

/* Sorts the edges and joins adjacent ones with the same target; returns how many remain. */
static uint32_t tidy_edges(struct grammar_edge *edges, uint32_t n) {
    if (n == 0) return 0;
    qsort(edges, n, sizeof *edges, by_byte);
    uint32_t k = 0;
    for (uint32_t i = 1; i < n; i++) {
        if (edges[i].to == edges[k].to && edges[i].lo == edges[k].hi + 1) edges[k].hi = edges[i].hi;
        else edges[++k] = edges[i];
    }
    return k + 1;
}

void grammar_define_bytes(struct grammar_builder *b, uint32_t node, struct grammar_edge *edges,
                          uint32_t n, uint32_t base) {
    uint32_t first;
    if (b->rc) return;
    n = tidy_edges(edges, n);
    struct grammar_edge *edge = add_edges(b, n, &first);
    if (!edge) return;
    if (n) memcpy(edge, edges, n * sizeof *edge);
    *node_at(b, node) = (struct grammar_node){.op = G_BYTES, .a = first, .b = n, .c = base};
}

uint32_t grammar_add_bytes(struct grammar_builder *b, struct grammar_edge *edges, uint32_t n) {
    uint32_t node;
    if (b->rc) return 0;
    n = tidy_edges(edges, n);
    const char *key = (const char *)edges;
    size_t n_key = n * sizeof *edges;
    if (map_find(&b->interned, key, n_key, &node)) return node;
    node = grammar_reserve(b);
    grammar_define_bytes(b, node, edges, n, GRAMMAR_NONE);
    if (!b->rc && map_put(&b->interned, key, n_key, node) < 0) grammar_nomem(b);
    return node;
}

uint32_t grammar_add_byte(struct grammar_builder *b, uint8_t byte, uint32_t next) {
    struct grammar_edge edge = {byte, byte, 0, next};
    return grammar_add_bytes(b, &edge, 1);
}

uint32_t grammar_add_literal(struct grammar_builder *b, const char *s, size_t n, uint32_t next) {
    while (n-- && !b->rc) next = grammar_add_byte(b, (uint8_t)s[n], next);
    return next;
}

uint32_t grammar_add_object(struct grammar_builder *b, const uint32_t *value_rules,
                            const bool *required, uint32_t n_prop, const uint32_t *other_rules,
                            uint32_t n_other, uint32_t min, uint32_t max) {
    uint32_t n_word = (n_prop + 63) / 64;
    uint32_t first_rule = grammar_vec_add(b, &b->object_rules, n_prop + n_other, sizeof(uint32_t),
                                          "properties", b->lim.n_node);
    uint32_t first_word =
        grammar_vec_add(b, &b->words, 2 * n_word, sizeof(uint64_t), "properties", b->lim.n_node);
    uint32_t i =
        grammar_vec_add(b, &b->objects, 1, sizeof(struct grammar_object), "objects", b->lim.n_rule);
    if (i == GRAMMAR_NONE) return 0;
    struct grammar_object *o = (struct grammar_object *)b->objects.p + i;
    *o = (struct grammar_object){.n_prop = n_prop,
                                 .n_word = n_word,
                                 .min = min,
                                 .max = max,
                                 .first_rule = first_rule,
                                 .n_other = n_other,
                                 .first_word = first_word};
    uint32_t *rules = (uint32_t *)b->object_rules.p + first_rule;
    uint64_t *words = (uint64_t *)b->words.p + first_word;
    if (n_prop) memcpy(rules, value_rules, n_prop * sizeof *rules);
    if (n_other) memcpy(rules + n_prop, other_rules, n_other * sizeof *rules);
    for (uint32_t k = 0; k < n_prop; k++)
        if (required[k]) words[k / 64] |= 1ULL << k % 64, o->n_required++;
    return i;
}
