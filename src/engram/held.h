/* held.h: whether a table contains a text, for evaluations: the figures of such a text say how well the table
 * remembers, not how well it helps. Pure functions; any thread. */
#ifndef CHIMERE_ENGRAM_HELD_H
#define CHIMERE_ENGRAM_HELD_H

#include "engram/table.h"

/* Returns the share of the tokens that follow a context of ENGRAM_MAX_ORDER tokens in the text as they do in the
 * table; 0 if the text is too short to tell. */
double engram_held(const struct engram_table *t, const int32_t *tokens, size_t n);
/* Returns true if so much of a text is in the table that it was probably built from it. */
bool engram_is_held(const struct engram_table *t, const int32_t *tokens, size_t n);

#endif
