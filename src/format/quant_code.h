/* quant_code.h: where a block stores the codes of a type's weights, separate from its scales.
 *
 * A type has one part, or two whose values are multiplied (a grid point, and signs). A part divides a block into units
 * of the same number of weights, with one code each. The values of a code are found by decoding it, so a type is one
 * row of a table. Constant data; no allocation; any thread. */
#ifndef CHIMERE_FORMAT_QUANT_CODE_H
#define CHIMERE_FORMAT_QUANT_CODE_H

#include <stddef.h>
#include <stdint.h>

enum { QUANT_CODE_PARTS = 2, QUANT_CODE_FIELDS = 2, QUANT_CODE_MAX = 1024 };

/* Bits of unit u's code start at bit `at` + 8 (u / span * step + u % width) + u % span / width * bits. */
struct quant_field {
    uint16_t at;
    uint8_t bits, width;
    uint16_t span;
    uint8_t step;
};

struct quant_part {
    uint8_t n;                                   /* weights per unit; 0: the part does not exist */
    struct quant_field field[QUANT_CODE_FIELDS]; /* low bits first; bits = 0: absent */
};

struct quant_code {
    uint32_t type;
    struct quant_part part[QUANT_CODE_PARTS];
};

/* Returns NULL if the codes of this type cannot be accessed separately. */
const struct quant_code *quant_code(uint32_t type);
/* number of codes per unit, at most QUANT_CODE_MAX */
int quant_code_count(const struct quant_part *p);
/* Reads or writes the code of unit u of a block. */
uint32_t quant_code_read(const struct quant_part *p, const uint8_t *block, int u);
void quant_code_write(const struct quant_part *p, uint8_t *block, int u, uint32_t code);

#endif
