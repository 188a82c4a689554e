/* synth.h: models with random, well-scaled weights in published shapes, to benchmark a machine without a download.
 * Speed does not depend on the values. The file has a byte-level vocabulary padded to size and a plain chat template,
 * so that it can be served. The same options give the same bytes. */
#ifndef CHIMERE_CONVERT_SYNTH_H
#define CHIMERE_CONVERT_SYNTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define SYNTH_SHAPES                                                                               \
    "qwen35moe-35b|qwen35moe-122b|qwen35moe-397b|qwen35-27b|qwen35moe-mini|nemotron-30b|"          \
    "mamba-mini|mamba2-mini|nemotron-mini|nemotron-super-mini|granite-mini|granite-moe-mini|"      \
    "granite-h-mini|falcon-h1-mini|jamba-mini|zamba2-mini|hymba-mini|olmo-hybrid-mini|"            \
    "ministral-mini|lfm2-mini|lfm2-moe-mini|gpt-oss-mini|gemma3-mini|gemma4-mini|"                 \
    "gemma4-moe-mini|glm-flash-mini"
#define SYNTH_MIXES "ramp3|q4km|q8|q4_0"

struct synth_options {
    const char *shape, *mix, *out;       /* shape and mix from the lists above; path */
    uint32_t n_layer, n_expert, n_vocab; /* 0: as published */
    bool
        /* for plans: keys and directory; the data is a hole, which takes no disk space */
        is_hollow;
};

struct synth_result {
    uint64_t n_weights, n_bytes; /* of tensors */
};

int synth_write(const struct synth_options *options, struct synth_result *result, struct err *e);

#endif
