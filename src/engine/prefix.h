/* prefix.h: states that later prompts may begin with: lookup by tokens, budgets, files.
 *
 * A checkpoint is the exact state of a sequence (a mark) behind a prefix of tokens. Prefixes form a tree
 * of blocks of SCAN_GRID tokens; a checkpoint stands at a node. A recurrent state cannot be cut back: only
 * positions that have a checkpoint can be continued. Positions are multiples of the grid, so that at most
 * 63 tokens of what was known are evaluated again, except where answers branch: such a checkpoint stands
 * behind a part of a block, in memory only.
 *
 *            keep                   room is needed: pages to the host, least recently used first
 *   sequence ----> mark in the pool -------------------------------> mark on the host
 *       ^                                                              |    ^
 *       '------------------------- restore ----------------------------'    | fetch (a thread reads)
 *                        budget of memory exceeded (a thread writes): ----> file + row of the store
 *                        or dropped, where it is not worth a file
 *
 * Belongs to the engine's thread, which is never blocked by files: one thread of its own writes and reads.
 * prefix_free saves what is worth it and not saved. A prompt finds states of its own scope only. States under LoRA are kept in memory only. Files that
 * are damaged or belong to another model are deleted, and the prompt is evaluated. */
#ifndef CHIMERE_ENGINE_PREFIX_H
#define CHIMERE_ENGINE_PREFIX_H

#include "engine/lm.h"

struct prefix;
struct prefix_entry; /* a checkpoint; valid while pinned */

/* schedule: how prompts are cut, where that decides bits; part of what a file is matched by. grid: positions
 * of checkpoints are multiples of it; a multiple of SCAN_GRID. */
int prefix_new(struct prefix **out, struct lm *lm, const struct cache_params *c, uint64_t schedule,
               int32_t grid, struct err *e);
void prefix_free(struct prefix *p);

/* Deepest checkpoint of a proper prefix of the tokens, pinned; NULL: none. salt: adapters in use and
 * the scope; the scope alone without adapters. */
struct prefix_entry *prefix_find(struct prefix *p, const int32_t *tokens, int32_t n, uint64_t salt);
int64_t prefix_pos(const struct prefix_entry *x);
/* Brings it to memory: 1: it is there, 0: being read, ask again, CHIMERE_E*: it is gone (unpin it). */
int prefix_fetch(struct prefix *p, struct prefix_entry *x);
/* Sets seq to it, making room first, for about that long: 1: done, 0: call again, with first false.
 * CHIMERE_E*: seq is unchanged if it was the first call, else of no use. */
int prefix_restore(struct prefix *p, struct prefix_entry *x, struct seq *seq, bool first, double ms,
                   struct err *e);
void prefix_unpin(struct prefix *p, struct prefix_entry *x);

struct prefix_at {
    const int32_t *tokens; /* view: at least pos of them */
    int64_t pos;           /* a multiple of the grid, or where answers branch */
    int32_t n_drop;        /* deferred tokens of the sequence behind pos */
    uint64_t salt, scope, owner, session;
};
/* Keeps seq's state; the checkpoint is pinned. NULL: no memory for it. */
struct prefix_entry *prefix_keep(struct prefix *p, struct seq *seq, const struct prefix_at *at);
/* Unpins and forgets a checkpoint that a later one of the same answer replaces, if nobody else used it. */
void prefix_replace(struct prefix *p, struct prefix_entry *x);
/* Unpins both (each may be NULL): where the answer began and where it ended. From one of them, templates
 * decide which, its conversation will go on: worth files, unlike what came before. */
void prefix_finish(struct prefix *p, struct prefix_entry *began, struct prefix_entry *ended);

/* Pages of checkpoints leave the pool until n_ctx positions are free, or none is left. */
void prefix_make_room(struct prefix *p, int64_t n_ctx);
/* Once a step: budgets, and what the file thread has done. True: it is at work. */
bool prefix_settle(struct prefix *p);
void prefix_wait(struct prefix *p, int32_t ms); /* until the file thread has done something */
void prefix_totals(const struct prefix *p, struct engine_totals *t);

#endif
