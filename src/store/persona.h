/* persona.h: the personas that users write: a name, and the text that describes how a model should write.
 *
 * An owner sees, changes and deletes only its own rows, because every query names the owner. */
#ifndef CHIMERE_STORE_PERSONA_H
#define CHIMERE_STORE_PERSONA_H

#include "store/store.h"

enum {
    STORE_MAX_PERSONAS = 100, /* of one owner */
    STORE_MAX_PERSONA_NAME = 64,
    STORE_MAX_PERSONA_TEXT = 16 << 10,
};

struct store_persona {
    int64_t id;
    const char *name, *text; /* view */
};

/* Adds a persona, or (id) changes one. *id: its row. CHIMERE_EINVAL: another persona of the owner has the name;
 * CHIMERE_ELIMIT: the owner has too many; CHIMERE_ENOENT: no such persona. */
int store_persona_put(struct store *s, const char *owner, const struct store_persona *p,
                      int64_t *id, struct err *e);
/* Lists by name. If `each` returns nonzero, the list stops and returns that value. */
int store_persona_list(struct store *s, const char *owner,
                       int (*each)(void *ud, const struct store_persona *p), void *ud,
                       struct err *e);
int store_persona_remove(struct store *s, const char *owner, int64_t id,
                         struct err *e); /* CHIMERE_ENOENT: no such persona */

#endif
