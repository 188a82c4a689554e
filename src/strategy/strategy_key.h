/* strategy_key.h: what an answer comes down to, so that answers can be counted. A pure function. */
#ifndef CHIMERE_STRATEGY_STRATEGY_KEY_H
#define CHIMERE_STRATEGY_STRATEGY_KEY_H

#include <stddef.h>

enum { STRATEGY_KEY_BYTES = 64 };

/* The final answer that a text gives, in a form that equal answers share: what stands in the last
 * \boxed{}, else behind the last "answer is", else the last number, else the beginning of the text, or a
 * hash of it where it is long. "" for an empty text. */
void strategy_key(const char *text, size_t n, char out[STRATEGY_KEY_BYTES]);

#endif
