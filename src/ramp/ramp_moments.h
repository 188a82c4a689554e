/* ramp_moments.h: second moments of the inputs of matrices without running the model: from norm weights.
 *
 * The input of a matrix that follows a norm is a unit vector times the norm's weight, so its second moment is
 * the square of that weight, up to a factor. Written as an importance matrix (imatrix_read.h); matrices
 * that follow something else have no entry. */
#ifndef CHIMERE_RAMP_RAMP_MOMENTS_H
#define CHIMERE_RAMP_RAMP_MOMENTS_H

#include "format/gguf.h"

int ramp_moments_write(const struct gguf *model, const char *path, struct err *e);

#endif
