/* record.h: what was asked and what it cost, into the store, without anybody waiting for it.
 *
 * A bounded queue and a thread. Counts and names only: no contents of messages. Any thread posts. */
#ifndef CHIMERE_SERVE_RECORD_H
#define CHIMERE_SERVE_RECORD_H

#include "store/store.h"

struct record;

/* s is borrowed until record_close. */
int record_open(struct record **out, struct store *s, struct err *e);
void record_close(struct record *r); /* writes what is posted */
/* Copies; texts are cut where they are too long. A full queue forgets the request and counts it. */
void record_post(struct record *r, const struct store_request *q);

#endif
