/* Bases of divergence: what is accepted can be read to its last row. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "eval/kl_base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size ? size : 1);
    struct kl_base *b;
    if (!copy) abort();
    if (size) memcpy(copy, data, size);
    if (size >= 44) { /* a checksum that holds, so that what is behind it is reached */
        uint32_t crc = hash_crc32c(0, copy, 40);
        memcpy(copy + 40, &crc, 4);
    }
    if (kl_base_open_memory(&b, copy, size, "fuzz", NULL) == 0) {
        float *row = malloc((size_t)b->shape.n_vocab * sizeof *row);
        if (!row) abort();
        int32_t n_row = b->shape.ctx - 1 - b->shape.first;
        for (uint64_t w = 0; w < b->shape.n_window; w++)
            for (int32_t r = 0; r < n_row; r++) {
                kl_base_row(b, w, r, row);
                for (int32_t i = 0; i < b->shape.n_vocab; i++)
                    if (!isfinite(row[i])) abort();
            }
        free(row);
        kl_base_close(b);
    }
    free(copy);
    return 0;
}
