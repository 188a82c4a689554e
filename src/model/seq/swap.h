/* swap.h: other encodings of a model's matrices, exchanged between two forward passes.
 *
 * A swap is one tensor of the file in another type, already in the form of the model's device. Applying it costs a few
 * pointer writes, so that thousands of combinations of types can be measured with one open model. No other thread may
 * use the model meanwhile. Free every swap, after swap_restore or before model_close. */
#ifndef CHIMERE_MODEL_SEQ_SWAP_H
#define CHIMERE_MODEL_SEQ_SWAP_H

#include "model/model.h"

struct swap;

/* The first n_first columns of a tensor as `type`; the others, if there are any, as `tail` (weights.h). The device may
 * read the data in place, so it must stay valid until swap_free. */
struct swap_form {
    uint32_t type, tail;
    uint64_t n_first;
    const void *data, *tail_data; /* borrowed */
};

/* CHIMERE_EUNSUPPORTED: the tensor's rows are gathered at load, its experts are on the host or in slots while
 * the model is on a device, or the tensor is no matrix of the model. */
int swap_new(struct swap **out, struct model *m, const char *tensor, const struct swap_form *form,
             struct err *e);
void swap_free(struct swap *s);
size_t swap_bytes(const struct swap *s); /* device memory that it uses */
void swap_apply(const struct swap *s);
/* Restores the file's own encoding of the tensor. */
void swap_restore(struct model *m, const char *tensor);
bool swap_is_possible(const struct model *m, const char *tensor);

#endif
