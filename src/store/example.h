/* example.h: validated questions and answers by domain, each with the vector of its question.
 *
 * One question counts once in a domain: putting it again replaces it, under a new id; ids only grow. A
 * vector belongs to the embedder that made it (a number of the caller's); vectors of different embedders
 * never meet. Each domain and embedder has a counter that every change moves, so that an index in memory
 * sees in one small read that it is behind, whoever wrote. */
#ifndef CHIMERE_STORE_EXAMPLE_H
#define CHIMERE_STORE_EXAMPLE_H

#include <stddef.h>

#include "store/store.h"

struct store_example {
    int64_t id, at_ms;                      /* at_ms 0: now */
    const char *domain, *question, *answer; /* view */
    const char *source; /* view: who validated it, where it came from; or NULL */
    double score;       /* the caller's, larger is better */
    uint64_t embedder;
    const float *vec; /* view [n_vec] */
    int32_t n_vec;
};

/* All n or none, in one transaction; ids [n]. */
int store_example_put(struct store *s, const struct store_example *x, size_t n, int64_t *ids,
                      struct err *e);
/* CHIMERE_ENOENT: the domain has no such example. */
int store_example_remove(struct store *s, const char *domain, int64_t id, struct err *e);
/* By id, without vectors; domain NULL: all. Nonzero from each stops, and is returned. */
int store_example_list(struct store *s, const char *domain,
                       int (*each)(void *ud, const struct store_example *x), void *ud,
                       struct err *e);
int store_example_one(struct store *s, int64_t id,
                      int (*each)(void *ud, const struct store_example *x), void *ud,
                      struct err *e);

struct store_example_state {
    int64_t n_change; /* 0: nothing was ever put */
    int64_t n;        /* examples; counted only where asked for */
};
/* n is counted where count is set: a walk over the domain's keys. */
int store_example_state(struct store *s, const char *domain, uint64_t embedder, bool count,
                        struct store_example_state *out, struct err *e);
/* Ids and vectors of a domain above after_id, by id; with_vec false: ids alone. */
int store_example_vectors(struct store *s, const char *domain, uint64_t embedder, int64_t after_id,
                          bool with_vec, int (*each)(void *ud, const struct store_example *x),
                          void *ud, struct err *e);
/* Bytes that an index wants to find again (its centres), replaced as a whole; get: copied into *out by
 * mem_free, NULL where there are none. */
int store_example_put_index(struct store *s, const char *domain, uint64_t embedder,
                            const void *data, size_t n, struct err *e);
int store_example_get_index(struct store *s, const char *domain, uint64_t embedder, void **out,
                            size_t *n, struct err *e);

#endif
