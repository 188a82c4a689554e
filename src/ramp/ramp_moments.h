/* ramp_moments.h: second moments of matrix inputs from norm weights, without running the model.
 *
 * The input of a matrix that follows a norm is a normalized vector times the norm's weight. So its second moment is the
 * square of that weight, up to a factor. It is written as an importance matrix (imatrix_read.h). Other matrices have no
 * entry. */
#ifndef CHIMERE_RAMP_RAMP_MOMENTS_H
#define CHIMERE_RAMP_RAMP_MOMENTS_H

#include "format/gguf.h"

int ramp_moments_write(const struct gguf *model, const char *path, struct err *e);

#endif
