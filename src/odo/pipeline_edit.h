/* pipeline_edit.h: files of a folder of pipelines, read and replaced as texts.
 *
 * What is put is checked as the folder's reader checks it, written by rename and in force when the call returns; what
 * does not hold leaves the folder as it was. Names are letters, digits, '-' and '_'; intent.yaml is not among them.
 * Any thread; the last of two writers wins. */
#ifndef CHIMERE_ODO_PIPELINE_EDIT_H
#define CHIMERE_ODO_PIPELINE_EDIT_H

#include "base/buf.h"
#include "odo/pipeline.h"

enum { PIPELINE_MAX_NAME = 48 };

/* Appends the file's text. CHIMERE_ENOENT */
int pipeline_text(const struct pipeline_dir *d, const char *name, struct buf *out, struct err *e);
int pipeline_put(struct pipeline_dir *d, const char *name, const char *text, size_t n,
                 struct err *e);
/* default stays: it is the answer to everything else. */
int pipeline_remove(struct pipeline_dir *d, const char *name, struct err *e);

#endif
