/* shots.h: the few-shot store of a night: accepted questions and answers, of which the nearest ones precede a
 * conversation.
 *
 * A store is a JSON array of {"question", "answer", "source"}. Nearness is the number of words that two questions
 * share; a word of many examples counts less. An example is near if it has at least half of the question's words. The
 * same store and question always give the same examples, so the prompt of a conversation does not change. Pure
 * functions. */
#ifndef CHIMERE_BACKEND_SHOTS_H
#define CHIMERE_BACKEND_SHOTS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SHOTS_MAX = 64,       /* examples of a store */
    SHOTS_MAX_TEXT = 600, /* bytes of a question or an answer */
    SHOTS_N_NEAR = 2      /* examples that precede a conversation */
};

/* Writes the indexes of the k nearest of the first SHOTS_MAX examples to out [k], nearest first; returns their number.
 * Examples that are not near, or ask exactly the same, are left out. */
size_t shots_near(const json_t *store, const char *question, size_t k, size_t *out);

/* Returns a new reference to the messages with the nearest examples before the first user message. They are left
 * unchanged if store is NULL or the first user message is not plain text. NULL: out of memory. */
json_t *shots_place(const json_t *store, json_t *messages);

#endif
