/* gpus.h: the cards of --gpus, and how they share a model. */
#ifndef CHIMERE_ENGINE_GPUS_H
#define CHIMERE_ENGINE_GPUS_H

#include <stdint.h>

#include "base/err.h"
#include "model/arch.h"

enum { GPUS_MAX = 8 };

/* replica: an engine a card, each with the whole model. layer: one engine, each card with a part of the layers. tensor: one
 * engine, each card with a slice of every layer. auto: replicas if every card holds the model, else layers. none: the
 * first card alone. */
enum split { SPLIT_AUTO, SPLIT_NONE, SPLIT_REPLICA, SPLIT_LAYER, SPLIT_TENSOR };
#define SPLIT_CHOICES "auto|none|replica|layer|tensor"
enum split split_of(const char *name); /* one of SPLIT_CHOICES */

struct gpus {
    int32_t n;               /* 0: none are named */
    char names[GPUS_MAX][8]; /* as device.h has them */
};

/* "0,1": numbers of cards, each once. "cpu" stands for an engine on the processor, and may be repeated: so the way of
 * requests can be tried without cards. NULL: none. */
int gpus_parse(const char *text, struct gpus *out, struct err *e);

/* Layers of the file at path in n parts, of bytes in proportion to share; each has one layer at least, the last one the
 * head as well. CHIMERE_ELIMIT: fewer layers than parts. */
int gpus_cut(const char *path, const uint64_t *share, int32_t n, struct layer_part *out,
             struct err *e);

#endif
