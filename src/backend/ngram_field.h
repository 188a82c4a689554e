/* ngram_field.h: the request's field "engram": {"engram": {"tables": ["NAME", ..], "alpha": 1, "recall": true,
 * "optional": false}}.
 *
 * alpha defaults to 1 (the mixture as fitted), recall to true, and optional (missing tables are skipped) to false. */
#ifndef CHIMERE_BACKEND_NGRAM_FIELD_H
#define CHIMERE_BACKEND_NGRAM_FIELD_H

#include "backend/request.h"
#include "engine/ngram_memory.h"

/* Opens the tables that request a names, a->table, and `learned` (borrowed until close; NULL: none). *out is NULL if
 * there are none. */
int ngram_field_open(struct ngram_memory **out, struct engram_store *store, const struct request *a,
                     const struct engram_table *learned, const struct tok *tok, struct err *e);

#endif
