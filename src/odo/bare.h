/* bare.h: detects a question that is only a calculation. The calculator then answers it, whatever the model can
 * do. No state. */
#ifndef CHIMERE_ODO_BARE_H
#define CHIMERE_ODO_BARE_H

#include <stdbool.h>

enum { BARE_MAX = 256 };

/* Returns true if the text contains only numbers, operators and the words around them ("what is", "combien font",
 * "the product of 3 and 4").
 * expression: input for tools/calc.h; set only if the text has one certain reading. */
bool bare_calculation(const char *text, char expression[BARE_MAX]);
/* Returns true if an expression from bare_calculation has only one operator. */
bool bare_is_single(const char *expression);

#endif
