/* lease.h: the device of an engine, lent to work that runs while nobody asks.
 *
 * The engine's thread runs no step until it is given back; jobs wait in the queue meanwhile. The borrower asks
 * engine_is_wanted before each forward pass of its own and gives the device back if it is. One borrower at a time;
 * it gives back before engine_free. Of several GPUs the first alone is lent. */
#ifndef CHIMERE_ENGINE_LEASE_H
#define CHIMERE_ENGINE_LEASE_H

#include "engine/engine.h"

/* False: the engine has work, or is lent already; ask again later. Never blocks for long. */
bool engine_borrow(struct engine *e);
void engine_give_back(struct engine *e);
/* A job waits for a device that is lent. */
bool engine_is_wanted(struct engine *e);

#endif
