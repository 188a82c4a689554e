/* quant_refine.h: rounding by correlation: choose codes that together change a matrix's outputs least.
 *
 * A row's output changes by e x, where e is the row's rounding error and x an input; its mean square is e C e, where C
 * is the mean of x x^T. The encoders of quant.h know only the diagonal of C and round each weight separately. Here
 * codes are changed one at a time, with the scales fixed, as long as e C e falls; C is known within blocks of 256
 * columns. The format does not change. Same bits on every machine. Any thread. */
#ifndef CHIMERE_FORMAT_QUANT_REFINE_H
#define CHIMERE_FORMAT_QUANT_REFINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { QUANT_REFINE_BLOCK = 256 };

/* What is known about the inputs of a matrix, starting with the row's first column. */
struct quant_hints {
    const float *weights; /* importance of columns, as for the encoders; or NULL */
    /* [n, QUANT_REFINE_BLOCK]: for each column, its mean product with each column of its block of 256, zeros beyond
     * the end of the row; symmetric, no negative eigenvalues. NULL: unknown. */
    const float *correlation;
};

/* Encodes one row of n elements in whole blocks with quant.h, then refines the codes if the correlation is known and
 * the type allows it (quant_code.h). e C e is never greater than after encoding alone. */
bool quant_refine_encode(uint32_t type, const float *src, void *dst, size_t n,
                         const struct quant_hints *hints);
bool quant_refine_is_possible(uint32_t type);
/* e C e of n errors; if the correlation is unknown, sum w e^2; if the weights are unknown too, sum e^2. */
double quant_refine_error(const float *e, size_t n, const struct quant_hints *hints);

#endif
