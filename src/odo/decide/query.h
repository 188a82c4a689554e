/* query.h: rewrites the question of a conversation as a query that can be understood alone. */
#ifndef CHIMERE_ODO_QUERY_H
#define CHIMERE_ODO_QUERY_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"

/* Initializes out. Works by rules: if a question refers to what was said before ("and how do I undo it?"), the
 * user's previous question is put before it. The same applies to that previous question. */
void query_write(struct buf *out, const json_t *messages, const char *question);

/* Returns true if a text contains a JSON object that is not empty: the question is then about the data that the
 * user sent. */
bool query_has_object(const char *text);

#endif
