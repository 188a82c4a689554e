/* docs_put.h: adds a single document that is in memory, in addition to the folders of docs.h, and removes documents. */
#ifndef CHIMERE_RETRIEVAL_DOCS_PUT_H
#define CHIMERE_RETRIEVAL_DOCS_PUT_H

#include <stddef.h>

#include "retrieval/docs.h"

/* Indexes data [n] under a name. The extension of the name gives the kind; an earlier document of this name is
 * replaced. CHIMERE_EUNSUPPORTED: this kind cannot be read. Any thread. */
int docs_put(struct docs *d, const char *name, const char *collection, const char *data, size_t n,
             struct docs_report *r, struct err *e);

/* Removes the document of a name, and all documents below it if it is a folder. If no document has the name, a path
 * on the disk is resolved. Files remain on the disk, and docs_refresh does not read them again; docs_index does. Returns
 * the number of removed documents in *n_removed. CHIMERE_ENOENT: there is none. Any thread. */
int docs_remove(struct docs *d, const char *name, const char *collection, int32_t *n_removed,
                struct err *e);

#endif
