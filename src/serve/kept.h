/* kept.h: answers of /v1/responses that later requests may continue, by id: for a day, each owner within a budget.
 *
 * They lie in the server's store, and outlive it; without a store, in one in memory. Any thread. */
#ifndef CHIMERE_SERVE_KEPT_H
#define CHIMERE_SERVE_KEPT_H

#include <jansson.h>
#include <stdint.h>

#include "base/err.h"
#include "store/store.h"

enum { KEPT_MAX_BYTES = 64 << 20, KEPT_SECONDS = 24 * 3600 };

struct kept;

/* store: borrowed, or NULL. max_bytes: of one owner. */
int kept_open(struct kept **out, struct store *store, int64_t max_bytes, int64_t seconds,
              struct err *e);
void kept_close(struct kept *k);
/* input: JSON text of the list of all items that were asked with; response: of the whole response. The owner's oldest
 * ones make room. CHIMERE_ELIMIT: one may not take a quarter of it. */
int kept_put(struct kept *k, const char *owner, const char *id, const char *input,
             const char *response);
/* New references; either out may be NULL. CHIMERE_ENOENT */
int kept_find(struct kept *k, const char *owner, const char *id, json_t **input, json_t **response);
int kept_drop(struct kept *k, const char *owner, const char *id); /* CHIMERE_ENOENT */

#endif
