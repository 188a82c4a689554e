/* place.h: the location of a store (a file, or a server that several machines share), and whether it can be used. */
#ifndef CHIMERE_STORE_PLACE_H
#define CHIMERE_STORE_PLACE_H

#include "store/store.h"

/* Returns true for "postgres://..." and "postgresql://...". */
bool store_is_server(const char *path);
/* Like store_open, but CHIMERE_ENOENT if the file does not exist. */
int store_open_existing(struct store **out, const char *path, struct err *e);
/* Returns the error with which store_open would refuse a file, without changing it; 0 if there is no file, and for
 * servers. */
int store_probe(const char *path, struct err *e);
/* Returns false if the server could not be reached at the last call or at store_version. Never waits; any thread. */
bool store_is_up(const struct store *s);

#endif
