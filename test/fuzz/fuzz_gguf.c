/* fuzz_gguf.c: any bytes as a GGUF file. What opens is read to the end of every promise. */
#include <stddef.h>
#include <stdint.h>

#include "format/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_kv(const struct gguf *g, const struct gguf_kv *kv, volatile uint64_t *sum) {
    struct slice s;
    uint64_t cursor = 0, u;
    int64_t i;
    double f;
    bool b;
    for (uint64_t j = 0; j < kv->n_bytes; j++) *sum += kv->data[j];
    while (gguf_next_str(kv, &cursor, &s)) *sum += s.n;
    for (uint64_t j = 0; j < kv->n + 1 && j < 1000; j++) {
        if (gguf_item_u64(kv, j, &u)) *sum += u;
        if (gguf_item_i64(kv, j, &i)) *sum += (uint64_t)i;
        if (gguf_item_f64(kv, j, &f)) *sum += f > 0;
        if (gguf_item_bool(kv, j, &b)) *sum += b;
    }
    char key[GGUF_MAX_NAME + 1];
    for (size_t j = 0; j < kv->key.n; j++) key[j] = kv->key.p[j];
    key[kv->key.n] = 0;
    if (gguf_find(g, key) != kv) __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct gguf *g;
    struct err e = {0};
    if (gguf_open_memory(&g, data, size, "input", &e)) {
        if (!e.text[0]) __builtin_trap();
        return 0;
    }
    volatile uint64_t sum = 0;
    for (size_t i = 0; i < gguf_n_kv(g); i++) read_kv(g, gguf_kv_at(g, i), &sum);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        for (uint64_t j = 0; j < t->n_bytes; j++) sum += t->data[j];
        if (gguf_find_tensor(g, t->name) != t) __builtin_trap();
    }
    gguf_close(g);
    return 0;
}
