/* queue.h: the fair queue in front of one backend.
 *
 * At most n_slot answers run. What waits is served by taking turns between owners (keys, sessions,
 * addresses), in order of arrival within one; so nobody's hundred requests delay another's single one by
 * more than one answer. Bounded: CHIMERE_EBUSY beyond max_waiting. Any thread; start runs under no lock. */
#ifndef CHIMERE_BACKEND_QUEUE_H
#define CHIMERE_BACKEND_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct queue_item { /* placed by the caller, untouched until started or dropped */
    void (*start)(struct queue_item *it);
    uint64_t owner;
    int32_t n_slot; /* slots that it takes */
    int64_t since_ns;
    bool waiting;
    struct queue_item *next;
};

struct queue;
int queue_new(struct queue **out, int32_t n_slot, int32_t max_waiting, struct err *e);
void queue_free(struct queue *g);
/* Starts it now (in this call) or later (in somebody's queue_leave). */
int queue_enter(struct queue *g, struct queue_item *it, int *retry_s, struct err *e);
/* True: it was waiting, and never starts. */
bool queue_drop(struct queue *g, struct queue_item *it);
/* A started item has ended. */
void queue_leave(struct queue *g, struct queue_item *it);
int32_t queue_n_waiting(struct queue *g);
int32_t queue_n_running(struct queue *g);

#endif
