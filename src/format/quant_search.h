/* quant_search.h: least-squares searches that the encoders share: given elements x and weights w, find the
 * scales (and minima) of a block that minimise sum w (x - decoded)^2.
 *
 * All of them work alike: scan a range of starting scales, each giving nearest codes; for fixed codes the
 * best scale is the solution of a linear least-squares problem; repeat from the best. Where scales are
 * themselves quantised, neighbouring integers are tried with the error computed exactly, and the super
 * scale is fitted again to what was chosen. Four lanes throughout, so the result is the same on every
 * machine. No allocation; any thread. */
#ifndef CHIMERE_FORMAT_QUANT_SEARCH_H
#define CHIMERE_FORMAT_QUANT_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

enum { SEARCH_MAX = 256, SEARCH_MAX_SUB = 16 };

/* The values that a code stands for, before any scale: integers lo..hi, or a table of 16. */
struct levels {
    float lo, hi;        /* least and greatest value */
    const float *values; /* view of 16 ascending values, or NULL for integers */
    const float *bounds; /* view of the 15 midpoints between them */
};

/* Where a scan begins: the largest element is put at `first` times the end of the range, then `first`
 * plus `step` times the end, and so on, `count` times. */
struct scan {
    float first, step;
    int count;
};

struct fit {
    float scale, min;   /* x ~ scale q + min */
    float wq, wqq, wxq; /* sums of w q, w q q, w x q over the codes found */
    float wx, ww;       /* sums of w x and w */
    float error;        /* sum w (x - scale q - min)^2 */
};

/* Copies n elements and weights (NULL: ones), making them harmless: not-a-number becomes 0, magnitudes
 * above 1e9 (no format can hold them) become that, weights are scaled to at most 1 and kept positive.
 * Returns the largest magnitude, 0 where it is too small for any format to tell from 0. */
float quant_search_load(const float *x, const float *weights, int n, float *out_x, float *out_w);

/* x ~ scale q; n a multiple of 4. quant_search_nearest only takes nearest codes at the given scale. */
struct fit quant_search_symmetric(const float *x, const float *w, int n, const struct levels *l,
                                  struct scan scan);
struct fit quant_search_nearest(const float *x, const float *w, int n, const struct levels *l,
                                float scale);
/* x ~ scale q + min, q in 0..hi, scale >= 0; min <= 0 if min_nonpositive. */
struct fit quant_search_affine(const float *x, const float *w, int n, float hi,
                               bool min_nonpositive);
struct fit quant_search_affine_nearest(const float *x, const float *w, int n, float hi, float scale,
                                       float min);

/* Codes 0..: q - lo for integers, the rank for tables. */
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

/* Nearest finite half. */
uint16_t quant_search_f16(float d);

#endif
