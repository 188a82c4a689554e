/* docs_put.h: adds a single document that is in memory, in addition to the folders of docs.h. */
#ifndef CHIMERE_RETRIEVAL_DOCS_PUT_H
#define CHIMERE_RETRIEVAL_DOCS_PUT_H

#include <stddef.h>

#include "retrieval/docs.h"

/* Indexes data [n] under a name. The extension of the name gives the kind; an earlier document of this name is
 * replaced. CHIMERE_EUNSUPPORTED: this kind cannot be read. Any thread. */
int docs_put(struct docs *d, const char *name, const char *collection, const char *data, size_t n,
             struct docs_report *r, struct err *e);

#endif
