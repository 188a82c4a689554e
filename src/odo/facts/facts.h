/* facts.h: a model decides which statements of a message are facts about its writer, and which facts exclude each
 * other.
 *
 * Used only with models whose card allows it (odo_card.facts). Messages are read in the background, one at a time,
 * from a bounded queue, after their answer has ended; a message that does not fit is dropped and counted. A sentence
 * is stored only if its words are in the message. Any thread. */
#ifndef CHIMERE_ODO_FACTS_H
#define CHIMERE_ODO_FACTS_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"

struct facts;
struct odo;
struct store;

enum { FACTS_QUEUE = 64, FACTS_MAX_MESSAGE = 4096 };

int facts_open(struct facts **out, struct backend *b, struct store *s, struct err *e);
void facts_close(struct facts *f); /* cancels what is in progress; f may be NULL */
/* Returns false if the message states nothing, is too long, or does not fit in the queue. */
bool facts_post(struct facts *f, const char *owner, const char *message);
void facts_wait(struct facts *f); /* until the queue is empty */

/* Defined in odo.c: the queue of an orchestrator, which owns it; NULL: it has no store or no model. */
struct facts *odo_facts(const struct odo *o);

/* Asks the model. *out: a new reference to an array of sentences, which may be empty. */
int facts_read(struct backend *b, const char *message, _Atomic bool *cancelled, int64_t deadline_ns,
               json_t **out, struct err *e);
/* Asks the model whether both sentences cannot be true at the same time. */
int facts_exclude(struct backend *b, const char *older, const char *newer, _Atomic bool *cancelled,
                  int64_t deadline_ns, bool *exclude, struct err *e);

struct facts_score {
    int n_read, read, n_pair, pair; /* messages and pairs, and how many were right */
    int n_invented;                 /* messages without a fact from which one was read */
};
/* Asks the model about messages and pairs whose answers are known. */
int facts_measure(struct backend *b, struct facts_score *out, struct err *e);
/* Returns true if a model with this score may decide: at least 85 % of the messages and of the pairs are right, and
 * facts were invented for at most one message. */
bool facts_is_good(const struct facts_score *s);

#endif
