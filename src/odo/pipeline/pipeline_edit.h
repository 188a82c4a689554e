/* pipeline_edit.h: reads and replaces the files of a pipeline folder as texts.
 *
 * A new text is validated like a file of the folder, written by rename, and active when the call returns. An
 * invalid text leaves the folder unchanged. Names consist of letters, digits, '-' and '_'; intent.yaml cannot be
 * edited. Any thread; of two concurrent writers the later one wins. */
#ifndef CHIMERE_ODO_PIPELINE_EDIT_H
#define CHIMERE_ODO_PIPELINE_EDIT_H

#include "base/buf.h"
#include "odo/pipeline/pipeline.h"

enum { PIPELINE_MAX_NAME = 48 };

/* Appends the file's text. CHIMERE_ENOENT: no such file. */
int pipeline_text(const struct pipeline_dir *d, const char *name, struct buf *out, struct err *e);
int pipeline_put(struct pipeline_dir *d, const char *name, const char *text, size_t n,
                 struct err *e);
/* "default" cannot be removed: it answers every request that no other route matches. */
int pipeline_remove(struct pipeline_dir *d, const char *name, struct err *e);

#endif
