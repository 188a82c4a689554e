/* expert_slots.h: routed experts of which a device holds those in use, in slots of its memory.
 *
 * All experts are in pinned host memory, in the device's form, one allocation per layer. Each layer has the same share
 * of its experts in slots, until earlier uses divide them (experts_share.h). The op itself decides which expert a slot holds, and copies it (moe_pool in tensor.h).
 * Batches longer than a step use a stage of one layer's experts, which all layers share. Pages of keys and values that
 * no sequence uses hold experts that left their slots. Belongs to the model and to the thread that uses the device;
 * expert_slots_stats may be called by any thread. */
#ifndef CHIMERE_MODEL_EXPERTS_EXPERT_SLOTS_H
#define CHIMERE_MODEL_EXPERTS_EXPERT_SLOTS_H

#include "model/experts/experts_lend.h"
#include "model/experts/tier.h"

struct expert_slots;

/* layer[0..n_layer): a layer whose parts have no data has no experts. Takes at most device_bytes of d's memory.
 * CHIMERE_ELIMIT: device_bytes is not enough for n_used slots per layer. CHIMERE_ENOMEM: pinned or device memory was
 * refused. */
int expert_slots_new(struct expert_slots **out, const struct hparams *hp, struct dev *d,
                     const struct tier_layer_weights *layer, int32_t n_layer, uint64_t device_bytes,
                     struct err *e);
void expert_slots_free(struct expert_slots *s);

/* Repacks *m, which is gate, up or down of layer il in the file's form, into host memory. *m is from then on that
 * memory. CHIMERE_ENUMERIC: it contains NaN or infinity. */
int expert_slots_pack(struct expert_slots *s, int32_t il, struct weight *m);

/* Of layer il; NULL: it has no experts. */
const struct moe_pool *expert_slots_pool(const struct expert_slots *s, int32_t il);
void expert_slots_stats(const struct expert_slots *s, struct tier_stats *out);
/* Tokens that used each expert of each layer since the pool was opened, [n_layer, n_expert]. Changes while the device
 * works. */
const uint32_t *expert_slots_uses(const struct expert_slots *s);
/* Divides the slots among the layers by earlier uses, and fills those of every layer with its most used experts. Only
 * before the first batch. */
int expert_slots_fill(struct expert_slots *s, const uint32_t *uses, struct err *e);

/* experts_lend.h, for slots */
bool expert_slots_borrow(struct expert_slots *s, const void *owner, const struct page_array *a,
                         int32_t n);
void expert_slots_lend(struct expert_slots *s, uint32_t parts);
void expert_slots_return(struct expert_slots *s, const void *owner);

/* Device memory that slots for the fraction `share` of the experts take, at least the minimum per layer; in_form: bytes
 * of each layer's experts in the device's form, 0: it has none. */
uint64_t expert_slots_bytes(const struct hparams *hp, const uint64_t *in_form, int32_t n_layer,
                            double share);
bool expert_slots_are_possible(const struct dev *d, const struct hparams *hp);

#endif
