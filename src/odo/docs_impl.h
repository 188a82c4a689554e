/* docs_impl.h: the index, shared by searching and filling it. */
#ifndef CHIMERE_ODO_DOCS_IMPL_H
#define CHIMERE_ODO_DOCS_IMPL_H

#include <pthread.h>

#include "odo/docs.h"

struct docs {
    struct store *store;  /* borrowed */
    struct embed *embed;  /* borrowed; NULL: BM25 alone */
    pthread_mutex_t lock; /* of embed */
};

/* out [embed_size] */
int docs_vector(struct docs *d, const char *text, size_t n, float *out, struct err *e);

#endif
