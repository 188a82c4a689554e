/* nights.h: the versions of everything that was learned, and which of them is current.
 *
 * A folder:
 *   lock             held while a night runs (flock)
 *   objects/SHA256   artefacts, named by their hash; immutable
 *   nights/N.json    the record of night N: what was read, measured, promoted or refused, and its artefacts
 *   current          the number of the night whose artefacts are in use, as text; replaced by rename
 *   live/NAME        these artefacts under their names, replaced by rename
 *   trial            the night that a share of the conversations tries (trial.h)
 * If a process is killed, `current` is unchanged, and the next nights_open restores live/ from it. One thread per
 * struct nights; processes exclude each other by the lock. */
#ifndef CHIMERE_LEARN_NIGHTS_H
#define CHIMERE_LEARN_NIGHTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { NIGHTS_MAX_PATH = 4096, NIGHTS_MAX = 1 << 20 };

struct nights;

enum nights_mode {
    NIGHTS_READ,  /* changes no file */
    NIGHTS_WRITE, /* takes the lock (CHIMERE_EBUSY if a night runs) and repairs live/ */
    NIGHTS_RETURN /* the same, but allows damaged current artefacts: to return to an intact night */
};
/* dir NULL: "night" of the user's data folder. */
int nights_open(struct nights **out, const char *dir, enum nights_mode mode, struct err *e);
void nights_close(struct nights *n);
const char *nights_dir(const struct nights *n);

int64_t nights_current(const struct nights *n); /* 0: no promotion yet */
int64_t nights_last(const struct nights *n);    /* number of the newest record, 0: none */
/* Reads the record of a night into a new reference; CHIMERE_ENOENT: no such night. */
int nights_read(const struct nights *n, int64_t night, json_t **out, struct err *e);

/* Writes the path of an artefact by its hash, whether or not it exists; CHIMERE_EFORMAT: not a SHA-256. */
int nights_object(const struct nights *n, const char *sha256, char out[NIGHTS_MAX_PATH],
                  struct err *e);
/* Removes the objects that no record names. */
int nights_sweep(struct nights *n, struct err *e);
/* Replaces the record of an existing night. */
int nights_rewrite(struct nights *n, int64_t night, const json_t *record, struct err *e);
/* Copies a file into objects/, also over a damaged copy, and writes its hash to sha256 [65]. */
int nights_keep(struct nights *n, const char *path, char sha256[65], struct err *e);
/* Writes the path of an artefact of the current night; false: the night has no artefact of this name. */
bool nights_live(const struct nights *n, const char *name, char *out, size_t out_size);
/* Writes the record of a new night, whose key "artefacts" is {NAME: SHA256}. If `promote` is set, the night
 * becomes current. *night: its number. */
int nights_add(struct nights *n, json_t *record, bool promote, int64_t *night, struct err *e);
/* Checks that each artefact of {NAME: SHA256} exists and matches its hash. */
int nights_check(const struct nights *n, const json_t *artefacts, struct err *e);
/* Makes an earlier night current again (0: none) after checking its artefacts, and ends a trial. CHIMERE_ENOENT: no
 * such night. */
int nights_select(struct nights *n, int64_t night, struct err *e);

#endif
