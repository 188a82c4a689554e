/* vec.h: nearest-vector search, by FAISS if the build has it (vec.cc, the only C++ file).
 *
 * The caller provides the vectors (engram does not call a model). They have length 1, so the nearest vector is the
 * one with the largest inner product. Up to a few thousand vectors are compared one by one. FAISS groups larger sets
 * into cells around centres, and only the cells near the query are searched: with 100,000 vectors of 384
 * values this finds the relevant ones in about a millisecond. Without FAISS all vectors are always compared
 * (vec_exact.c). One thread at a time adds and removes; any number may search in between. */
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

bool engram_vec_has_faiss(void);
/* x [n, n_dim]: all vectors; their ids are their row numbers; copied. */
int engram_vec_new(struct engram_vec **out, const float *x, int64_t n, int32_t n_dim,
                   struct err *e);
/* The same with ids from the caller. centres [n_centre, n_dim]: an earlier result of engram_vec_centres for most
 * of these vectors, so that the centres need not be computed again; NULL: none. */
int engram_vec_new_with_ids(struct engram_vec **out, const float *x, const int64_t *ids, int64_t n,
                            int32_t n_dim, const float *centres, int64_t n_centre, struct err *e);
void engram_vec_free(struct engram_vec *v);
/* Adds x [n, n_dim] with new ids. Cells keep their centres: rebuild an index that has doubled. */
int engram_vec_add(struct engram_vec *v, const float *x, const int64_t *ids, int64_t n,
                   struct err *e);
/* Removes ids; unknown ids are ignored. */
int engram_vec_remove(struct engram_vec *v, const int64_t *ids, int64_t n, struct err *e);
int64_t engram_vec_count(const struct engram_vec *v);
/* Returns a view of the cells' centres; NULL if all vectors are compared. */
const float *engram_vec_centres(const struct engram_vec *v, int64_t *n_centre);
/* Finds the k nearest to query [n_dim], best first: ids and inner products [k]. If there are fewer, the remaining
 * ids are -1. */
int engram_vec_search(const struct engram_vec *v, const float *query, int32_t k, int64_t *ids,
                      float *products, struct err *e);

#ifdef __cplusplus
}
#endif
#endif
