/* state.h: the index of saved sequence states: which tokens of which model are stored in which file.
 *
 * The file is written before its row, and a row is removed before its file. So if the process is killed, at worst
 * a file without a row is left, which the caller of store_state_list may delete. */
#ifndef CHIMERE_STORE_STATE_H
#define CHIMERE_STORE_STATE_H

#include <stddef.h>

#include "store/store.h"

enum { STORE_MAX_STATE_TOK = 1 << 24 };

struct store_state {
    int64_t id;
    /* hash of model, cache types and schedule: only an equal layout can load the state */
    uint64_t layout;
    uint64_t scope;        /* whose prompts may use it; 0: the default scope */
    uint64_t owner;        /* whose budget it counts against; 0: no owner */
    uint64_t session;      /* 0: none */
    const int32_t *tokens; /* view: [n_tok] */
    int32_t n_tok;
    int64_t n_bytes;  /* size of the file */
    int64_t used_ms;  /* 0: now */
    const char *file; /* view: name in the folder of states, without a path */
};
/* Sets st->id. A row for the same file is replaced. */
int store_state_add(struct store *s, struct store_state *st, struct err *e);
/* Lists the states of one layout, least recently used first. If `each` returns nonzero, the list stops and
 * returns that value. */
int store_state_list(struct store *s, uint64_t layout,
                     int (*each)(void *ud, const struct store_state *st), void *ud, struct err *e);
int store_state_used(struct store *s, int64_t id, int64_t used_ms, struct err *e);
/* 0 also if it no longer exists */
int store_state_remove(struct store *s, int64_t id, struct err *e);
/* Returns the size of all states of one owner, over all layouts; 0: of all owners. */
int store_state_bytes(struct store *s, uint64_t owner, int64_t *n_bytes, struct err *e);
/* Finds the least recently used state of one owner (0: of all owners). CHIMERE_ENOENT: none. */
int store_state_oldest(struct store *s, uint64_t owner, int64_t *id, char *file, size_t file_size,
                       struct err *e);
/* Returns true if a row names this file. */
bool store_state_has_file(struct store *s, const char *file);

#endif
