/* ngram_field.h: the request's field "engram":
 * {"engram": {"tables": ["NAME", ..], "alpha": 1, "recall": true, "optional": false}}.
 *
 * alpha defaults to 1 (the mixture as fitted), recall to true, optional (absent tables are left out) to
 * false. */
#ifndef CHIMERE_BACKEND_NGRAM_FIELD_H
#define CHIMERE_BACKEND_NGRAM_FIELD_H

#include "backend/request.h"
#include "engine/ngram_memory.h"

/* Opens what request a names, and its own table; *out is NULL if it names nothing. */
int ngram_field_open(struct ngram_memory **out, struct engram_store *store, const struct request *a,
                     const struct tok *tok, struct err *e);

#endif
