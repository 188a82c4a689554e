/* lora.h: low-rank adapters of a model's matrices. Immutable once open; any thread. */
#ifndef CHIMERE_MODEL_LORA_H
#define CHIMERE_MODEL_LORA_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct model;
struct lora;
struct lora_use {
    const struct lora *lora; /* borrowed for the call */
    float scale;
};

/* LoRA in GGUF form (general.type "adapter", adapter.type "lora"): y += scale * alpha / r * B (A x). */
int lora_open(struct lora **out, struct model *m, const char *path, struct err *e);
void lora_close(struct lora *l);
/* copy: the same file opened for another copy of the model. Calls that use l with that copy then use `copy`. Call it
 * before l's first use; `copy` is borrowed until l's last use. */
void lora_join(struct lora *l, struct lora *copy);
/* identifies its content, as model.h's hash does for a model */
uint64_t lora_hash(const struct lora *l);

/* An adapter that another runtime applies; engine and backends pass it on like any other. The
 * handle is borrowed until lora_close. */
int lora_foreign(struct lora **out, void *handle, uint64_t hash, struct err *e);
void *lora_handle(const struct lora *l); /* NULL: an adapter of this runtime */

/* ---- training ---- */

/* An adapter of the matrices that write to the residual stream: outputs of attention, delta net, Mamba and
 * dense feed-forward blocks. A is drawn from `seed` (uniform, variance 1 / n_in), B is zero, alpha = rank.
 * CHIMERE_EUNSUPPORTED: the model has no such matrix. */
int lora_new(struct lora **out, struct model *m, int32_t rank, uint64_t seed, struct err *e);
/* Shares A with l, which must outlive it; has a copy of B. */
int lora_twin(struct lora **out, const struct lora *l, struct err *e);
/* All values of B, [*n]; for adapters from lora_new and lora_twin. lora_commit applies changes to the device. */
float *lora_b(struct lora *l, size_t *n);
int lora_commit(struct lora *l, struct err *e);
/* Writes it in the format that lora_open reads, f32. */
int lora_save(const struct lora *l, const char *path, struct err *e);

#endif
