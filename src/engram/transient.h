/* transient.h: a table of a few texts for one request: what was fetched for it, and for nobody else.
 *
 * Made like any other, in a file that has no name any more when the function returns; closing the table
 * frees it. Texts are data: special tokens written out in them stay the letters they are. */
#ifndef CHIMERE_ENGRAM_TRANSIENT_H
#define CHIMERE_ENGRAM_TRANSIENT_H

#include "engram/table.h"
#include "text/tok/tok.h"

enum { ENGRAM_TRANSIENT_BYTES = 1 << 20 }; /* of all texts; what lies beyond is left out */

/* texts [n]: a document each. *out is NULL where they hold no tokens. Ended by engram_table_close. */
int engram_transient_new(struct engram_table **out, const struct slice *texts, size_t n,
                         const struct tok *tok, struct err *e);

#endif
