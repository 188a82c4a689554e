/* checkpoint.h: checkpoints that outlive the pool's memory: page by page to the host, and to files.
 *
 * A mark (seq.h) shares pages with sequences and other marks. Paged out, a page is copied to the host
 * once, whatever number of marks hold it; a sequence restored from the mark finds pages that are still
 * in the pool there and uploads the others. The mark stays valid throughout.
 *
 * Marks belong to the engine's thread, with two exceptions for a thread that writes and reads files:
 * checkpoint_save of a mark that is wholly on the host and not touched meanwhile, and checkpoint_load. */
#ifndef CHIMERE_MODEL_CHECKPOINT_H
#define CHIMERE_MODEL_CHECKPOINT_H

#include <stdio.h>

#include "model/seq.h"

/* As seq_mark, as it was before the last n_drop of the deferred tokens. */
int checkpoint_new(struct seq *s, int32_t n_drop, struct checkpoint **out, struct err *e);

int32_t checkpoint_n_pooled(const struct checkpoint *m); /* pages that it holds in the pool */
/* Moves at most n_max of them to the host, last first. Returns how many were moved; CHIMERE_ENOMEM. */
int32_t checkpoint_page_out(struct checkpoint *m, int32_t n_max, struct err *e);
/* Positions that restoring m takes out of the pool's free ones. */
int64_t checkpoint_n_ctx_to_load(const struct checkpoint *m);
/* Sets s to it, at most n_max pages (>= 1) a call: 1 when done, 0: call again, with first false, before
 * anything else is done with s but freeing it. CHIMERE_E*: s is unchanged if it was the first call. */
int checkpoint_restore(struct seq *s, const struct checkpoint *m, bool first, int32_t n_max,
                       struct err *e);
/* Host memory of all marks of the pool. */
uint64_t checkpoint_host_bytes(const struct seq_pool *p);

/* Of a mark without pages, and of one page. */
size_t checkpoint_state_bytes(const struct seq_pool *p);
size_t checkpoint_page_bytes(const struct seq_pool *p);

/* The file of seq_file.h, mode 0600: it holds what the tokens say. */
int checkpoint_save(const struct checkpoint *m, const char *path, const void *extra, size_t n_extra,
                    struct err *e);
int checkpoint_load(struct seq_pool *p, const char *path, struct checkpoint **out, void **extra,
                    size_t *n_extra, struct err *e);
/* Frees one that has no pages in the pool, as checkpoint_load gives it: any thread. */
void checkpoint_free_host(struct checkpoint *m);
/* The same as a part of a file: at its end; n_bytes from where it stands. */
int checkpoint_write(const struct checkpoint *m, FILE *f, const void *extra, size_t n_extra,
                     struct err *e);
int checkpoint_read(struct seq_pool *p, FILE *f, uint64_t n_bytes, struct checkpoint **out,
                    void **extra, size_t *n_extra, struct err *e);

#endif
