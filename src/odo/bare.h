/* bare.h: is a question nothing but a calculation? Then any model may be offered the calculator. No state. */
#ifndef CHIMERE_ODO_BARE_H
#define CHIMERE_ODO_BARE_H

#include <stdbool.h>

/* Numbers, operators and the words around them ("what is", "combien font", "the sum of"), nothing else. */
bool bare_calculation(const char *text);

#endif
