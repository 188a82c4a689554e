/* quant_grid.h: encoding by nearest grid point, for the IQ1, IQ2 and IQ3 types.
 *
 * A super-block of 256 is a half-precision d, times an odd integer 2 k + 1 per sub-block, times a point of the type's
 * grid per group of 8 or 4. The nearest point is searched among those nearest to the cell of the scaled group. The
 * lists of these (0.5 MB per grid, static) are computed at first use. No allocation; any thread. */
#ifndef CHIMERE_FORMAT_QUANT_GRID_H
#define CHIMERE_FORMAT_QUANT_GRID_H

#include <stdint.h>

#include "format/quant.h"

/* What an octet (8 elements) stores in addition to its grid points. */
enum grid_rule {
    GRID_SIGNS,       /* a sign for each element */
    GRID_SIGNS_EVEN,  /* signs, of which an even number is negative */
    GRID_SHIFT_SUB,   /* values -1, 0, 1 plus a shift of +-1/8 per sub-block */
    GRID_SHIFT_OCTET, /* the same with a shift per octet */
};

struct grid_code {
    uint16_t index[2]; /* second: of elements 4..7 if groups have 4 elements */
    uint8_t signs;     /* bit j: element j negative */
    uint8_t down;      /* shift is -1/8 */
};

struct grid_format {
    int points; /* which grid: enum in quant_grid.c's table */
    enum grid_rule rule;
    int len;    /* elements per sub-block */
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
