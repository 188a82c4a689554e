/* docs_impl.h: the index, shared by search and indexing. */
#ifndef CHIMERE_RETRIEVAL_DOCS_IMPL_H
#define CHIMERE_RETRIEVAL_DOCS_IMPL_H

#include "base/thread.h"
#include "retrieval/docs.h"

enum { DOCS_NEAR_KEPT = 4, DOCS_NEAR_MAX_BYTES = 1 << 30 };

/* Vectors of one collection in memory, read at one version of the store. */
struct docs_near {
    char *collection; /* owned; NULL: all collections */
    int64_t version;  /* 0: unused entry */
    int64_t used_ns;
    struct engram_vec *vec; /* owned, by ids of chunks; NULL: there are none */
};

struct docs {
    struct store *store;       /* borrowed */
    struct docs_models models; /* borrowed */
    char **trusted;            /* owned [models.n_trusted]: absolute paths of the trusted folders */
    pthread_mutex_t lock;      /* protects the models */
    float unrelated;           /* mean cosine of sentences about different subjects */
    pthread_mutex_t near_lock; /* protects near */
    struct docs_near near[DOCS_NEAR_KEPT];
};

/* Writes the vector of a passage with its heading to out [docs_n_vec]. */
int docs_vector(struct docs *d, const char *heading, const char *text, float *out, struct err *e);

/* docs_near.c: finds the k chunks of a collection that are nearest to query [docs_n_vec], best first: ids and
 * cosines [k]. Returns their number, or CHIMERE_E*. Returns 0 also if no file has vectors of this model. */
int32_t docs_nearest(struct docs *d, const char *collection, const float *query, int32_t k,
                     int64_t *ids, float *cosines, struct err *e);
void docs_near_fini(struct docs_near *n);

#endif
