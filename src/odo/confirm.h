/* confirm.h: tool calls that wait for the user's permission.
 *
 * A request with odo.confirm "ask" pauses before each tool that writes, runs or sends. Its thread waits here until
 * the user answers by another request. Each id is valid for one call only, and only the user of that request may
 * use it. At most CONFIRM_MAX calls wait at once. Any thread. */
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
void confirm_free(struct confirms *c); /* call it only when no thread waits */
/* Registers a call that has to wait and writes its id. owner: in the form that memory_owner writes. CHIMERE_EBUSY:
 * too many calls wait. */
int confirm_begin(struct confirms *c, const char *owner, const char *tool, const char *arguments,
                  char id[CONFIRM_ID_BYTES], struct err *e);
/* Waits for the answer to the call that confirm_begin registered. Returns 0: allowed; CHIMERE_EREFUSED: denied;
 * CHIMERE_ETIMEOUT or CHIMERE_ECANCELLED. The id is invalid afterwards. */
int confirm_wait(struct confirms *c, const char *id, int64_t deadline_ns, _Atomic bool *cancelled,
                 struct err *e);
/* Stores the user's answer. CHIMERE_ENOENT: no call with this id waits for this user. */
int confirm_answer(struct confirms *c, const char *owner, const char *id, bool allow,
                   struct err *e);
/* Lists the calls that wait for this user: [{"id", "name", "arguments"}]. Returns a new reference; NULL: out of
 * memory. */
json_t *confirm_list(struct confirms *c, const char *owner);
/* Defined in odo.c: returns the waiting calls of an orchestrator, which owns them. */
struct confirms *odo_confirms(const struct odo *o);

#endif
