/* bare.h: is a question nothing but a calculation? Then the calculator answers it, whatever the model can. No state. */
#ifndef CHIMERE_ODO_BARE_H
#define CHIMERE_ODO_BARE_H

#include <stdbool.h>

enum { BARE_MAX = 256 };

/* Numbers, operators and the words around them ("what is", "combien font", "the product of 3 and 4"), nothing else.
 * expression: for tools/calc.h; only if its reading is certain. */
bool bare_calculation(const char *text, char expression[BARE_MAX]);
/* Of an expression as above: one operator alone. */
bool bare_is_single(const char *expression);

#endif
