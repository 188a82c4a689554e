/* gpus.h: the GPUs that --gpus names, and how they share a model. */
#ifndef CHIMERE_ENGINE_GPUS_H
#define CHIMERE_ENGINE_GPUS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/arch/arch.h"

enum { GPUS_MAX = 8 };

/* replica: one engine per GPU, each with the whole model. layer: one engine, each GPU with some of the layers. tensor:
 * one engine, each GPU with a slice of every layer. auto: replicas if every GPU can hold the model, else layers. none:
 * only the first GPU. */
enum split { SPLIT_AUTO, SPLIT_NONE, SPLIT_REPLICA, SPLIT_LAYER, SPLIT_TENSOR };
#define SPLIT_CHOICES "auto|none|replica|layer|tensor"
enum split split_of(const char *name); /* name is one of SPLIT_CHOICES */

struct gpus {
    int32_t n;               /* 0: --gpus was not given */
    char names[GPUS_MAX][8]; /* in the form that device.h uses */
};

/* Parses "0,1": numbers of GPUs, each once. "cpu" is an engine on the processor and may be repeated, so that the
 * distribution of requests can be tested without GPUs. NULL: no GPUs. */
int gpus_parse(const char *text, struct gpus *out, struct err *e);

/* Writes those names of the list text that can be opened, each with a warning about one that cannot. Returns 0, or the
 * error of the last card if none answers. */
int gpus_answering(const char *text, char *out, size_t size, struct err *e);

/* Divides the layers of the file at path into n parts, with bytes in proportion to share. Each part has at least one
 * layer; the last part also has the output head. CHIMERE_ELIMIT: fewer layers than parts. */
int gpus_cut(const char *path, const uint64_t *share, int32_t n, struct layer_part *out,
             struct err *e);

#endif
