/* strategy_key.h: reduces a text to its final answer, so that equal answers can be counted. A pure function. */
#ifndef CHIMERE_STRATEGY_STRATEGY_KEY_H
#define CHIMERE_STRATEGY_STRATEGY_KEY_H

#include <stddef.h>

enum { STRATEGY_KEY_BYTES = 64 };

/* Writes the final answer of a text in a form that is the same for equal answers: the content of the last
 * \boxed{}, else the text after the last "answer is", else the last number, else the text itself, or its hash if
 * it is long. "" for an empty text. */
void strategy_key(const char *text, size_t n, char out[STRATEGY_KEY_BYTES]);

#endif
