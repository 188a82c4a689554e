/* examples.h: the semantic tier: validated questions and answers by domain, found by nearness of meaning.
 *
 * Keeps them in the store (store/example.h) and an index over their vectors in memory (vec.h), made at a
 * domain's first search and brought up to date when the store's counter has moved, whichever process moved
 * it. The centres of a large index are kept in the store too, so that the next start need not look for
 * them. Vectors are the caller's, of length 1, of one embedder: engram calls no model. Any thread. Where the build
 * has no FAISS, searching is CHIMERE_EUNSUPPORTED; the rest works. */
#ifndef CHIMERE_ENGRAM_EXAMPLES_H
#define CHIMERE_ENGRAM_EXAMPLES_H

#include "engram/vec.h"
#include "store/example.h"

enum {
    EXAMPLES_MAX_TEXT = 1 << 20,  /* bytes of a question, of an answer */
    EXAMPLES_MAX_NAME = 64,       /* bytes of a domain: letters, digits, '-', '_' and '.' */
    EXAMPLES_MAX_DOMAINS = 64,    /* searched by one process */
    EXAMPLES_MAX_COUNT = 1 << 20, /* of one domain */
    EXAMPLES_MAX_HITS = 64,
};

struct examples;

/* store is borrowed until examples_close. embedder: which model made the vectors; n_dim: their size. */
int examples_open(struct examples **out, struct store *store, uint64_t embedder, int32_t n_dim,
                  struct err *e);
void examples_close(struct examples *x);

/* v [n]: domain, question, answer, and what is known of score, source and time; embedder and vector are set
 * from vecs [n, n_dim], the questions'. The same question again replaces its example. All of them or none, in one
 * transaction; ids [n]. */
int examples_add(struct examples *x, struct store_example *v, size_t n, const float *vecs,
                 int64_t *ids, struct err *e);
/* What examples_add will say about one: 0, or why it is refused. */
int examples_check(const struct store_example *v, struct err *e);
int examples_remove(struct examples *x, const char *domain, int64_t id, struct err *e);

struct examples_hit {
    int64_t id, at_ms;
    char *question, *answer, *source; /* owned by the hits */
    double score;
    float nearness; /* inner product: 1 the same direction, 0 unrelated */
};
struct examples_hits {
    struct examples_hit v[EXAMPLES_MAX_HITS];
    int32_t n;
};
/* The k nearest to query [n_dim] of at least that nearness, nearest first. A domain that nobody has added
 * to gives none. */
int examples_search(struct examples *x, const char *domain, const float *query, int32_t k,
                    float least, struct examples_hits *out, struct err *e);
void examples_hits_fini(struct examples_hits *h);

#endif
