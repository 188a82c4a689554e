/* fuzz_imatrix.c: any bytes as an importance matrix, GGUF or legacy. What opens is asked for weights and
 * correlations of several shapes, right and wrong. */
#include <stddef.h>
#include <stdint.h>

#include "convert/hints.h"
#include "format/quant_refine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"blk.0.ffn_up_exps.weight", "blk.0.attn_q.weight", "a", ""};
    static const uint64_t shapes[][2] = {{1, 1}, {2, 1}, {4, 2}, {8, 4}, {0, 1}, {UINT64_MAX, 3}};
    static float weights[64], products[64 * QUANT_REFINE_BLOCK];
    struct hints *h;
    struct imatrix *m;
    struct err e = {0};
    if (imatrix_open_memory(&m, data, size, "input", &e)) {
        if (!e.text[0]) __builtin_trap();
        return 0;
    }
    if (imatrix_n_entries(m) == 0) __builtin_trap();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
            uint64_t n_column = shapes[k][0], n_matrix = shapes[k][1];
            if (imatrix_check(m, names[i], n_column, n_matrix, &e)) continue;
            if (n_column * n_matrix > 64) __builtin_trap(); /* never true of a file this small */
            imatrix_weights(m, names[i], n_column, n_matrix, weights, &e);
            const struct gguf_tensor t = {.name = names[i], .ne = {n_column, 1, n_matrix, 1}};
            if (hints_open(&h, m, &t, &e)) continue;
            for (uint64_t own = 0; own < n_matrix && hints_has_correlation(h); own++)
                hints_correlation(h, own, products, &e);
            hints_close(h);
        }
    imatrix_close(m);
    return 0;
}
