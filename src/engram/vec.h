/* vec.h: nearest vectors, by FAISS: the one place of C++ (vec.cc), optional at build.
 *
 * Vectors are the caller's (engram calls no model), of length 1, so that nearest is largest inner product.
 * Up to a few thousand are compared one by one; more are kept in cells by nearness to a centre, and the
 * cells around the query are looked into: at 100,000 vectors of 384 values that finds what matters in
 * about a millisecond. One thread adds and removes; any number may search between. Where the build has no FAISS every
 * call is CHIMERE_EUNSUPPORTED with a hint. */
#ifndef CHIMERE_ENGRAM_VEC_H
#define CHIMERE_ENGRAM_VEC_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ENGRAM_VEC_MAX_DIM = 8192, ENGRAM_VEC_EXACT = 4000 };

struct engram_vec;

bool engram_vec_is_built_in(void);
/* x [n, n_dim]: all vectors, numbered by their rows; copied. */
int engram_vec_new(struct engram_vec **out, const float *x, int64_t n, int32_t n_dim,
                   struct err *e);
/* The same under ids of the caller's. centres [n_centre, n_dim]: what engram_vec_centres gave for most of
 * these vectors before, so that the search for them is saved; NULL: none. */
int engram_vec_new_with_ids(struct engram_vec **out, const float *x, const int64_t *ids, int64_t n,
                            int32_t n_dim, const float *centres, int64_t n_centre, struct err *e);
void engram_vec_free(struct engram_vec *v);
/* x [n, n_dim] under ids that are not there yet. Cells keep their centres: an index that has doubled
 * should be made anew. */
int engram_vec_add(struct engram_vec *v, const float *x, const int64_t *ids, int64_t n,
                   struct err *e);
/* Ids that are not there are passed over. */
int engram_vec_remove(struct engram_vec *v, const int64_t *ids, int64_t n, struct err *e);
int64_t engram_vec_count(const struct engram_vec *v);
/* The centres of the cells, a view; NULL where vectors are compared one by one. */
const float *engram_vec_centres(const struct engram_vec *v, int64_t *n_centre);
/* The k nearest to query [n_dim], best first: ids and inner products [k]; id -1 where there are fewer. */
int engram_vec_search(const struct engram_vec *v, const float *query, int32_t k, int64_t *ids,
                      float *products, struct err *e);

#ifdef __cplusplus
}
#endif
#endif
