/* queue.h: the request queue of one backend, with fair order.
 *
 * At most n_slot answers run. Waiting items are served by turns between owners (keys, sessions, addresses), and in
 * order of arrival for each owner. So a hundred requests of one owner delay a single request of another by at most one
 * answer. The queue is bounded: CHIMERE_EBUSY beyond max_waiting. Any thread may call this; start is called without a
 * lock. */
#ifndef CHIMERE_BACKEND_QUEUE_H
#define CHIMERE_BACKEND_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* allocated by the caller, who must not change it until it is started or dropped */
struct queue_item {
    void (*start)(struct queue_item *it);
    uint64_t owner;
    int32_t n_slot; /* number of slots that it occupies */
    int64_t since_ns;
    bool waiting;
    struct queue_item *next;
};

struct queue;
int queue_new(struct queue **out, int32_t n_slot, int32_t max_waiting, struct err *e);
void queue_free(struct queue *g);
/* Starts the item now (in this call), or later (in a call of queue_leave by any thread). */
int queue_enter(struct queue *g, struct queue_item *it, int *retry_s, struct err *e);
/* Returns true if the item was waiting; it will then not be started. */
bool queue_drop(struct queue *g, struct queue_item *it);
/* Call when a started item has ended. */
void queue_leave(struct queue *g, struct queue_item *it);
int32_t queue_n_waiting(struct queue *g);
int32_t queue_n_running(struct queue *g);

#endif
