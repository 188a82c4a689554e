/* ramp_error.h: the error of every form of every gene, measured on sampled rows with the real encoders. */
#ifndef CHIMERE_RAMP_RAMP_ERROR_H
#define CHIMERE_RAMP_RAMP_ERROR_H

#include "ramp/ramp_set.h"

/* Fills the genes' errors; n_sample: weights per tensor and type. Rows are spread evenly over the tensor, hence over
 * experts. A value that is not finite is reported with its position. */
int ramp_error_measure(struct ramp_set *s, uint64_t n_sample, int n_thread, bool quiet,
                       struct err *e);

#endif
