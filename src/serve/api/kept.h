/* kept.h: stored responses of /v1/responses, which later requests may continue by id. They are kept for a day, within a
 * budget per owner.
 *
 * They are in the server's store and survive a restart; without a store, they are in an in-memory store. Any thread may
 * call this. */
#ifndef CHIMERE_SERVE_KEPT_H
#define CHIMERE_SERVE_KEPT_H

#include <jansson.h>
#include <stdint.h>

#include "base/err.h"
#include "store/store.h"

enum { KEPT_MAX_BYTES = 64 << 20, KEPT_SECONDS = 24 * 3600 };

struct kept;

/* store: borrowed, or NULL. max_bytes: budget of one owner. */
int kept_open(struct kept **out, struct store *store, int64_t max_bytes, int64_t seconds,
              struct err *e);
void kept_close(struct kept *k);
/* input: the list of all input items, as JSON text; response: the whole response. The owner's oldest responses are
 * deleted to make room. CHIMERE_ELIMIT: the response takes more than a quarter of the budget. */
int kept_put(struct kept *k, const char *owner, const char *id, const char *input,
             const char *response);
/* Returns new references; either output may be NULL. CHIMERE_ENOENT: not found. */
int kept_find(struct kept *k, const char *owner, const char *id, json_t **input, json_t **response);
int kept_drop(struct kept *k, const char *owner, const char *id); /* CHIMERE_ENOENT: not found */

#endif
