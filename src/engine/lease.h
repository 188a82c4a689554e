/* lease.h: lends an engine's device to other work while the engine is idle.
 *
 * The engine's thread runs no step until the device is given back; meanwhile, jobs wait in the queue. The borrower
 * calls engine_is_wanted before each of its own forward passes and gives the device back if that returns true. Only one
 * borrower may hold the device, and it must give it back before engine_free. If there are several GPUs, only the first
 * is lent. */
#ifndef CHIMERE_ENGINE_LEASE_H
#define CHIMERE_ENGINE_LEASE_H

#include "engine/engine.h"

struct lm;
struct suffix;

/* Returns false if the engine has work or is already lent; try again later. Never blocks for long. */
bool engine_borrow(struct engine *e);
/* The model of a lent engine, for the borrower alone. */
struct lm *engine_lent(struct engine *e);
/* Makes a lent engine draft also from these contexts, which are of all scopes (SUFFIX_ALL). x is owned from now on; NULL:
 * the engine drafts from its own texts alone. The output does not change. */
void engine_draft_from(struct engine *e, struct suffix *x);
void engine_give_back(struct engine *e);
/* Returns true if a job is waiting for the lent device. */
bool engine_is_wanted(struct engine *e);

#endif
