/* hints.h: what an importance matrix knows about the inputs of one tensor, as encoders take it: weights of columns
 * and, if the file has NAME.in_corr (importance.h), their correlations. Immutable once open; any thread. */
#ifndef CHIMERE_CONVERT_HINTS_H
#define CHIMERE_CONVERT_HINTS_H

#include <stdbool.h>

#include "convert/imatrix_read.h"
#include "format/gguf.h"

struct hints;

/* *out NULL: the file has no entry for the tensor, or m is NULL. Reads values, hence slow for experts. */
int hints_open(struct hints **out, const struct imatrix *m, const struct gguf_tensor *t,
               struct err *e);
void hints_close(struct hints *h);
/* [ne0] of one matrix; view. */
const float *hints_weights(const struct hints *h, uint64_t matrix);
bool hints_has_correlation(const struct hints *h);
/* Fills out [ne0, QUANT_REFINE_BLOCK] as quant_refine.h takes it. Experts are drawn to the mean of all by
 * IMATRIX_PRIOR rows, as weights are. */
int hints_correlation(const struct hints *h, uint64_t matrix, float *out, struct err *e);

#endif
