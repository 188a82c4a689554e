/* doc_scope_impl.h: scopes in the statements of the store. */
#ifndef CHIMERE_STORE_DOC_SCOPE_IMPL_H
#define CHIMERE_STORE_DOC_SCOPE_IMPL_H

#include "store/doc_scope.h"
#include "store/store_impl.h"

/* Binds what STORE_DOC_IN compares: the parameters `collection`, `shared` and `shared + 1`. before: memory that must
 * last until the statement ends. */
void store_doc_bind(struct sql_stmt *st, int collection, int shared, const char *scope,
                    char before[STORE_DOC_SCOPE_BYTES]);
/* Writes the range [from, before) of the private collections of a user of a key; user NULL: of the key with its users. */
void store_doc_range(const char *key, size_t n_key, const char *user,
                     char from[STORE_DOC_SCOPE_BYTES], char before[STORE_DOC_SCOPE_BYTES]);
/* CHIMERE_ELIMIT: the collection's key may not add a file with that many passages. */
int store_doc_check_quota(struct store *s, const char *collection, int32_t n_chunk, struct err *e);
/* Call it in a transaction. Removes the documents of collections in a range. *n: number of files. */
int store_doc_drop_range(struct store *s, const char *from, const char *before, int64_t *n,
                         struct err *e);

#endif
