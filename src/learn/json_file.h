/* json_file.h: JSON objects as files of the folder of nights. A file is replaced as a whole, by rename. */
#ifndef CHIMERE_LEARN_JSON_FILE_H
#define CHIMERE_LEARN_JSON_FILE_H

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"

/* *out: a new reference to the object of a file of at most max_bytes; NULL on failure. CHIMERE_ENOENT: no such file;
 * CHIMERE_EFORMAT: no JSON object. */
int json_file_read(json_t **out, const char *path, size_t max_bytes, struct err *e);
/* Writes o, whose reference it takes. o NULL: out of memory. */
int json_file_write(const char *path, json_t *o, struct err *e);

#endif
