/* copy.h: everything that one store holds, into another, of the same or the other kind. */
#ifndef CHIMERE_STORE_COPY_H
#define CHIMERE_STORE_COPY_H

#include "store/store.h"

/* Both are open; nothing else may write to `from` meanwhile. In one transaction of `to`, which must hold nothing
 * (CHIMERE_EINVAL). Ids stay. Returns how many rows were copied, or CHIMERE_E*. The index of saved states is left out:
 * their files belong to one machine. */
int64_t store_copy(struct store *from, struct store *to, struct err *e);

#endif
