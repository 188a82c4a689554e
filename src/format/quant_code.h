/* quant_code.h: where the codes of a type's weights are in a block, apart from its scales.
 *
 * A type has one part, or two whose values multiply (a point of a grid, and signs). A part divides a block into units of
 * equally many weights with one code each. What a code stands for is found by decoding it, so that a type is one
 * row of a table. Constant data; no allocation; any thread. */
#ifndef CHIMERE_FORMAT_QUANT_CODE_H
#define CHIMERE_FORMAT_QUANT_CODE_H

#include <stddef.h>
#include <stdint.h>

enum { QUANT_CODE_PARTS = 2, QUANT_CODE_FIELDS = 2, QUANT_CODE_MAX = 1024 };

/* Bits of unit u's code begin at bit `at` + 8 (u / span * step + u % width) + u % span / width * bits. */
struct quant_field {
    uint16_t at;
    uint8_t bits, width;
    uint16_t span;
    uint8_t step;
};

struct quant_part {
    uint8_t n;                                   /* weights of a unit; 0: there is no such part */
    struct quant_field field[QUANT_CODE_FIELDS]; /* low bits first; bits = 0: absent */
};

struct quant_code {
    uint32_t type;
    struct quant_part part[QUANT_CODE_PARTS];
};

/* NULL: the codes of this type are not told apart. */
const struct quant_code *quant_code(uint32_t type);
int quant_code_count(const struct quant_part *p); /* codes of a unit, at most QUANT_CODE_MAX */
/* Of unit u of a block. */
uint32_t quant_code_read(const struct quant_part *p, const uint8_t *block, int u);
void quant_code_write(const struct quant_part *p, uint8_t *block, int u, uint32_t code);

#endif
