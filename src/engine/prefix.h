/* prefix.h: the prefix cache: states with which later prompts may begin, found by tokens, with budgets and files.
 *
 * A checkpoint (a mark) is the exact state of a sequence after a prefix of tokens. Prefixes form a tree of blocks of
 * SCAN_GRID tokens, and a checkpoint belongs to a node. A recurrent state cannot be rewound from a checkpoint, so a
 * prompt can continue only at positions that have one. Positions are multiples of the grid, so at most 63 known tokens
 * are evaluated again. The exception is a position where answers branch: its checkpoint may follow a partial block, and
 * it is kept in memory only.
 *
 *            keep                   room is needed: pages to the host, least recently used first
 *   sequence ----> mark in the pool -------------------------------> mark on the host
 *       ^                                                              |    ^
 *       '------------------------- restore ----------------------------'    | fetch (a thread reads)
 *                        memory budget exceeded (a thread writes): -------> file + row of the store
 *                        or dropped, if it does not deserve a file
 *
 * Only the engine's thread calls this. Files never block it: separate threads write and read them. prefix_free saves
 * the checkpoints that deserve a file and have none. With a folder that servers share (prefix_shared.h), states from which
 * conversations may continue are also saved there as soon as they exist, and prompts look there for longer ones. A prompt finds only states of its own scope. States computed with
 * LoRA adapters are kept in memory only. Files that are damaged or belong to another model are deleted, and the prompt
 * is evaluated instead. */
#ifndef CHIMERE_ENGINE_PREFIX_H
#define CHIMERE_ENGINE_PREFIX_H

#include "engine/lm.h"

struct prefix;
struct prefix_entry; /* a checkpoint; valid while pinned */

/* schedule: identifies how prompts are cut into chunks, if this affects the bits of the result; a file must match it.
 * grid: checkpoint positions are multiples of it; it is a multiple of SCAN_GRID. */
int prefix_new(struct prefix **out, struct lm *lm, const struct cache_params *c, uint64_t schedule,
               int32_t grid, struct err *e);
void prefix_free(struct prefix *p);

/* Returns the longest checkpoint of a proper prefix of the tokens, pinned; NULL: none. salt: hash of the scope and the
 * adapters in use; only the scope if there are no adapters. */
struct prefix_entry *prefix_find(struct prefix *p, const int32_t *tokens, int32_t n, uint64_t salt);
int64_t prefix_pos(const struct prefix_entry *x);
/* Looks for a longer state in the folder that servers share, if that may help; l is zero before the first call. Returns
 * false while the prompt should wait for it, call again. Afterwards, prefix_find finds the state. scope: as in struct
 * prefix_at. */
struct prefix_lookup {
    uint64_t number;
    int64_t since_ns;
};
bool prefix_look(struct prefix *p, struct prefix_lookup *l, const int32_t *tokens, int32_t n,
                 uint64_t salt, uint64_t scope);
/* Reports how long the evaluation of prompt tokens took: reading a shared state must take less time. */
void prefix_evaluated(struct prefix *p, int32_t n_tok, double ms);
/* Loads the state to memory. 1: it is in memory. 0: it is being read, call again. CHIMERE_E*: it is lost, unpin x. */
int prefix_fetch(struct prefix *p, struct prefix_entry *x);
/* Sets seq to the state, making room first. Works for about `ms`. 1: done. 0: call again with first = false.
 * CHIMERE_E*: seq is unchanged if this was the first call; otherwise seq is unusable. */
int prefix_restore(struct prefix *p, struct prefix_entry *x, struct seq *seq, bool first, double ms,
                   struct err *e);
void prefix_unpin(struct prefix *p, struct prefix_entry *x);

struct prefix_at {
    const int32_t *tokens; /* view of at least pos tokens */
    int64_t pos;           /* a multiple of the grid, or a position where answers branch */
    int32_t n_drop;        /* deferred tokens of the sequence after pos */
    uint64_t salt, scope, owner, session;
};
/* Makes a checkpoint of seq and pins it. NULL: out of memory. */
struct prefix_entry *prefix_keep(struct prefix *p, struct seq *seq, const struct prefix_at *at);
/* Unpins x, and drops it if no other prompt used it: a later checkpoint of the same answer replaces it. */
void prefix_replace(struct prefix *p, struct prefix_entry *x);
/* Unpins the checkpoints at the start and at the end of an answer; each may be NULL. The conversation will continue
 * from one of them; which one depends on the template. Both therefore deserve files, unlike earlier ones. */
void prefix_finish(struct prefix *p, struct prefix_entry *began, struct prefix_entry *ended);

/* Moves pages of checkpoints out of the pool until n_ctx positions are free or no page is left to move. */
void prefix_make_room(struct prefix *p, int64_t n_ctx);
/* Called once per step: applies the budgets and takes over the file thread's results. True: that thread is busy. */
bool prefix_settle(struct prefix *p);
void prefix_totals(const struct prefix *p, struct engine_totals *t);

#endif
