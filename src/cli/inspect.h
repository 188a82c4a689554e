/* inspect.h: the result of `chimere inspect`, and its two printers. */
#ifndef CHIMERE_CLI_INSPECT_H
#define CHIMERE_CLI_INSPECT_H

#include <stdbool.h>
#include <stdint.h>

#include "format/gguf.h"
#include "format/quant.h"
#include "format/safetensors.h"

enum { INSPECT_MAX_TYPES = 48, INSPECT_SHORT_ARRAY = 16 };
enum inspect_part { PART_EXPERTS, PART_DENSE, PART_EMBEDDING, PART_OUTPUT, PART_VECTORS, N_PART };

struct inspect_type {
    const char *name; /* view */
    uint64_t n_tensors, n_weights, n_bytes;
};

struct inspect_plan {
    bool is_known; /* false: unknown architecture, only the size of the weights is known */
    int64_t n_ctx;
    int32_t n_seq, n_batch;
    uint64_t weight_bytes, cache_bytes, cache_bytes_per_tok, state_bytes, state_bytes_per_seq,
        scratch_bytes, program_bytes, total_bytes;
    bool has_tiers; /* of a run on a GPU, or within a given amount of memory */
    uint64_t device_bytes, memory_bytes, disk_bytes; /* routed experts there (enum plan_tier) */
};

struct inspection {
    const char *path;       /* view */
    struct gguf *gguf;      /* owned; either this or st is NULL */
    struct safetensors *st; /* owned */
    bool list_tensors, has_plan;
    uint32_t n_files;
    uint64_t file_bytes, n_weights, n_bytes, part_bytes[N_PART];
    struct inspect_type types[INSPECT_MAX_TYPES]; /* largest first */
    size_t n_types;
    struct inspect_plan plan;
};

void inspect_print_text(const struct inspection *x);
void inspect_print_json(const struct inspection *x);

#endif
