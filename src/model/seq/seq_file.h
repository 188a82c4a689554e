/* seq_file.h: sequences in files. Layout table in seq_file.c. */
#ifndef CHIMERE_MODEL_SEQ_SEQ_FILE_H
#define CHIMERE_MODEL_SEQ_SEQ_FILE_H

#include "model/seq/seq.h"

/* Files are versioned, tied to the model and cache types by a hash, and have a checksum. extra: bytes of the caller's
 * (for example the tokens), returned by load (mem_free). */
int seq_save(struct seq *s, const char *path, const void *extra, size_t n_extra, struct err *e);
int seq_load(struct seq_pool *p, const char *path, struct seq **out, void **extra, size_t *n_extra,
             struct err *e);

#endif
