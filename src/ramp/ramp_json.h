/* ramp_json.h: results of steps as JSON files in the work folder, each with a key that identifies its inputs. */
#ifndef CHIMERE_RAMP_RAMP_JSON_H
#define CHIMERE_RAMP_RAMP_JSON_H

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"
#include <stdint.h>

/* Returns the object if the file exists, is valid and has this key; else NULL. */
json_t *ramp_json_load(const char *work, const char *name, uint64_t key);
/* Adds the key, writes the file, and drops the reference. root NULL: out of memory. */
int ramp_json_save(json_t *root, const char *work, const char *name, uint64_t key, struct err *e);
/* out[4096] receives WORK/NAME. */
int ramp_json_path(char *out, const char *work, const char *name, struct err *e);
/* Writes b to WORK/NAME and frees it, whether or not that succeeds. */
int ramp_write_text(struct buf *b, const char *work, const char *name, struct err *e);
double ramp_json_number(const json_t *o, const char *key, double otherwise);

#endif
