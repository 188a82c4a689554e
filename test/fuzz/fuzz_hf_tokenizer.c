/* fuzz_hf_tokenizer.c: any bytes as a tokenizer.json, a tekken.json or a tiktoken file. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "convert/hf_vocab_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(struct hf_vocab *v, int rc, struct err *e) {
    volatile uint64_t sum = 0;
    const char *name;
    (void)sum;
    if (rc && !e->text[0]) __builtin_trap();
    for (uint32_t i = 0; !rc && i < v->n; i++)
        for (size_t j = 0; j < v->pieces[i].n; j++) sum += (unsigned char)v->pieces[i].p[j];
    for (size_t i = 0; !rc && i < v->n_merges; i++) sum += v->merges[i].n;
    if (!rc && hf_pre_name(v, &name, e) == 0) sum += strlen(name);
    hf_vocab_fini(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    struct hf_vocab v;
    struct err e = {0};
    if (!text) return 0;
    if (size) memcpy(text, data, size);
    text[size] = 0;
    look(&v, hf_vocab_parse(&v, text, size, "input", &e), &e);
    e = (struct err){0};
    look(&v, hf_ranked_parse(&v, "/nowhere", text, size, "input", &e), &e);
    free(text);
    return 0;
}
