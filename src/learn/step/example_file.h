/* example_file.h: the file of a night's few-shot store (backend/shots.h): {"version": 1, "examples": [...]}. Pure
 * functions, except load and save. */
#ifndef CHIMERE_LEARN_STEP_EXAMPLE_FILE_H
#define CHIMERE_LEARN_STEP_EXAMPLE_FILE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

/* Appends an example; false: the store is full, a text is empty, too long or not UTF-8, or the question is in the store
 * already. */
bool example_put(json_t *store, const char *question, const char *answer, const char *source);
/* *out: a new reference to the store. CHIMERE_EFORMAT: the file is not a store, or too large. */
int example_load(json_t **out, const char *path, struct err *e);
int example_save(const json_t *store, const char *path, struct err *e);

#endif
