/* models.h: models by name: listed, loaded when asked for, unloaded when room is needed or somebody says so.
 *
 *   LISTED --models_load, or the first models_acquire--> LOADING --> READY --models_unload--> LISTED
 *                                                           '--> FAILED (why is kept; may be tried again)
 *
 * For the server: add what may be served, take the backend of a request's model with models_acquire, and
 * give it back with models_release behind EVENT_DONE. A backend stays valid while it is held. With a budget,
 * loading one more model closes idle ones, least recently used first, until the plan fits; what still does
 * not fit is refused with the numbers. Any thread; loading blocks its caller, and others who want the same
 * model wait for it. */
#ifndef CHIMERE_BACKEND_MODELS_H
#define CHIMERE_BACKEND_MODELS_H

#include "backend/backend.h"
#include "engine/load.h"

enum { MODELS_MAX = 64, MODELS_MAX_NAME_BYTES = 128 };

enum model_state { MODEL_LISTED, MODEL_LOADING, MODEL_READY, MODEL_FAILED };
const char *models_state_name(enum model_state s); /* "listed", "loading", "ready", "failed" */

struct models;

/* budget_bytes 0: what the machine has free at each loading. most: loaded at once; 0: no limit. */
int models_new(struct models **out, uint64_t budget_bytes, int most, struct err *e);
void models_free(struct models *r); /* nobody may hold a backend */
/* Folder of n-gram tables, for models that are loaded later; borrowed. NULL: the user's own. */
void models_engram_dir(struct models *r, const char *dir);

/* name: letters, digits and -._:/@+; how: copied, its path and adapters too. CHIMERE_EINVAL: the name is
 * taken or malformed. The first added is the default. */
int models_add(struct models *r, const char *name, const struct load_params *how, struct err *e);
/* Every *.gguf within dir becomes listed under its path less ".gguf", a split one once; links that lead
 * outside are passed over. */
int models_add_dir(struct models *r, const char *dir, const struct load_params *how, struct err *e);

/* name NULL or "": the default. CHIMERE_ENOENT: no such model; the text names those there are. */
int models_acquire(struct models *r, const char *name, struct backend **out, struct err *e);
void models_release(struct models *r, struct backend *b);

int models_load(struct models *r, const char *name, struct err *e);
int models_unload(struct models *r, const char *name,
                  struct err *e); /* CHIMERE_EBUSY: it is held */

struct model_row {
    char name[MODELS_MAX_NAME_BYTES];
    enum model_state state;
    int n_held;
    int64_t used_ns;         /* clock_ns of the last acquire; 0: never */
    struct memory_plan plan; /* READY */
    struct err err;          /* FAILED */
};
/* Fills rows[0..min(n, max)) in order of addition; returns n. */
size_t models_list(struct models *r, struct model_row *rows, size_t max);

#endif
