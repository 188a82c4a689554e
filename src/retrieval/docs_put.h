/* docs_put.h: one document that is here as bytes, beside the folders of docs.h. */
#ifndef CHIMERE_RETRIEVAL_DOCS_PUT_H
#define CHIMERE_RETRIEVAL_DOCS_PUT_H

#include <stddef.h>

#include "retrieval/docs.h"

/* Under a name of its own; its kind is that of the name's ending. Takes the place of what had this name.
 * CHIMERE_EUNSUPPORTED: it is of no kind that can be read. Any thread. */
int docs_put(struct docs *d, const char *name, const char *collection, const char *data, size_t n,
             struct docs_report *r, struct err *e);

#endif
