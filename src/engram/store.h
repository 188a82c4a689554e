/* store.h: the open tables of a process, by name; replaced files are picked up between requests.
 *
 * A lease keeps the table that was current when it was taken. Taking one looks at the file (one stat): a
 * file that was replaced by rename is opened and checked by the caller's thread while older leases go on
 * with what they have; a deleted one is gone for new leases. The last lease closes a table that is no
 * longer current. Thread-safe. */
#ifndef CHIMERE_ENGRAM_STORE_H
#define CHIMERE_ENGRAM_STORE_H

#include "engram/table.h"

struct engram_store;

/* dir: where NAME.engram lies; NULL: the folder "engram" of the user's data directory, then the tables that
 * came with the program. tok_hash, n_vocab:
 * of the model that the tables are for. */
int engram_store_new(struct engram_store **out, const char *dir, uint64_t tok_hash,
                     uint32_t n_vocab, struct err *e);
void engram_store_free(struct engram_store *s); /* all leases are back */

struct engram_lease; /* one reference */

/* name: letters, digits, '-', '_' and '.', at most 64, not beginning with '.'. owner: a caller's identity,
 * of the same characters, or NULL. A table in the subfolder named after the owner is visible to that owner
 * only, and comes before one of the same name that everybody may use. */
int engram_store_take(struct engram_store *s, const char *owner, const char *name,
                      struct engram_lease **out, struct err *e);
/* The same for any path: for callers whose user is the machine's. */
int engram_store_take_path(struct engram_store *s, const char *path, struct engram_lease **out,
                           struct err *e);
const struct engram_table *engram_lease_table(const struct engram_lease *l);
void engram_lease_return(struct engram_lease *l);

#endif
