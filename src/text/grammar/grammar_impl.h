/* grammar_impl.h: the compiled automaton and its builder, shared by grammar*.c and their tests.
 *
 * The automaton is a list of nodes. A configuration is (node, frame). A frame is one activation of a rule with its
 * return links, a counter and a bitset. Only G_BYTES consumes input:
 *
 *   op       a               b            c          meaning
 *   G_BYTES  first edge      n edges      base node  one byte, edges sorted and disjoint
 *   G_ALT    first edge      n edges      -          any of the edges' targets
 *   G_CALL   rule            next         -          run the rule, then next
 *   G_RET    -               -            -          the rule is done
 *   G_LT     limit           next         -          passes if count < limit
 *   G_GE     limit           next         rule       passes if count >= limit (rule: what is counted)
 *   G_INC    -               next         -          count + 1
 *   G_FREE   property        next         object     passes if the property may still occur
 *   G_TAKE   property        next         object     marks it, count + 1
 *   G_ROOM   -               next         object     passes if an unnamed property may occur; count + 1
 *   G_MORE   -               next         object     passes if any property may occur
 *   G_CLOSE  -               next         object     passes if the object may end
 *
 * Member c of G_BYTES is a node with a similar mask (GRAMMAR_NONE: none); the mask is computed as a difference
 * from that node's mask. A frame's data only changes after a byte that the same frame consumed. */
#ifndef CHIMERE_TEXT_GRAMMAR_GRAMMAR_IMPL_H
#define CHIMERE_TEXT_GRAMMAR_GRAMMAR_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/map.h"
#include "text/grammar/grammar.h"

#define GRAMMAR_NONE UINT32_MAX
#define GRAMMAR_MAX_PROP 4096 /* named properties of one object */

enum grammar_op {
    G_BYTES,
    G_ALT,
    G_CALL,
    G_RET,
    G_LT,
    G_GE,
    G_INC,
    G_FREE,
    G_TAKE,
    G_ROOM,
    G_MORE,
    G_CLOSE
};

struct grammar_node {
    uint8_t op;
    bool is_live; /* can reach the end of its rule */
    uint32_t a, b, c;
};

struct grammar_edge { /* G_BYTES: bytes lo..hi; G_ALT: lo = hi = 0 */
    uint8_t lo, hi;
    uint16_t zero; /* fills the padding, because edges are compared as bytes */
    uint32_t to;
};

struct grammar_rule {
    uint32_t entry;    /* node; GRAMMAR_NONE until set */
    uint32_t object;   /* index of its object, or GRAMMAR_NONE */
    bool counts;       /* its frames have a count ... */
    uint32_t min, max; /* ... that is compared only with these (max UINT32_MAX: only with min) */
    bool is_nullable, is_live;
};

struct grammar_object {
    uint32_t n_prop, n_word; /* n_word = (n_prop + 63) / 64 */
    uint32_t n_required;
    uint32_t min, max; /* number of properties; max UINT32_MAX: no limit */
    /* in object_rules: n_prop rules of values, then n_other rules of unnamed properties */
    uint32_t first_rule;
    uint32_t n_other;
    /* in words: n_word words of required properties, then n_word words of usable ones */
    uint32_t first_word;
    bool has_other; /* a rule of unnamed properties is live */
};

struct grammar {
    struct grammar_node *nodes;     /* owned [n_node] */
    struct grammar_edge *edges;     /* owned [n_edge] */
    struct grammar_rule *rules;     /* owned [n_rule] */
    struct grammar_object *objects; /* owned [n_object] */
    uint32_t *object_rules;         /* owned: value rules of properties */
    uint64_t *words;                /* owned: bitsets of objects */
    uint32_t n_node, n_edge, n_rule, n_object, n_object_rule, n_word;
    uint32_t root; /* rule */
    /* node inside a JSON string without constraints, the same in all grammars from schemas; or GRAMMAR_NONE */
    uint32_t free_string;
    uint8_t class_of[256]; /* bytes that no edge distinguishes share a class */
    uint8_t byte_of[256];  /* one byte of each class */
    uint32_t n_class;
    double compile_ms;
};

/* ---- builder: errors are stored in rc; after an error every call returns node 0 and has no effect ---- */

