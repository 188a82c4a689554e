/* doc_root.h: the folders whose files are indexed, and files below them that the owner removed from the index.
 *
 * New files of such a folder are found again later (retrieval/docs_refresh.h), except the excluded ones. */
#ifndef CHIMERE_STORE_DOC_ROOT_H
#define CHIMERE_STORE_DOC_ROOT_H

#include "store/store.h"

struct store_doc_root {
    const char *collection, *path; /* view; the path is absolute */
    bool is_excluded;              /* a removed file, not a folder */
};

/* Adds a path, or changes what it is. */
int store_doc_root_put(struct store *s, const struct store_doc_root *r, struct err *e);
/* Removes a path and everything below it. */
int store_doc_root_drop(struct store *s, const char *collection, const char *path, struct err *e);
/* Lists the paths of a collection, in order. If `each` returns nonzero, the list stops and returns that value. */
int store_doc_root_list(struct store *s, const char *collection,
                        int (*each)(void *ud, const struct store_doc_root *r), void *ud,
                        struct err *e);

#endif
