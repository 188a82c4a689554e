/* mutate_engram.c: changes for fuzz_engram that keep the form of an n-gram table: an integer of the header or of its
 * arrays gets a value that matters; fuzz_engram makes the checksums hold. Half of the changes are libFuzzer's own. */
#include "mutate_fields.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

enum { HEAD = 512 };

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    if (seed % 2 || size <= HEAD) return LLVMFuzzerMutate(data, size, max);
    mutate_field(data, size, HEAD, seed / 2);
    return size;
}