struct grammar_vec { /* growing array of the builder */
    void *p;         /* owned */
    uint32_t n, cap;
};

struct grammar_builder {
    struct grammar_limits lim; /* all set */
    struct grammar_vec nodes, edges, rules, objects, object_rules, words;
    struct map interned; /* content of a G_BYTES node -> node */
    int64_t start_ns;
    uint32_t n_tick;
    uint32_t ret; /* the G_RET node */
    uint32_t free_string;
    uint32_t bad_rule; /* set by grammar_finish: a left-recursive rule */
    int rc;
    struct err *e; /* borrowed */
};

/* lim may be NULL. */
int grammar_builder_init(struct grammar_builder *b, const struct grammar_limits *lim,
                         struct err *e);
void grammar_builder_fini(struct grammar_builder *b);
/* Sets the sticky error and its text; returns rc. */
int grammar_fail(struct grammar_builder *b, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int grammar_nomem(struct grammar_builder *b);
/* Counts work and checks the clock from time to time; true while the time limit is not reached. */
bool grammar_tick(struct grammar_builder *b, uint32_t n_work);
/* Appends n_item zeroed items and returns their first index, GRAMMAR_NONE on failure. */
uint32_t grammar_vec_add(struct grammar_builder *b, struct grammar_vec *v, uint32_t n_item,
                         size_t item_size, const char *what, uint32_t max);

uint32_t grammar_add_rule(struct grammar_builder *b);
void grammar_set_entry(struct grammar_builder *b, uint32_t rule, uint32_t node);
uint32_t grammar_add_node(struct grammar_builder *b, enum grammar_op op, uint32_t a, uint32_t next,
                          uint32_t c);
uint32_t grammar_add_call(struct grammar_builder *b, uint32_t rule, uint32_t next);
uint32_t grammar_add_alt(struct grammar_builder *b, const uint32_t *to, uint32_t n);
/* The edges may be in any order; equal nodes are shared. */
uint32_t grammar_add_bytes(struct grammar_builder *b, struct grammar_edge *edges, uint32_t n);
uint32_t grammar_add_byte(struct grammar_builder *b, uint8_t byte, uint32_t next);
uint32_t grammar_add_literal(struct grammar_builder *b, const char *s, size_t n, uint32_t next);
/* Reserves a node that is defined later (for loops). */
uint32_t grammar_reserve(struct grammar_builder *b);
void grammar_define_alt(struct grammar_builder *b, uint32_t node, const uint32_t *to, uint32_t n);
void grammar_define_bytes(struct grammar_builder *b, uint32_t node, struct grammar_edge *edges,
                          uint32_t n, uint32_t base);
/* value_rules[n_prop] of the named properties, other_rules[n_other]; required[n_prop]. */
uint32_t grammar_add_object(struct grammar_builder *b, const uint32_t *value_rules,
                            const bool *required, uint32_t n_prop, const uint32_t *other_rules,
                            uint32_t n_other, uint32_t min, uint32_t max);

struct grammar_range { /* code points lo..hi lead to node (or DFA state) `to` */
    uint32_t lo, hi, to;
};
struct grammar_edges { /* edges being collected */
    struct grammar_edge e[256];
    uint32_t n;
};
/* Sorts and joins the ranges from `first` on, and inverts them if negate is set. limit: ranges at most. */
void grammar_tidy_ranges(struct grammar_builder *b, struct grammar_vec *ranges, uint32_t first,
                         bool negate, uint32_t limit);
/* Adds the edges for the first byte of the UTF-8 forms of sorted, disjoint ranges, without surrogates. */
void grammar_utf8_edges(struct grammar_builder *b, const struct grammar_range *r, uint32_t n,
                        struct grammar_edges *out);
/* The same for a character inside a JSON string: unescaped, short escape, \u escape, or a pair of them. */
void grammar_json_edges(struct grammar_builder *b, const struct grammar_range *r, uint32_t n,
                        struct grammar_edges *out);
/* The same without escapes that JSON does not need. */
void grammar_known_edges(struct grammar_builder *b, const struct grammar_range *r, uint32_t n,
                         struct grammar_edges *out);

/* Removes dead ends, refuses left recursion and empty languages, and transfers the automaton to *out. */
int grammar_finish(struct grammar_builder *b, uint32_t root, struct grammar **out);

#endif
