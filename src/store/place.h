/* place.h: where a store is: a file, or a server that several machines share; and whether it can be used. */
#ifndef CHIMERE_STORE_PLACE_H
#define CHIMERE_STORE_PLACE_H

#include "store/store.h"

/* "postgres://..." or "postgresql://...". */
bool store_is_server(const char *path);
/* As store_open, but CHIMERE_ENOENT if there is no such file. */
int store_open_existing(struct store **out, const char *path, struct err *e);
/* What store_open would refuse of a file, without changing it; 0 if there is none, and for servers. */
int store_probe(const char *path, struct err *e);
/* False: a server that cannot be reached, of which the last call or store_version learned. Never waits; any
 * thread. */
bool store_is_up(const struct store *s);

#endif
