/* chat_fold.h: moves system messages for a template that accepts one at the front, or none. */
#ifndef CHIMERE_TEXT_CHAT_FOLD_H
#define CHIMERE_TEXT_CHAT_FOLD_H

#include <jansson.h>
#include <stdbool.h>

/* Returns an equivalent new list with one system message at the front (none if has_system is false); NULL: out of
 * memory. */
json_t *chat_fold(const json_t *messages, bool has_system);
/* true if there is one after the first message */
bool chat_has_later_system(const json_t *messages);
/* Returns true if the rendered text lacks the beginning of a later system message: the template skipped it. */
bool chat_drops_system(const json_t *messages, const char *text, size_t n);

#endif
