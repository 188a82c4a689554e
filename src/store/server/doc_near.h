/* doc_near.h: nearest passages by the database itself: on a PostgreSQL server with the extension pgvector.
 *
 * Servers that share a store then do not each hold all vectors in memory, and need not read them again when a document
 * changes. The search compares all vectors that the scope allows, so it finds the same passages as the search in memory. */
#ifndef CHIMERE_STORE_DOC_NEAR_H
#define CHIMERE_STORE_DOC_NEAR_H

#include "store/doc.h"

struct store_doc_query {
    const char *scope;  /* view; of doc_scope.h */
    int64_t embedder;   /* the model that made the vectors */
    const float *query; /* view [n_dim]; length 1, as all vectors */
    int32_t n_dim, k;
};
/* Lists the k nearest passages, best first, by id and score (the inner product) only. CHIMERE_EUNSUPPORTED: this store
 * cannot search vectors; compare those of store_doc_vectors. */
int store_doc_nearest(struct store *s, const struct store_doc_query *q,
                      int (*each)(void *ud, const struct store_chunk *c), void *ud, struct err *e);

#endif
