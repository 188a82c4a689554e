/* fact.h: rules about sentences that state something about a user: which property a sentence states, and whether
 * two sentences contradict each other. English and French. Pure functions; any thread. */
#ifndef CHIMERE_ODO_FACT_H
#define CHIMERE_ODO_FACT_H

#include <stdbool.h>
#include <stddef.h>

enum { FACT_MAX_KEY = 256 };

/* Writes the property that a sentence states if it can have only one value at a time: "live" for "I now live in
 * Oslo.", "dog called" for "My dog is called Rex." Returns false if there is none. */
bool fact_property(const char *text, size_t n, char key[FACT_MAX_KEY]);
/* Returns true if the sentences state the same property, or if one is the negation of the other. The newer sentence
 * then replaces the older one. */
bool fact_contradicts(const char *older, const char *newer);
/* Returns true if a message may state a fact about its writer: it has a sentence in the first person that is not a
 * question. Used to avoid asking a model about every message. */
bool fact_may_state(const char *message);
/* Returns true if a question is about everything that is known of the user, such as "What do you know about me?" */
bool fact_asks_all(const char *question);
/* Returns true if a model's sentence says nothing that the message does not: at least two thirds of its words are
 * in the message. */
bool fact_is_from(const char *sentence, const char *message);

#endif
