/* learned.h: the learned files that a running server uses: an n-gram table, an adapter, rules, examples and
 * limits. They are switched atomically.
 *
 * A request takes the current version when it is prepared and uses it until it ends. So one answer never mixes two
 * versions, and a replaced version is closed only after its last request. During a trial, a share of the
 * conversations uses a second version. Any thread, except where a function says otherwise. */
#ifndef CHIMERE_BACKEND_LEARNED_H
#define CHIMERE_BACKEND_LEARNED_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/limits.h"
#include "backend/request.h"
#include "engine/gpus.h"
#include "engram/table.h"
#include "model/lora.h"

struct learned_version {
    int64_t night;                 /* number of the night that made it */
    struct engram_table *table;    /* owned; NULL: none */
    struct lora *lora;             /* owned; NULL: none */
    struct lora *copies[GPUS_MAX]; /* owned: the adapter for further copies of the model */
    int32_t n_copy;
    /* owned: {PIPELINE: text of its rules}; of "": system message of requests without one; NULL: none */
    json_t *rules;
    json_t *shots;        /* owned: examples that precede such requests (shots.h); NULL: none */
    struct limits limits; /* of the orchestrator */
    int32_t n_use;        /* private to learned.c, like the next */
    struct learned_version *next;
};
/* Closes the files; v may be NULL. */
void learned_version_free(struct learned_version *v);

/* Returns a new reference to the messages. If they have no system message of their own, it has `rules` as its system
 * message, and the nearest examples of `shots` (shots.h) before the first question. Both may be NULL. NULL: out of
 * memory. */
json_t *learned_messages(const char *rules, const json_t *shots, json_t *messages);

struct learned;
int learned_new(struct learned **out, struct err *e);
/* Call it after the last request has ended. */
void learned_free(struct learned *l);

/* Sets the versions that later requests take. Both are owned from now on and may be NULL: the model without learned
 * files, and no trial. share: part of the conversations that take `trial`. */
void learned_switch(struct learned *l, struct learned_version *current,
                    struct learned_version *trial, double share);
/* Closes the replaced versions that no request uses; returns whether none is left. The caller holds the device
 * (engine/lease.h). */
bool learned_sweep(struct learned *l);

/* Identifies the conversation of a request: its first user message, and who asks. */
uint64_t learned_conversation(const struct request *a);
/* conversation: a hash; the same conversation always takes the same version. NULL: no learned files. */
struct learned_version *learned_take(struct learned *l, uint64_t conversation);
/* The limits of the version that this conversation takes; l NULL, or no version: the defaults. */
struct limits learned_limits(struct learned *l, uint64_t conversation);
/* Returns the rules of a pipeline of the version that this conversation takes; free them with mem_free. NULL: none.
 * *night: the night that made the version; 0: none. */
char *learned_rules(struct learned *l, uint64_t conversation, const char *pipeline, int64_t *night);
void learned_return(struct learned *l, struct learned_version *v); /* v may be NULL */

#endif
