/* store.h: the open tables of a process, by name. Replaced files are detected between requests.
 *
 * A lease keeps the table that was current when the lease was taken. Taking a lease checks the file (one stat). If
 * the file was replaced by rename, the caller's thread opens and checks it, while older leases continue to use
 * their table. A deleted file is not available for new leases. The last lease of a table that is no longer current
 * closes it. Thread-safe. */
#ifndef CHIMERE_ENGRAM_STORE_H
#define CHIMERE_ENGRAM_STORE_H

#include "engram/table.h"

struct engram_store;

/* dir: folder of the files NAME.engram; NULL: the folder "engram" of the user's data folder, then the tables
 * shipped with the program. tok_hash, n_vocab: of the model that the tables are for. */
int engram_store_new(struct engram_store **out, const char *dir, uint64_t tok_hash,
                     uint32_t n_vocab, struct err *e);
void engram_store_free(struct engram_store *s); /* call it after all leases were returned */

struct engram_lease; /* a lease of one table */

/* name: letters, digits, '-', '_' and '.', at most 64, not beginning with '.'. owner: identity of the caller, of
 * the same characters, or NULL. A table in the subfolder named after the owner is visible only to that owner. It
 * takes precedence over a shared table with the same name. */
int engram_store_take(struct engram_store *s, const char *owner, const char *name,
                      struct engram_lease **out, struct err *e);
/* The same for any path; only for callers that act for the user of this machine. */
int engram_store_take_path(struct engram_store *s, const char *path, struct engram_lease **out,
                           struct err *e);
const struct engram_table *engram_lease_table(const struct engram_lease *l);
void engram_lease_return(struct engram_lease *l);

#endif
