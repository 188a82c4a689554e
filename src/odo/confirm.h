/* confirm.h: calls of tools that wait for their user's word.
 *
 * A request with odo.confirm "ask" pauses before each tool that writes, runs or sends: its thread waits here, the user
 * answers by another request. A name answers for one call only, and only its own user may use it. Bounded: at most
 * CONFIRM_MAX calls wait at once. Any thread. */
#ifndef CHIMERE_ODO_CONFIRM_H
#define CHIMERE_ODO_CONFIRM_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct confirms;
struct odo;

enum { CONFIRM_MAX = 64, CONFIRM_S = 120, CONFIRM_ID_BYTES = 32 };

struct confirms *confirm_new(void);    /* NULL: out of memory */
void confirm_free(struct confirms *c); /* nobody waits any more */
/* A call of a tool that is to wait; its name to id. owner: as memory_owner writes it. CHIMERE_EBUSY: too many wait. */
int confirm_begin(struct confirms *c, const char *owner, const char *tool, const char *arguments,
                  char id[CONFIRM_ID_BYTES], struct err *e);
/* After confirm_begin: 0: allowed; CHIMERE_EREFUSED: not; CHIMERE_ETIMEOUT, CHIMERE_ECANCELLED. The name ends. */
int confirm_wait(struct confirms *c, const char *id, int64_t deadline_ns, _Atomic bool *cancelled,
                 struct err *e);
/* The user's word. CHIMERE_ENOENT: nothing of this name waits for this user. */
int confirm_answer(struct confirms *c, const char *owner, const char *id, bool allow,
                   struct err *e);
/* [{"id", "name", "arguments"}] of what waits for this user; a new reference, NULL: out of memory. */
json_t *confirm_list(struct confirms *c, const char *owner);
/* odo.c: those of an orchestrator; live as it does. */
struct confirms *odo_confirms(const struct odo *o);

#endif
