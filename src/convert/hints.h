/* hints.h: what an importance matrix contains about the inputs of one tensor, in the form that encoders take: weights
 * of columns and, if the file has NAME.in_corr (importance.h), their correlations. Immutable once open; any thread. */
#ifndef CHIMERE_CONVERT_HINTS_H
#define CHIMERE_CONVERT_HINTS_H

#include <stdbool.h>

#include "convert/imatrix_read.h"
#include "format/gguf.h"

struct hints;

/* *out NULL: the file has no entry for the tensor, or m is NULL. Reads all values, so it is slow for experts. */
int hints_open(struct hints **out, const struct imatrix *m, const struct gguf_tensor *t,
               struct err *e);
void hints_close(struct hints *h);
/* [ne0] of one matrix; view. */
const float *hints_weights(const struct hints *h, uint64_t matrix);
/* Whether the file has the tensor's correlations, whatever they are. */
bool hints_are_correlated(const struct imatrix *m, const struct gguf_tensor *t);
bool hints_has_correlation(const struct hints *h);
/* Fills out [ne0, QUANT_REFINE_BLOCK] in the form of quant_refine.h. An expert's values are mixed with the mean of
 * all experts, which counts as IMATRIX_PRIOR rows; weights likewise. */
int hints_correlation(const struct hints *h, uint64_t matrix, float *out, struct err *e);

#endif
