/* experts_lend.h: pages of keys and values that no sequence uses, as memory for experts in slots or in the pool.
 *
 * A sequence pool lends its arrays of pages. They are divided into parts. The owner says which parts are idle; records
 * that are in idle parts alone hold experts. One owner at a time, on the thread that runs the model. */
#ifndef CHIMERE_MODEL_EXPERTS_EXPERTS_LEND_H
#define CHIMERE_MODEL_EXPERTS_EXPERTS_LEND_H

#include "kernels/ops.h"

struct expert_store;

enum { EXPERTS_LEND_PARTS = 32 };
struct page_array { /* one of several arrays of equally many parts */
    char *at;       /* borrowed until experts_lend_end */
    size_t page_bytes, part_bytes, bytes;
};

/* Memory of n bytes, zeroed, for an array: records of experts on disk are in one block with the pool. NULL: the owner
 * allocates it. Valid until experts_lend_end. */
void *experts_lend_room(const struct expert_store *s, const void *owner, size_t n);
/* Divides n arrays into records, none of which is used yet. Returns false if there is nothing to lend them to, or if
 * another owner does. */
bool experts_lend_begin(const struct expert_store *s, const void *owner, const struct page_array *a,
                        int32_t n);
/* From now on the parts whose bits are set hold experts, and no others. In order with ops. */
void experts_lend_parts(const struct expert_store *s, uint32_t parts);
void experts_lend_end(const struct expert_store *s, const void *owner);

/* ---- for expert_slots.c and tier.c ---- */

struct lend_layer {
    size_t record;        /* bytes of an expert, a multiple of 64; 0: the layer has none */
    int32_t most, n;      /* most: records at most; n: records placed */
    struct moe_spare *to; /* [most] */
};
/* Places records of all layers in the arrays, in turn. */
void experts_lend_divide(struct lend_layer *l, int32_t n_layer, const struct page_array *a,
                         int32_t n);

#endif
