/* nights.h: the versions of everything that was learned, and which of them serves.
 *
 * A folder:
 *   lock             held while a night runs (flock)
 *   objects/SHA256   artefacts by content; immutable
 *   nights/N.json    the record of night N: what was read, measured, promoted or refused, and its artefacts
 *   current          the night whose artefacts serve, as text; replaced by rename
 *   live/NAME        its artefacts under their names, replaced by rename
 * A process that is killed leaves `current` as it was; live/ is made again from it by the next nights_open.
 * One thread per struct nights; processes exclude each other by the lock. */
#ifndef CHIMERE_LEARN_NIGHTS_H
#define CHIMERE_LEARN_NIGHTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { NIGHTS_MAX_PATH = 4096, NIGHTS_MAX = 1 << 20 };

struct nights;

enum nights_mode {
    NIGHTS_READ,  /* nothing is changed */
    NIGHTS_WRITE, /* takes the lock, CHIMERE_EBUSY if a night runs, and repairs live/ */
    NIGHTS_RETURN /* the same, but what serves may be damaged: for a return to a night that is whole */
};
/* dir NULL: "night" of the user's data folder. */
int nights_open(struct nights **out, const char *dir, enum nights_mode mode, struct err *e);
void nights_close(struct nights *n);
const char *nights_dir(const struct nights *n);

int64_t nights_current(const struct nights *n); /* 0: nothing was promoted */
int64_t nights_last(const struct nights *n);    /* the newest record, 0: none */
/* Record of a night, a new reference; CHIMERE_ENOENT. */
int nights_read(const struct nights *n, int64_t night, json_t **out, struct err *e);

/* Path of an artefact by its hash, whether it is there or not; CHIMERE_EFORMAT: no SHA-256. */
int nights_object(const struct nights *n, const char *sha256, char out[NIGHTS_MAX_PATH],
                  struct err *e);
/* Removes the objects that no record names. */
int nights_sweep(struct nights *n, struct err *e);
/* The record of a night that was, in place of its old one. */
int nights_rewrite(struct nights *n, int64_t night, const json_t *record, struct err *e);
/* Copies a file into objects/; *sha256 gets its name [65]. */
int nights_keep(struct nights *n, const char *path, char sha256[65], struct err *e);
/* Path of an artefact of the current night; false: it has none of this name. */
bool nights_live(const struct nights *n, const char *name, char *out, size_t out_size);
/* Writes the record of a new night ({"artefacts": {NAME: SHA256}} among its keys), numbers it, and makes it
 * current if `promote`. *night gets its number. */
int nights_add(struct nights *n, json_t *record, bool promote, int64_t *night, struct err *e);
/* Makes night the current one again, 0: none; CHIMERE_ENOENT. Its artefacts are checked first. */
int nights_select(struct nights *n, int64_t night, struct err *e);

#endif
