/* example.h: validated questions and answers per domain, each with the vector of its question.
 *
 * A question occurs once per domain: putting it again replaces it under a new id. Ids only increase. A vector
 * belongs to the embedder that made it, a number chosen by the caller; vectors of different embedders are never
 * mixed. Each domain and embedder has a counter that every change increments. So an index in memory needs one
 * small read to see that it is out of date, whichever process wrote. */
#ifndef CHIMERE_STORE_EXAMPLE_H
#define CHIMERE_STORE_EXAMPLE_H

#include <stddef.h>

#include "store/store.h"

struct store_example {
    int64_t id, at_ms;                      /* at_ms 0: now */
    const char *domain, *question, *answer; /* view */
    const char *source; /* view: who validated it, or where it comes from; or NULL */
    double score;       /* set by the caller; larger is better */
    uint64_t embedder;
    const float *vec; /* view [n_vec] */
    int32_t n_vec;
};

/* Adds all n or none, in one transaction; writes ids [n]. */
int store_example_put(struct store *s, const struct store_example *x, size_t n, int64_t *ids,
                      struct err *e);
/* CHIMERE_ENOENT: no such example in the domain. */
int store_example_remove(struct store *s, const char *domain, int64_t id, struct err *e);
/* Lists examples by id, without vectors; domain NULL: all. If `each` returns nonzero, the list stops and
 * returns that value. */
int store_example_list(struct store *s, const char *domain,
                       int (*each)(void *ud, const struct store_example *x), void *ud,
                       struct err *e);
int store_example_one(struct store *s, int64_t id,
                      int (*each)(void *ud, const struct store_example *x), void *ud,
                      struct err *e);

struct store_example_state {
    int64_t n_change; /* 0: no example was ever put */
    int64_t n;        /* number of examples, if it was requested */
};
/* count: also count the examples, which reads all keys of the domain. */
int store_example_state(struct store *s, const char *domain, uint64_t embedder, bool count,
                        struct store_example_state *out, struct err *e);
/* Lists the ids and vectors of a domain with an id above after_id, by id; with_vec false: only ids. */
int store_example_vectors(struct store *s, const char *domain, uint64_t embedder, int64_t after_id,
                          bool with_vec, int (*each)(void *ud, const struct store_example *x),
                          void *ud, struct err *e);
/* Stores or loads bytes that an index needs again (its centres); they are replaced as a whole. get copies them
 * into *out, freed with mem_free; NULL: none. */
int store_example_put_index(struct store *s, const char *domain, uint64_t embedder,
                            const void *data, size_t n, struct err *e);
int store_example_get_index(struct store *s, const char *domain, uint64_t embedder, void **out,
                            size_t *n, struct err *e);

#endif
