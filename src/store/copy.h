/* copy.h: copies all data of one store into another store of the same or the other kind. */
#ifndef CHIMERE_STORE_COPY_H
#define CHIMERE_STORE_COPY_H

#include "store/store.h"

/* Both stores are open; no other process may write to `from` meanwhile. Uses one transaction in `to`. Every table that
 * has rows in `from` must be empty in `to` (CHIMERE_EINVAL), so that the two files of a server, which have rows in different
 * tables, can be copied one after the other. Ids are kept. Returns the number of copied rows, or CHIMERE_E*. The index of
 * saved states is not copied, because their files belong to one machine. */
int64_t store_copy(struct store *from, struct store *to, struct err *e);

#endif
