/* calc.h: the calculator: one expression -> its exact value.
 *
 * Numbers (1,234.5 and 1 234,5 too), + - * / ^ ! and their typographic forms, "x" and words between
 * operands (plus, minus, times, divided by, fois, moins, divise par), percent, modulo, brackets, pi, e,
 * and the functions of a table. Exact fractions throughout (ratio.h); where a function leaves them the
 * result is a double, and marked. Any thread; bounded time; nothing is allocated. */
#ifndef CHIMERE_TOOLS_CALC_H
#define CHIMERE_TOOLS_CALC_H

#include "base/err.h"
#include "tools/ratio.h"

enum { CALC_MAX_TEXT = 4096, CALC_MAX_DEPTH = 64 };

struct calc_value {
    bool exact;
    struct ratio q; /* where exact */
    double x;       /* where not */
};

int calc_eval(struct calc_value *v, const char *text, size_t n, struct err *e);
/* The value as text: "42", "0.125", "3.33333333333333 (10/3)", "1.4142135623731 (rounded)". */
void calc_write(struct buf *b, const struct calc_value *v);

#endif
