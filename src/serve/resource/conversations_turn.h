/* conversations_turn.h: a response of /v1/responses as the next turn of a stored conversation.
 *
 * The request names the conversation by "conversation": an id, or {"id"}. The items of its newest branch precede the
 * input. If the conversation has documents and the request names no collection, the orchestrator reads these
 * documents. Input and output are added to the conversation once the response is complete. */
#ifndef CHIMERE_SERVE_RESOURCE_CONVERSATIONS_TURN_H
#define CHIMERE_SERVE_RESOURCE_CONVERSATIONS_TURN_H

#include <jansson.h>

#include "serve/http/http.h"

struct conversations_turn;

/* Returns the earlier items in *before, a new reference, and the turn in *out; both are NULL if the request names no
 * conversation. Selects the documents in request. */
int conversations_turn_begin(struct http_request *r, json_t *request,
                             struct conversations_turn **out, json_t **before, struct err *e);
const char *conversations_turn_id(const struct conversations_turn *t);
/* Sets the items that the response answers, without the earlier ones; they are copied. */
void conversations_turn_input(struct conversations_turn *t, const json_t *items);
/* Adds input and output (JSON: a list of items) to the conversation. A failure is logged. */
void conversations_turn_end(const struct conversations_turn *t, const char *output, size_t n);
void conversations_turn_free(struct conversations_turn *t); /* NULL: nothing is done */

#endif
