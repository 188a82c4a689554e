/* lead.h: one process at a time leads: it runs the nights of a store that several machines share.
 *
 * On a PostgreSQL server, the leader holds an advisory lock of its connection, which the server releases when the process
 * ends or is cut off. With a file, every process leads, because the folder of the nights has a lock of its own. */
#ifndef CHIMERE_STORE_LEAD_H
#define CHIMERE_STORE_LEAD_H

#include "store/store.h"

/* CHIMERE_EBUSY: another process leads; the message names it. */
int store_lead(struct store *s, struct err *e);
/* Returns false if another process took the lead while the connection was lost. True while the server is away. */
bool store_leads(struct store *s);
void store_unlead(struct store *s);

#endif
