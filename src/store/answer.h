/* answer.h: answers of /v1/responses that later requests may continue, by id.
 *
 * An answer belongs to the owner who asked for it; others find nothing. */
#ifndef CHIMERE_STORE_ANSWER_H
#define CHIMERE_STORE_ANSWER_H

#include "store/store.h"

struct store_answer {
    const char *owner, *name; /* view; name: its id, unique for the owner */
    const char *input,
        *response; /* view: JSON of all items that were asked with, and of the whole response */
    int64_t at_ms; /* 0: now */
};
/* Then forgets everybody's answers of before oldest_ms, and the owner's oldest ones that do not fit into most_bytes with the
 * younger ones. */
int store_answer_add(struct store *s, const struct store_answer *a, int64_t oldest_ms,
                     int64_t most_bytes, struct err *e);
/* each is called at most once. CHIMERE_ENOENT: the owner has none of that name since oldest_ms. */
int store_answer_find(struct store *s, const char *owner, const char *name, int64_t oldest_ms,
                      void (*each)(void *ud, const struct store_answer *a), void *ud,
                      struct err *e);
int store_answer_drop(struct store *s, const char *owner, const char *name,
                      struct err *e); /* CHIMERE_ENOENT */

#endif
