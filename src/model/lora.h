/* lora.h: low-rank adapters of a model's matrices. Immutable once open; any thread. */
#ifndef CHIMERE_MODEL_LORA_H
#define CHIMERE_MODEL_LORA_H

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
uint64_t lora_hash(const struct lora *l); /* names its content, as model.h's hash does a model's */

#endif
