/* ramp_store.h: encodings of whole tensors, made when a candidate first needs them.
 *
 * Encodings are kept as files in the work folder up to a limit, so that an interrupted search and the final build find
 * them again; beyond the limit, they are in memory. On the device, forms that the model no longer uses are freed when
 * the room for them is used up. There is one file per tensor and type; its name contains the hash of model and
 * importance matrix. */
#ifndef CHIMERE_RAMP_RAMP_STORE_H
#define CHIMERE_RAMP_RAMP_STORE_H

#include "convert/encode.h"
#include "model/model.h"
#include "ramp/ramp_set.h"

enum { RAMP_SOURCE = 255 }; /* in a choice: the tensor as stored in the file */

struct ramp_store;

/* m: the model in which candidates are put in place; NULL: none, for builds. */
int ramp_store_open(struct ramp_store **out, const struct ramp_set *s, struct model *m,
                    const struct ramp_options *o, struct err *e);
void ramp_store_close(struct ramp_store *st); /* the model then has its own weights again */
/* Puts a choice in place. Tensors that the model cannot exchange are unchanged. */
int ramp_store_apply(struct ramp_store *st, const uint8_t *choice, struct err *e);
/* The cached encoding, mapped until close; NULL: not cached. */
const void *ramp_store_cached(struct ramp_store *st, size_t gene, int form);

#endif
