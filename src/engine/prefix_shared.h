/* prefix_shared.h: states in a folder that several servers share.
 *
 * A file is found by what it holds: FORM-OWNER-KEY.seq. FORM is a hash of program, device, model and cache types, because
 * only an equal server continues a state bit for bit. KEY is the SHA-256 of FORM, of the scope whose prompts may use the
 * state, and of the tokens: a scope neither finds the states of another nor learns which exist. There is no index, and
 * servers need not know each other. Files appear by rename and are never changed.
 *
 * Reading a file sets its time. A file that was read or written less than PREFIX_SHARED_LEASE_S ago is leased: it is not
 * removed. Otherwise the least recently used files make room for new ones. The times are those of the file server's clock.
 * Files with other names are not touched. What is damaged is named once and left aside, until a server writes that state
 * again.
 *
 * One thread at a time may find and load; another one may save. */
#ifndef CHIMERE_ENGINE_PREFIX_SHARED_H
#define CHIMERE_ENGINE_PREFIX_SHARED_H

#include "engine/lm.h"

enum { PREFIX_SHARED_LEASE_S = 60, PREFIX_SHARED_NAME = 104 };

struct prefix_shared;

/* A folder that cannot be written is only read, with a warning. CHIMERE_E*: it does not exist and cannot be created. */
int prefix_shared_open(struct prefix_shared **out, struct lm *lm, const struct cache_params *c,
                       uint64_t schedule, struct err *e);
void prefix_shared_close(struct prefix_shared *s);

struct prefix_shared_state {
    const int32_t *tokens; /* view [n] */
    int32_t n;
    uint64_t scope, owner;
};
struct prefix_shared_file {
    int64_t pos; /* number of tokens */
    int64_t n_bytes;
    char name[PREFIX_SHARED_NAME];
};
/* Finds the longest state of a proper prefix of x, at a multiple of the grid above `least`. False: none. */
bool prefix_shared_find(struct prefix_shared *s, const struct prefix_shared_state *x, int64_t least,
                        int32_t grid, struct prefix_shared_file *out);
/* Loads a state of that scope with its tokens (mem_free). CHIMERE_E*: it cannot be used, for a reason that was logged. */
int prefix_shared_load(struct prefix_shared *s, const char *name, uint64_t scope,
                       struct checkpoint **out, int32_t **tokens, int32_t *n);
/* Writes a state that is completely on the host, unless it exists, and sets *out. CHIMERE_ELIMIT: there is no room. */
int prefix_shared_save(struct prefix_shared *s, const struct prefix_shared_state *x,
                       const struct checkpoint *m, struct prefix_shared_file *out, struct err *e);
/* Removes all states of an owner, also those of other programs and leased ones, and sets *n_gone. Servers may be running;
 * what they write later stays. */
int prefix_shared_forget(const char *dir, uint64_t owner, uint64_t *n_gone, struct err *e);

#endif
