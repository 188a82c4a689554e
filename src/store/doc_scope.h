/* doc_scope.h: which documents a request may use.
 *
 * A collection is shared or private. Everybody reads shared collections, which are stored under their names. Private
 * ones are "my:NAME", and "chat:ID" with the documents of one conversation. Only the owner that memory_owner writes
 * (odo/memory.h) uses them; they are stored as "\001OWNER\001my:NAME". A name has no control characters, so no
 * request can name the collection of another owner.
 *
 * A scope is what the functions of doc.h take as a collection: one collection; all shared ones and the owner's "my:";
 * or (NULL) every collection, which is only for work on the whole index. Any thread. */
#ifndef CHIMERE_STORE_DOC_SCOPE_H
#define CHIMERE_STORE_DOC_SCOPE_H

#include "store/store.h"

#define STORE_DOC_CHAT "chat:"  /* followed by the conversation's id */
#define STORE_DOC_SHARED "\001" /* scope: all shared collections */

enum {
    STORE_DOC_SCOPE_BYTES = 1280,
    /* files and passages in the private collections of one key, with all its users */
    STORE_MAX_DOCS_OF_KEY = 100000,
};

/* The one place that decides what a request may use. name NULL or "": all shared collections and the owner's. Returns
 * CHIMERE_EINVAL if the name is not valid. */
int store_doc_scope(const char *owner, const char *name, char out[STORE_DOC_SCOPE_BYTES],
                    struct err *e);
bool store_doc_is_private(const char *collection);
/* Returns the name that the owner uses for a collection; a view. */
const char *store_doc_shown(const char *collection);
/* Returns STORE_DOC_SHARED instead of a scope that adds private collections if their owner has none, so that these
 * owners share what is cached per scope. */
const char *store_doc_narrow(struct store *s, const char *scope);
/* Removes all documents of one collection. */
int store_doc_drop(struct store *s, const char *collection, struct err *e);

#endif
