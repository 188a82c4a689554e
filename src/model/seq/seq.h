/* seq.h: the state of sequences: pages of keys and values, recurrent state; checkpoint, rewind, fork, save.
 *
 * A pool holds the memory of all sequences of one model on one device: pages of KV_PAGE positions, shared by reference
 * count and copied before the first write, and n_slot slots of recurrent state. A sequence is a page table, a slot and
 * a position. After rewind, fork or load, everything computed next is bit for bit the same as if the sequence had never
 * left that state.
 *
 *            seq_new          forward (commit)         forward (defer, n <= log_cap)
 *   (none) ----------> EMPTY ------------------> AT p ------------------------------> AT p, log n
 *                                                 ^  ^------- next forward ---------------' |
 *                                                 |           (replays the log)             |
 *                                                 '----------- seq_drop(k) ------------------'
 *
 * Pages and slots belong to the engine's thread. Errors leave the sequence as it was. */
#ifndef CHIMERE_MODEL_SEQ_SEQ_H
#define CHIMERE_MODEL_SEQ_SEQ_H

#include "model/seq/seq_pool.h"

struct seq;
struct checkpoint;

int seq_new(struct seq **out, struct seq_pool *p,
            struct err *e); /* CHIMERE_EBUSY: no slot is free */
void seq_free(struct seq *s);
void seq_reset(struct seq *s);        /* sets it to position 0 */
int64_t seq_pos(const struct seq *s); /* number of tokens, deferred ones included */
int32_t seq_n_deferred(const struct seq *s);
int32_t seq_slot(const struct seq *s); /* 0 .. n_slot - 1, unique during its life */

/* Allocates pages for n more positions; pages that will be written become private. CHIMERE_ELIMIT: the pool is full. */
int seq_reserve(struct seq *s, int64_t n, struct err *e);
/* Drops the last n deferred tokens (n <= seq_n_deferred). Takes constant time. */
void seq_drop(struct seq *s, int32_t n);

/* Checkpoints: pages are shared, recurrent state is copied to host memory. */
int seq_mark(struct seq *s, struct checkpoint **out, struct err *e);
int seq_rewind(struct seq *s, const struct checkpoint *m, struct err *e); /* m stays valid */
int seq_fork(struct seq *s, struct seq **out, struct err *e);
int seq_from_checkpoint(struct seq_pool *p, const struct checkpoint *m, struct seq **out,
                        struct err *e);
void checkpoint_free(struct checkpoint *m);
int64_t checkpoint_pos(const struct checkpoint *m);
/* host memory, and the pages that only it uses */
uint64_t checkpoint_bytes(const struct checkpoint *m);

#endif
