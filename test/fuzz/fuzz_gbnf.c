/* fuzz_gbnf.c: a GBNF grammar, a NUL, and a text to match. */
#include <stddef.h>
#include <stdint.h>

#include "grammar_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    return walk_input(grammar_from_gbnf, data, size);
}
