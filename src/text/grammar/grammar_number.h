/* grammar_number.h: numbers of schemas as decimal texts, and the automata that compare with them.
 *
 * A bound of any size is compared digit by digit, exactly. For multipleOf the remainder is part of the state.
 * Numbers with any constraint are written without exponent. */
#ifndef CHIMERE_TEXT_GRAMMAR_GRAMMAR_NUMBER_H
#define CHIMERE_TEXT_GRAMMAR_GRAMMAR_NUMBER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "text/grammar/grammar_impl.h"

#define DECIMAL_MAX_DIGIT 800
#define NUMBER_MAX_MULTIPLE 20000

struct decimal { /* sign, integer digits without leading zeros, fraction without trailing zeros */
    bool is_negative;
    uint32_t n_int, n_frac;
    char digits[DECIMAL_MAX_DIGIT];
};

struct number_spec {
    bool has_min, has_max, min_excluded, max_excluded;
    bool is_int, is_fraction; /* the value may be an integer; the value may have a fraction */
    struct { /* [0]: the value is a multiple of n / 10^shift, [1]: it is not; n 0: no constraint */
        uint32_t n, shift;
    } multiple[2];
    struct decimal min, max;
};

/* Returns false if x is not a number or has too many digits. */
bool decimal_from_json(const json_t *x, struct decimal *out);
int decimal_compare(const struct decimal *x, const struct decimal *y);
bool decimal_is_int(const struct decimal *x);
/* Adds "is (negate: is not) a multiple of x" to s. Returns false if x is not positive, if the common
 * multiple becomes too large, or if negate is set and s already has an excluded multiple. */
bool number_add_multiple(struct number_spec *s, const struct decimal *x, bool negate);
/* Returns true if no number can satisfy s (the bounds contradict each other). */
bool number_is_empty(const struct number_spec *s);
/* Returns a node that matches the texts of the allowed numbers and then returns from its rule. */
uint32_t grammar_add_number(struct grammar_builder *b, const struct number_spec *s);

#endif
