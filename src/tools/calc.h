/* calc.h: the calculator: evaluates one expression exactly.
 *
 * Accepts numbers (also 1,234.5 and 1 234,5); + - * / ^ ! and their typographic forms; "x" and words between
 * operands (plus, minus, times, divided by, fois, moins, divise par); percent, modulo, brackets, pi, e; and the
 * functions of a table. Values are exact fractions (ratio.h). If a function has no exact result, the value becomes
 * a double and is marked inexact. Any thread; bounded time; does not allocate. */
#ifndef CHIMERE_TOOLS_CALC_H
#define CHIMERE_TOOLS_CALC_H

#include "base/err.h"
#include "tools/ratio.h"

enum { CALC_MAX_TEXT = 4096, CALC_MAX_DEPTH = 64 };

struct calc_value {
    bool exact;
    struct ratio q; /* valid if exact */
    double x;       /* valid if not exact */
};

int calc_eval(struct calc_value *v, const char *text, size_t n, struct err *e);
/* Writes the value: "42", "0.125", "3.33333333333333 (10/3)", "1.4142135623731 (rounded)". */
void calc_write(struct buf *b, const struct calc_value *v);

#endif
