/* examples.h: validated questions and answers per domain, found by the similarity of their meaning.
 *
 * The examples are in the store (store/example.h). An index over their vectors is in memory (vec.h). It is built
 * at the first search of a domain and updated when the store's change counter has moved, whichever process changed
 * the store. The centres of a large index are also stored, so that the next start need not compute them. The
 * caller provides the vectors, of length 1 and from one embedder, because engram does not call a model. Any
 * thread. */
#ifndef CHIMERE_ENGRAM_EXAMPLES_H
#define CHIMERE_ENGRAM_EXAMPLES_H

#include "engram/vec.h"
#include "store/example.h"

enum {
    EXAMPLES_MAX_TEXT = 1 << 20,  /* bytes of a question or an answer */
    EXAMPLES_MAX_NAME = 64,       /* bytes of a domain: letters, digits, '-', '_' and '.' */
    EXAMPLES_MAX_DOMAINS = 64,    /* domains that one process may search */
    EXAMPLES_MAX_COUNT = 1 << 20, /* examples per domain */
    EXAMPLES_MAX_HITS = 64,
};

struct examples;

/* store is borrowed until examples_close. embedder: identifies the model that made the vectors; n_dim: their size. */
int examples_open(struct examples **out, struct store *store, uint64_t embedder, int32_t n_dim,
                  struct err *e);
void examples_close(struct examples *x);

/* Adds v [n]: domain, question, answer, and score, source and time if known. embedder and vector are set from vecs
 * [n, n_dim], the vectors of the questions. An example with the same question is replaced. One transaction: all or
 * none are added. Writes ids [n]. */
int examples_add(struct examples *x, struct store_example *v, size_t n, const float *vecs,
                 int64_t *ids, struct err *e);
/* Returns 0 if examples_add would accept v, or the reason to refuse it. */
int examples_check(const struct store_example *v, struct err *e);
int examples_remove(struct examples *x, const char *domain, int64_t id, struct err *e);

struct examples_hit {
    int64_t id, at_ms;
    char *question, *answer, *source; /* owned by the hits */
    double score;
    float nearness; /* inner product: 1 equal, 0 unrelated */
};
struct examples_hits {
    struct examples_hit v[EXAMPLES_MAX_HITS];
    int32_t n;
};
/* Finds the k nearest to query [n_dim] with at least the given nearness, nearest first. An empty or unknown domain
 * gives none. */
int examples_search(struct examples *x, const char *domain, const float *query, int32_t k,
                    float least, struct examples_hits *out, struct err *e);
void examples_hits_fini(struct examples_hits *h);

#endif
