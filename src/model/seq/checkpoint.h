/* checkpoint.h: checkpoints that outlive the pool's memory: pages are moved to the host one by one, and to files.
 *
 * A checkpoint (seq.h) shares pages with sequences and other checkpoints. A page that is moved out is copied to the
 * host once, however many checkpoints share it. Restoring a sequence reuses the pages that are still in the pool and
 * uploads the others. The checkpoint stays valid throughout.
 *
 * Checkpoints belong to the engine's thread. Two calls may run on a thread that reads and writes files:
 * checkpoint_save, if the checkpoint is completely on the host and is not used meanwhile, and checkpoint_load. */
#ifndef CHIMERE_MODEL_SEQ_CHECKPOINT_H
#define CHIMERE_MODEL_SEQ_CHECKPOINT_H

#include "model/seq/seq.h"

/* Like seq_mark, but of the state before the last n_drop deferred tokens. */
int checkpoint_new(struct seq *s, int32_t n_drop, struct checkpoint **out, struct err *e);

int32_t checkpoint_n_pooled(const struct checkpoint *m); /* its pages that are in the pool */
/* Moves at most n_max of these to the host, last first. Returns the number moved, or CHIMERE_ENOMEM. */
int32_t checkpoint_page_out(struct checkpoint *m, int32_t n_max, struct err *e);
/* Free positions of the pool that restoring m takes. */
int64_t checkpoint_n_ctx_to_load(const struct checkpoint *m);
/* Sets s to m, at most n_max pages (>= 1) per call. Returns 1 when done. Returns 0 if it must be called again, with
 * first false; until then s may only be freed. CHIMERE_E*: if it was the first call, s is unchanged. */
int checkpoint_restore(struct seq *s, const struct checkpoint *m, bool first, int32_t n_max,
                       struct err *e);
/* Host memory of all checkpoints of the pool. */
uint64_t checkpoint_host_bytes(const struct seq_pool *p);

/* Bytes of a checkpoint without pages, and of one page. */
size_t checkpoint_state_bytes(const struct seq_pool *p);
size_t checkpoint_page_bytes(const struct seq_pool *p);

/* Writes the file of seq_file.h with mode 0600, because the text can be derived from it. */
int checkpoint_save(const struct checkpoint *m, const char *path, const void *extra, size_t n_extra,
                    struct err *e);
int checkpoint_load(struct seq_pool *p, const char *path, struct checkpoint **out, void **extra,
                    size_t *n_extra, struct err *e);
/* Frees a checkpoint without pages in the pool, such as one from checkpoint_load; any thread. */
void checkpoint_free_host(struct checkpoint *m);

#endif
