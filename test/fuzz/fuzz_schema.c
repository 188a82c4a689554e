/* fuzz_schema.c: a JSON Schema, a NUL, and a text to match: compiling ends within its limits, and masks
 * agree with what is accepted. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "grammar_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct grammar_limits limits = {
        .text_bytes = 1 << 14, .depth = 64, .n_rule = 2000, .n_node = 20000, .time_ms = 400};
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t n = nul ? (size_t)(nul - data) : size;
    struct grammar *g;
    struct err e = {0};
    if (grammar_from_schema(&g, (const char *)data, n, &limits, &e)) {
        if (!e.text[0]) __builtin_trap();
        return 0;
    }
    walk(g, nul ? (const char *)nul + 1 : "", nul ? size - n - 1 : 0);
    grammar_free(g);
    return 0;
}
