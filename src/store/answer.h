/* answer.h: answers of /v1/responses that later requests may continue by their id.
 *
 * An answer belongs to the owner who asked for it; other owners cannot find it. */
#ifndef CHIMERE_STORE_ANSWER_H
#define CHIMERE_STORE_ANSWER_H

#include "store/store.h"

struct store_answer {
    const char *owner, *name;     /* view; name: the answer's id, unique per owner */
    const char *input, *response; /* view: JSON of all input items, and of the whole response */
    int64_t at_ms;                /* 0: now */
};
/* Adds an answer. Then deletes all owners' answers from before oldest_ms, and this owner's oldest answers until
 * the rest fits into most_bytes. */
int store_answer_add(struct store *s, const struct store_answer *a, int64_t oldest_ms,
                     int64_t most_bytes, struct err *e);
/* each is called at most once. CHIMERE_ENOENT: the owner has no answer of this name since oldest_ms. */
int store_answer_find(struct store *s, const char *owner, const char *name, int64_t oldest_ms,
                      void (*each)(void *ud, const struct store_answer *a), void *ud,
                      struct err *e);
int store_answer_drop(struct store *s, const char *owner, const char *name,
                      struct err *e); /* CHIMERE_ENOENT: no such answer */

#endif
