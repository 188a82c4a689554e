/* memory.h: what the orchestrator remembers of each user: facts that were told, talks that were had.
 *
 * An owner sees, finds, changes and forgets its own rows alone: every question names it. The same text of
 * the same owner is one row. */
#ifndef CHIMERE_STORE_MEMORY_H
#define CHIMERE_STORE_MEMORY_H

#include <stddef.h>

#include "store/store.h"

enum {
    STORE_MAX_MEMORY_BYTES = 4096,
    STORE_MAX_MEMORIES = 10000,        /* of one owner, pins aside */
    STORE_MAX_MEMORIES_OF_KEY = 20000, /* of all owners "KEY" and "KEY\tUSER" of one key */
};

enum store_memory_kind { STORE_FACT, STORE_TALK };

struct store_memory {
    int64_t id, at_ms; /* at_ms 0: now */
    const char *owner; /* view */
    enum store_memory_kind kind;
    const char *text; /* view */
    bool pinned;
    bool tainted; /* strangers' text had a part in it */
    double score; /* of a search; larger is better */
};

/* CHIMERE_ELIMIT: the key's users have too many together. *id: the row, an older one if the owner has that text already (it becomes the newest; a pin stays).
 * What the owner has beyond STORE_MAX_MEMORIES goes, oldest first. */
int store_memory_add(struct store *s, const struct store_memory *m, int64_t *id, struct err *e);
/* Pins first, then the newest. Nonzero from each stops, and is returned. */
int store_memory_list(struct store *s, const char *owner, bool pins_alone, int32_t most,
                      int (*each)(void *ud, const struct store_memory *m), void *ud, struct err *e);
/* By words of FTS5's query language, best first; pins are left out. */
int store_memory_match(struct store *s, const char *owner, const char *words, int32_t most,
                       int (*each)(void *ud, const struct store_memory *m), void *ud,
                       struct err *e);
int store_memory_pin(struct store *s, const char *owner, int64_t id, bool pinned,
                     struct err *e); /* CHIMERE_ENOENT */
/* Another text for it; it becomes the newest. CHIMERE_ENOENT; CHIMERE_EINVAL: the owner has that text already. */
int store_memory_edit(struct store *s, const char *owner, int64_t id, const char *text,
                      struct err *e);
int store_memory_remove(struct store *s, const char *owner, int64_t id, struct err *e); /* same */
/* Forgets what is older than before_ms, pins too where asked; how many, or CHIMERE_E*. */
int64_t store_memory_forget(struct store *s, const char *owner, int64_t before_ms, bool pins,
                            struct err *e);

#endif
