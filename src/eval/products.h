/* products.h: sums of products of the inputs of a stack of matrices, within blocks of 256 inputs.
 *
 * Rows are kept until there are enough of them to add their products in one pass over the sums, which are far larger
 * than a processor's caches. A sum depends on the order of the rows alone, not on the number of threads. An object may
 * be used by one thread at a time. */
#ifndef CHIMERE_EVAL_PRODUCTS_H
#define CHIMERE_EVAL_PRODUCTS_H

#include <stdint.h>

#define PRODUCTS_BLOCK 256

struct pool;
struct products;

struct products *products_new(int64_t n_in, int64_t n_mat); /* NULL: out of memory */
void products_free(struct products *p);
/* Adds one row of the inputs of matrix mat. */
void products_add(struct products *p, struct pool *pool, int64_t mat, const float *x);
/* Adds the rows that are still kept; must precede products_sums. */
void products_finish(struct products *p, struct pool *pool);
/* Returns [n_mat, n_in, PRODUCTS_BLOCK]: of each input with each input of its block. Valid until p is freed. */
const float *products_sums(const struct products *p);

#endif
