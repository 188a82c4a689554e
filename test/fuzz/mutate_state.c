/* mutate_state.c: changes for fuzz_state that keep the form of a saved sequence: an integer gets a value that matters, and
 * the checksums are made to hold. Half of the changes are libFuzzer's own. */
#include "mutate_fields.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

enum { HEAD = 80, MEND_CHECKSUMS = 6 }; /* fuzz_state.c */

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
    if (seed % 2 || size <= HEAD) return LLVMFuzzerMutate(data, size, max);
    mutate_field(data + 1, size - 1, HEAD, seed / 2);
    data[0] |= MEND_CHECKSUMS;
    return size;
}
