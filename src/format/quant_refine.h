/* quant_refine.h: rounding by correlation: codes that together change a matrix's outputs least.
 *
 * A row's output changes by e x, e being the row's rounding error and x an input, hence on average by e C e with C
 * the mean of x x^T. The encoders of quant.h know the diagonal of C only and round each weight by itself. Here codes
 * are changed one at a time, scales kept, while e C e falls, C being known within blocks of 256 columns. The format
 * does not change. Same bits on every machine. Any thread. */
#ifndef CHIMERE_FORMAT_QUANT_REFINE_H
#define CHIMERE_FORMAT_QUANT_REFINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { QUANT_REFINE_BLOCK = 256 };

/* What is known about the inputs of a matrix, from the row's first column on. */
struct quant_hints {
    const float *weights; /* importance of columns as the encoders take it, or NULL */
    /* [n, QUANT_REFINE_BLOCK]: for each column its mean product with each column of its block of 256, zeros behind
     * the row's end; symmetric, no negative eigenvalues. NULL: unknown. */
    const float *correlation;
};

/* One row of n elements in whole blocks: encode of quant.h, then codes are refined if the correlation is known and
 * the type allows it (quant_code.h). e C e is never greater than after encode alone. */
bool quant_refine_encode(uint32_t type, const float *src, void *dst, size_t n,
                         const struct quant_hints *hints);
bool quant_refine_is_possible(uint32_t type);
/* e C e of n errors; sum w e^2, or sum e^2, if the correlation, or both, are unknown. */
double quant_refine_error(const float *e, size_t n, const struct quant_hints *hints);

#endif
