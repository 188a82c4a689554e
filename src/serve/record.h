/* record.h: records requests and their costs in the store, without delaying them.
 *
 * It has a bounded queue and a thread. It records counts and names, never contents of messages. Any thread may post. */
#ifndef CHIMERE_SERVE_RECORD_H
#define CHIMERE_SERVE_RECORD_H

#include "store/store.h"

struct record;

/* s is borrowed until record_close. */
int record_open(struct record **out, struct store *s, struct err *e);
void record_close(struct record *r); /* writes what was posted */
/* The store has no room, so that requests wait in memory to be recorded. NULL: false. */
bool record_is_full(const struct record *r);
/* Copies q; texts are cut to their maximum length. If the queue is full, the request is dropped and counted. */
void record_post(struct record *r, const struct store_request *q);

#endif
