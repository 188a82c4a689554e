/* hf.h: Hugging Face folder -> GGUF: config.json, tokenizer.json, tokenizer_config.json, safetensors.
 *
 * A family's row of arch_table defines its keys, tensors and transforms; this folder only applies them. Weights are
 * streamed row by row: memory is that of a few rows, not of a tensor. */
#ifndef CHIMERE_CONVERT_HF_H
#define CHIMERE_CONVERT_HF_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct hf_options {
    const char *dir, *out;
    const char *type;          /* a mix of quantize_mix.h; NULL: types of the source */
    const char *pre;           /* pre-tokenizer name; NULL: recognized from tokenizer.json */
    uint64_t split_bytes;      /* 0: one file */
    const char *const *ignore; /* [n_ignore] fields of config.json to ignore if unknown */
    size_t n_ignore;
    int n_thread; /* 0: one per core */
};

struct hf_result {
    uint64_t n_tensors, n_weights, n_bytes;
    uint64_t n_unused; /* tensors of the source that the family does not use */
};

int hf_convert(const struct hf_options *options, struct hf_result *result, struct err *e);

#endif
