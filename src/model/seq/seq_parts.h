/* seq_parts.h: states of a model on several devices, as one state of the whole model, and divided again.
 *
 * A device may have some of the layers, or a slice of every layer (slice.h): some of the heads with their keys and
 * values, recurrent states, convolutions and logs. Joined states are those of one device, so a file of one split opens
 * with any other. The states are in host memory; any thread. */
#ifndef CHIMERE_MODEL_SEQ_SEQ_PARTS_H
#define CHIMERE_MODEL_SEQ_SEQ_PARTS_H

#include "model/seq/checkpoint.h"

/* A pool without memory on a device, for states of the whole model. Of m only hp and hash are used. */
int seq_shape_new(struct seq_pool **out, struct model *m, const struct seq_pool_params *p,
                  struct err *e);

/* The state of the whole model from those of n parts, which have no pages in a pool. */
int seq_parts_join(struct checkpoint **out, struct seq_pool *whole,
                   const struct checkpoint *const *part, int32_t n, struct err *e);
/* Fills part [n], one state in each pool; all are NULL after an error. */
int seq_parts_divide(const struct checkpoint *whole, struct seq_pool *const *pools, int32_t n,
                     struct checkpoint **part, struct err *e);

#endif
