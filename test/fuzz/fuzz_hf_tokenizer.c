/* fuzz_hf_tokenizer.c: any bytes as a tokenizer.json. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "convert/hf_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    if (!text) return 0;
    if (size) memcpy(text, data, size);
    text[size] = 0;
    struct hf_vocab v;
    struct err e = {0};
    if (hf_vocab_parse(&v, text, size, "input", &e)) {
        if (!e.text[0]) __builtin_trap();
    } else {
        volatile uint64_t sum = 0;
        (void)sum;
        const char *name;
        for (uint32_t i = 0; i < v.n; i++)
            for (size_t j = 0; j < v.pieces[i].n; j++) sum += (unsigned char)v.pieces[i].p[j];
        for (size_t i = 0; i < v.n_merges; i++) sum += v.merges[i].n;
        if (hf_pre_name(&v, &name, &e) == 0) sum += strlen(name);
    }
    hf_vocab_fini(&v);
    free(text);
    return 0;
}
