/* kept.h: answers of /v1/responses that later requests may go on from, by id: in memory, for a day, within a budget.
 *
 * An answer belongs to the owner who asked for it; others find nothing. Any thread. */
#ifndef CHIMERE_SERVE_KEPT_H
#define CHIMERE_SERVE_KEPT_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { KEPT_MAX_BYTES = 64 << 20, KEPT_SECONDS = 24 * 3600 };

struct kept;

struct kept *kept_new(size_t max_bytes, int64_t seconds); /* NULL: out of memory */
void kept_free(struct kept *k);
/* input: JSON text of the list of all items that were asked with; response: of the whole response. Copied; the oldest
 * ones make room. */
int kept_put(struct kept *k, const char *owner, const char *id, const char *input,
             const char *response);
/* New references; either out may be NULL. CHIMERE_ENOENT */
int kept_find(struct kept *k, const char *owner, const char *id, json_t **input, json_t **response);
int kept_drop(struct kept *k, const char *owner, const char *id); /* CHIMERE_ENOENT */

#endif
