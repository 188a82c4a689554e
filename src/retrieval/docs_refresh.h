/* docs_refresh.h: updates the index from the disk. */
#ifndef CHIMERE_RETRIEVAL_DOCS_REFRESH_H
#define CHIMERE_RETRIEVAL_DOCS_REFRESH_H

#include "retrieval/docs.h"

/* Reads the changed files of a collection again, forgets deleted ones, and reads the new files of its folders
 * (store/doc_root.h), except excluded ones. A file stays if
 * the nearest folder above it is empty, because its disk may not be mounted, or if it has vectors and no embedding
 * model is open; both count as skipped. cancelled may be NULL; CHIMERE_ECANCELLED. Any thread. */
int docs_refresh(struct docs *d, const char *collection, const _Atomic bool *cancelled,
                 struct docs_report *r, struct err *e);

#endif
