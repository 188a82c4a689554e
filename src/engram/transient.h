/* transient.h: a table of a few texts that were fetched for one request; used only by that request.
 *
 * Built like any other table, in a file that no longer has a name when the function returns; closing the table
 * frees it. Texts are data: special tokens written in them remain plain characters. */
#ifndef CHIMERE_ENGRAM_TRANSIENT_H
#define CHIMERE_ENGRAM_TRANSIENT_H

#include "engram/table.h"
#include "text/tok/tok.h"

enum { ENGRAM_TRANSIENT_BYTES = 1 << 20 }; /* of all texts together; the rest is left out */

/* texts [n]: one document each. *out is NULL if they contain no tokens. Free it with engram_table_close. */
int engram_transient_new(struct engram_table **out, const struct slice *texts, size_t n,
                         const struct tok *tok, struct err *e);

#endif
