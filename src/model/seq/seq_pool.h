/* seq_pool.h: the memory of all sequences of one model on one device.
 *
 * Pages of KV_PAGE positions of keys and values, shared between sequences and checkpoints by reference count, and
 * n_slot slots of recurrent state. Belongs to the engine's thread. */
#ifndef CHIMERE_MODEL_SEQ_SEQ_POOL_H
#define CHIMERE_MODEL_SEQ_SEQ_POOL_H

#include "model/model.h"

struct seq_pool_params {
    int32_t n_slot;          /* maximum number of sequences, without checkpoints */
    int64_t n_ctx;           /* positions of all sequences, rounded up to pages */
    int64_t n_ctx_seq;       /* of one sequence: initial size of its page table; 0: small */
    uint32_t k_type, v_type; /* quant.h: F32, F16, Q8_0, Q4_0 */
    bool log;                /* keep logs of STEP_MAX_TOK tokens, so that spans can be deferred */
};

struct seq_pool;

int seq_pool_new(struct seq_pool **out, struct model *m, const struct seq_pool_params *p,
                 struct err *e);
void seq_pool_free(struct seq_pool *p); /* all sequences and checkpoints must have been freed */
/* Bytes that seq_pool_new allocates on the device. */
uint64_t seq_pool_bytes(const struct model *m, const struct seq_pool_params *p);
int64_t seq_pool_free_ctx(const struct seq_pool *p); /* positions in free pages */
bool seq_pool_lends(const struct seq_pool *p);       /* idle pages hold experts (seq_lend.h) */

#endif
