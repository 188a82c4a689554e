/* state.h: the index of saved sequence states: which tokens of which model lie in which file.
 *
 * The file is written first, its row after it; a row is removed before its file. So a kill at any
 * moment leaves at worst a file without a row, which store_state_list's caller may delete. */
#ifndef CHIMERE_STORE_STATE_H
#define CHIMERE_STORE_STATE_H

#include <stddef.h>

#include "store/store.h"

enum { STORE_MAX_STATE_TOK = 1 << 24 };

struct store_state {
    int64_t id;
    uint64_t layout;       /* hash of model, cache types and schedule: what may load it */
    uint64_t scope;        /* whose prompts may use it; 0: the default scope */
    uint64_t owner;        /* whose budget it counts for; 0: nobody's */
    uint64_t session;      /* 0: none */
    const int32_t *tokens; /* view: [n_tok] */
    int32_t n_tok;
    int64_t n_bytes;  /* of the file */
    int64_t used_ms;  /* 0: now */
    const char *file; /* view: name in the folder of states, no path */
};
/* Fills id. A row of the same file is replaced. */
int store_state_add(struct store *s, struct store_state *st, struct err *e);
/* Those of one layout, least recently used first. Nonzero from each stops, and is returned. */
int store_state_list(struct store *s, uint64_t layout,
                     int (*each)(void *ud, const struct store_state *st), void *ud, struct err *e);
int store_state_used(struct store *s, int64_t id, int64_t used_ms, struct err *e);
int store_state_remove(struct store *s, int64_t id, struct err *e); /* 0 also when it is gone */
/* Bytes of all states of all layouts of one owner; 0: of all owners. */
int store_state_bytes(struct store *s, uint64_t owner, int64_t *n_bytes, struct err *e);
/* The least recently used state of one owner (0: of all): its id, and file name. CHIMERE_ENOENT: none. */
int store_state_oldest(struct store *s, uint64_t owner, int64_t *id, char *file, size_t file_size,
                       struct err *e);
/* Whether any row names this file. */
bool store_state_has_file(struct store *s, const char *file);

#endif
