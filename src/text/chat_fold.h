/* chat_fold.h: system messages where a template takes one at the front, or none. */
#ifndef CHIMERE_TEXT_CHAT_FOLD_H
#define CHIMERE_TEXT_CHAT_FOLD_H

#include <jansson.h>
#include <stdbool.h>

/* New list with one system message at the front (none without has_system) that means the same; NULL: out
 * of memory. */
json_t *chat_fold(const json_t *messages, bool has_system);
bool chat_has_later_system(const json_t *messages); /* beyond the first message */
/* The rendered text lacks the beginning of a later system message: the template skipped it. */
bool chat_drops_system(const json_t *messages, const char *text, size_t n);

#endif
