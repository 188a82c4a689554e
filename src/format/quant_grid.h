/* quant_grid.h: encoding by nearest grid point, for the IQ1, IQ2 and IQ3 types.
 *
 * A super-block of 256 is a half d times, per sub-block, an odd integer 2 k + 1 times, per group of 8 or 4,
 * a point of the type's grid. The nearest point is looked for among those nearest to the cell that the
 * scaled group falls into; these lists (0.5 MB per grid, static) are made at first use. No allocation;
 * any thread. */
#ifndef CHIMERE_FORMAT_QUANT_GRID_H
#define CHIMERE_FORMAT_QUANT_GRID_H

#include <stdint.h>

#include "format/quant.h"

/* What an octet (8 elements) stores beside its grid points. */
enum grid_rule {
    GRID_SIGNS,       /* a sign for each element */
    GRID_SIGNS_EVEN,  /* signs of which an even number is negative */
    GRID_SHIFT_SUB,   /* values -1, 0, 1 and a shift of +-1/8, the same for a sub-block */
    GRID_SHIFT_OCTET, /* the same, a shift for each octet */
};

struct grid_code {
    uint16_t index[2]; /* second: of elements 4..7 where groups are of 4 */
    uint8_t signs;     /* bit j: element j negative */
    uint8_t down;      /* shift is -1/8 */
};

struct grid_format {
    int points; /* which grid: enum in quant_grid.c's table */
    enum grid_rule rule;
    int len;    /* elements of a sub-block */
    int top;    /* largest k */
    float unit; /* scale = d unit (2 k + 1) */
};

extern const struct grid_format quant_format_iq2_xxs, quant_format_iq2_xs, quant_format_iq2_s,
    quant_format_iq3_xxs, quant_format_iq3_s, quant_format_iq1_s, quant_format_iq1_m;

struct grid_result {
    uint16_t d;
    uint8_t k[16];
    struct grid_code code[32];
};

/* Encodes 256 elements; weights may be NULL. */
void quant_grid_encode(const struct grid_format *f, const float *src, const float *weights,
                       struct grid_result *out);

#endif
