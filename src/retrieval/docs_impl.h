/* docs_impl.h: the index, shared by searching and filling it. */
#ifndef CHIMERE_RETRIEVAL_DOCS_IMPL_H
#define CHIMERE_RETRIEVAL_DOCS_IMPL_H

#include "base/thread.h"
#include "retrieval/docs.h"

enum { DOCS_NEAR_KEPT = 4, DOCS_NEAR_MAX_BYTES = 1 << 30 };

/* Vectors of one collection in memory, as they stood at one version of the store. */
struct docs_near {
    char *collection; /* owned; NULL: all of them */
    int64_t version;  /* 0: an empty place */
    int64_t used_ns;
    struct engram_vec *vec; /* owned; NULL: x is compared one by one */
    float *x;               /* owned [n, n_dim]; NULL where vec has a copy */
    int64_t *ids;           /* owned [n]: chunks */
    int64_t n;
};

struct docs {
    struct store *store;       /* borrowed */
    struct docs_models models; /* borrowed */
    char **trusted;            /* owned [models.n_trusted]: their absolute paths */
    pthread_mutex_t lock;      /* of the models */
    float unrelated;           /* mean cosine that embed gives sentences of different subjects */
    pthread_mutex_t near_lock; /* of near */
    struct docs_near near[DOCS_NEAR_KEPT];
};

/* Of a passage with its heading; out [docs_n_vec]. */
int docs_vector(struct docs *d, const char *heading, const char *text, float *out, struct err *e);

/* docs_near.c: the k chunks of a collection that are nearest to query [docs_n_vec], best first: ids and cosines
 * [k]. Returns how many; 0 also where no file has vectors of this model; CHIMERE_E*. */
int32_t docs_nearest(struct docs *d, const char *collection, const float *query, int32_t k,
                     int64_t *ids, float *cosines, struct err *e);
void docs_near_fini(struct docs_near *n);

#endif
