/* memory.h: what the orchestrator remembers about each user: stored facts and earlier talks.
 *
 * An owner sees, finds, changes and deletes only its own rows, because every query names the owner. The same text
 * of the same owner is one row. */
#ifndef CHIMERE_STORE_MEMORY_H
#define CHIMERE_STORE_MEMORY_H

#include <stddef.h>

#include "store/store.h"

enum {
    STORE_MAX_MEMORY_BYTES = 4096,
    STORE_MAX_MEMORIES = 10000,        /* entries of one owner, not counting pins */
    STORE_MAX_MEMORIES_OF_KEY = 20000, /* of all owners "KEY" and "KEY\tUSER" of one key */
};

enum store_memory_kind { STORE_FACT, STORE_TALK };

struct store_memory {
    int64_t id, at_ms; /* at_ms 0: now */
    const char *owner; /* view */
    enum store_memory_kind kind;
    const char *text; /* view */
    bool pinned;
    bool tainted;        /* the text was influenced by untrusted text */
    double score;        /* set by a search; larger is better */
    int64_t replaced_by; /* id of the newer fact that contradicts this one; 0: this one holds */
};
/* the rows that hold; of these, the pinned ones; all rows, also those that were replaced */
enum store_memory_which { STORE_HOLDING, STORE_PINS, STORE_WITH_HISTORY };

/* Adds an entry. CHIMERE_ELIMIT: the users of the key together have too many. *id: the row. If the owner already
 * has the text, that row is reused and becomes the newest; a pin stays. Entries beyond STORE_MAX_MEMORIES are
 * deleted, oldest first. */
int store_memory_add(struct store *s, const struct store_memory *m, int64_t *id, struct err *e);
/* Lists pins first, then the newest. If `each` returns nonzero, the list stops and returns that value. */
int store_memory_list(struct store *s, const char *owner, enum store_memory_which which,
                      int32_t most, int (*each)(void *ud, const struct store_memory *m), void *ud,
                      struct err *e);
/* Finds entries by words, in the query language of FTS5, best first; pins and replaced facts are left out. */
int store_memory_match(struct store *s, const char *owner, const char *words, int32_t most,
                       int (*each)(void *ud, const struct store_memory *m), void *ud,
                       struct err *e);
int store_memory_pin(struct store *s, const char *owner, int64_t id, bool pinned,
                     struct err *e); /* CHIMERE_ENOENT: no such entry */
/* Replaces the text of an entry, which becomes the newest. CHIMERE_ENOENT: no such entry; CHIMERE_EINVAL: the
 * owner already has that text. */
int store_memory_edit(struct store *s, const char *owner, int64_t id, const char *text,
                      struct err *e);
/* Marks entry `old` and the entries that it replaced as replaced by entry `now`, which takes over its pin. They are
 * no longer found, but stay in the list with history. CHIMERE_ENOENT: no such entry. */
int store_memory_replace(struct store *s, const char *owner, int64_t old, int64_t now,
                         struct err *e);
/* Deletes an entry and those that it replaced. CHIMERE_ENOENT: no such entry. */
int store_memory_remove(struct store *s, const char *owner, int64_t id, struct err *e);
/* Deletes entries older than before_ms, also pins if requested. Returns their number, or CHIMERE_E*. */
int64_t store_memory_forget(struct store *s, const char *owner, int64_t before_ms, bool pins,
                            struct err *e);

#endif
