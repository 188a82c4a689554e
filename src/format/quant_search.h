/* quant_search.h: least-squares searches shared by the encoders: given elements x and weights w, find the scales (and
 * minima) of a block that minimize sum w (x - decoded)^2.
 *
 * All of them work in the same way. Scan a range of starting scales, each of which gives nearest codes. For fixed codes
 * the best scale solves a linear least-squares problem. Repeat from the best. If scales are quantized too, neighbouring
 * integers are tried with the exact error, and the super scale is fitted again to the result. Always four lanes, so the
 * result is the same on every machine. No allocation; any thread. */
#ifndef CHIMERE_FORMAT_QUANT_SEARCH_H
#define CHIMERE_FORMAT_QUANT_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

enum { SEARCH_MAX = 256, SEARCH_MAX_SUB = 16 };

/* The levels of the codes before scaling: integers lo..hi, or a table of 16. */
struct levels {
    float lo, hi;        /* least and greatest level */
    const float *values; /* view of 16 ascending values, or NULL for integers */
    const float *bounds; /* view of the 15 midpoints between them */
};

/* The start of a scan: the largest element is mapped to `first` times the end of the range, then to `first` + `step`
 * times the end, and so on, `count` times. */
struct scan {
    float first, step;
    int count;
};

struct fit {
    float scale, min;   /* x ~ scale q + min */
    float wq, wqq, wxq; /* sums of w q, w q q, w x q for the codes found */
    float wx, ww;       /* sums of w x and w */
    float error;        /* sum w (x - scale q - min)^2 */
};

/* Copies n elements and weights (NULL: ones) and sanitizes them. NaN becomes 0; magnitudes above 1e9, which no format
 * can hold, are clamped; weights are scaled to at most 1 and kept positive. Returns the largest magnitude, or 0 if it
 * is too small for any format to distinguish from 0. */
float quant_search_load(const float *x, const float *weights, int n, float *out_x, float *out_w);

/* x ~ scale q; n a multiple of 4. quant_search_nearest only finds the nearest codes for the given scale. */
struct fit quant_search_symmetric(const float *x, const float *w, int n, const struct levels *l,
                                  struct scan scan);
struct fit quant_search_nearest(const float *x, const float *w, int n, const struct levels *l,
                                float scale);
/* x ~ scale q + min, q in 0..hi, scale >= 0; min <= 0 if min_nonpositive. */
struct fit quant_search_affine(const float *x, const float *w, int n, float hi,
                               bool min_nonpositive);
struct fit quant_search_affine_nearest(const float *x, const float *w, int n, float hi, float scale,
                                       float min);

/* Codes from 0 on: q - lo for integers, the index for tables. */
void quant_search_codes(const float *x, int n, const struct levels *l, float scale, float min,
                        uint8_t *codes);

/* One f16 scale d over n_sub sub-blocks of len elements, each with an integer scale in lo..hi. */
struct super {
    uint16_t d, dmin; /* f16 */
    int scale[SEARCH_MAX_SUB], min[SEARCH_MAX_SUB];
};
void quant_search_super(const float *x, const float *w, int n_sub, int len, const struct levels *l,
                        struct scan scan, int lo, int hi, struct super *out);
/* The same with minima: x ~ d scale q - dmin min, scale and min in 0..top, q in 0..hi. */
void quant_search_super_affine(const float *x, const float *w, int n_sub, int len, float hi,
                               int top, struct super *out);

/* The nearest finite half-precision number. */
uint16_t quant_search_f16(float d);

#endif
