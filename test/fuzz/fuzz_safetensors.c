/* fuzz_safetensors.c: any bytes as a safetensors file. */
#include <stddef.h>
#include <stdint.h>

#include "format/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct safetensors *st;
    struct err e = {0};
    if (safetensors_open_memory(&st, data, size, "input", &e)) {
        if (!e.text[0]) __builtin_trap();
        return 0;
    }
    volatile uint64_t sum = 0;
    (void)sum;
    for (size_t i = 0; i < safetensors_n_tensors(st); i++) {
        const struct st_tensor *t = safetensors_at(st, i);
        for (uint64_t j = 0; j < t->n_bytes; j++) sum += t->data[j];
        if (safetensors_find(st, t->name) != t) __builtin_trap();
    }
    safetensors_close(st);
    return 0;
}
