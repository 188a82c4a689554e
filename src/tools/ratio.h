/* ratio.h: exact fractions of bounded size, for the calculator.
 *
 * A ratio is a plain value in lowest terms with a positive denominator. The arithmetic is GMP's on limbs that the value
 * holds itself: no function allocates, because GMP ends the process if an allocation fails. If a numerator or
 * denominator exceeds RATIO_BITS, the result is CHIMERE_ELIMIT. Division by zero is CHIMERE_EINVAL. Any thread. */
#ifndef CHIMERE_TOOLS_RATIO_H
#define CHIMERE_TOOLS_RATIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gmp.h>

#include "base/buf.h"

enum { RATIO_BITS = 4096, RATIO_LIMBS = RATIO_BITS / GMP_NUMB_BITS };

struct ratio_int { /* magnitude, least limb first, no leading zero limbs */
    mp_size_t n;
    mp_limb_t limb[RATIO_LIMBS];
};

struct ratio {
    bool minus;
    struct ratio_int num, den;
};

void ratio_set(struct ratio *r, int64_t x);
/* Parses digits, an optional fraction after a dot, and a decimal exponent of at most 4 digits. */
int ratio_parse(struct ratio *r, const char *s, size_t n);
int ratio_add(struct ratio *r, const struct ratio *a, const struct ratio *b);
int ratio_sub(struct ratio *r, const struct ratio *a, const struct ratio *b);
int ratio_mul(struct ratio *r, const struct ratio *a, const struct ratio *b);
int ratio_div(struct ratio *r, const struct ratio *a, const struct ratio *b);
int ratio_pow(struct ratio *r, const struct ratio *a, int64_t k);
int ratio_floor(struct ratio *r, const struct ratio *a);
bool ratio_sqrt(struct ratio *r, const struct ratio *a); /* true if the root is exact */
int ratio_cmp(const struct ratio *a, const struct ratio *b);
bool ratio_is_int(const struct ratio *a);
bool ratio_to_i64(const struct ratio *a, int64_t *out);
double ratio_to_f64(const struct ratio *a);
/* Writes integers and finite decimals of at most 40 places exactly. Otherwise writes 15 significant digits and
 * returns false. */
bool ratio_write(struct buf *b, const struct ratio *a);

#endif
