/* query.h: the question of a conversation as a query that stands alone. */
#ifndef CHIMERE_ODO_QUERY_H
#define CHIMERE_ODO_QUERY_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"

/* Initializes out. By rules: a question that refers to what was said before ("and how do I undo it?") is preceded by the
 * user's question before it, and by the one before that if it refers back, too. */
void query_write(struct buf *out, const json_t *messages, const char *question);

/* Does a text hold a JSON object that is not empty? Who sends data asks about that data. */
bool query_has_object(const char *text);

#endif
