/* models.h: models by name: listed, loaded on demand, and unloaded on request or to make room.
 *
 *    LISTED --models_load, or the first models_acquire--> LOADING --> READY --models_unload--> LISTED
 *                                                            '--> FAILED (the error is stored; may be retried)
 *
 * The server adds the models that it may serve, calls models_acquire for the backend of a request's model, and calls
 * models_release after EVENT_DONE. A backend is valid while it is held. With a budget, loading a model first closes
 * idle models, least recently used first, until the plan fits. If it still does not fit, it is refused with the
 * numbers. Any thread may call this. Loading blocks its caller; other callers that want the same model wait for it. */
#ifndef CHIMERE_BACKEND_CATALOG_MODELS_H
#define CHIMERE_BACKEND_CATALOG_MODELS_H

#include "backend/backend.h"
#include "engine/load.h"

enum { MODELS_MAX = 64, MODELS_MAX_NAME_BYTES = 128 };

enum model_state { MODEL_LISTED, MODEL_LOADING, MODEL_READY, MODEL_FAILED };
const char *models_state_name(enum model_state s); /* "listed", "loading", "ready", "failed" */

struct models;

/* budget_bytes 0: the memory that is free when a model is loaded. most: models loaded at the same time; 0: no limit. */
int models_new(struct models **out, uint64_t budget_bytes, int most, struct err *e);
void models_free(struct models *r); /* no backend may be held */
/* Folder of n-gram tables, for models that are loaded later; borrowed. NULL: in the user's data directory. */
void models_engram_dir(struct models *r, const char *dir);

/* name: letters, digits and -._:/@+. `how` is copied, including its path and adapters. CHIMERE_EINVAL: the name is
 * taken or malformed. The first model added is the default. */
int models_add(struct models *r, const char *name, const struct load_params *how, struct err *e);
/* Adds every *.gguf in dir and its subfolders. The name is the path within dir without ".gguf"; a split model is added
 * once. Symbolic links that leave dir are skipped. */
int models_add_dir(struct models *r, const char *dir, const struct load_params *how, struct err *e);

/* name NULL or "": the default. CHIMERE_ENOENT: no such model; e lists the names. */
int models_acquire(struct models *r, const char *name, struct backend **out, struct err *e);
void models_release(struct models *r, struct backend *b);

int models_load(struct models *r, const char *name, struct err *e);
int models_unload(struct models *r, const char *name,
                  struct err *e); /* CHIMERE_EBUSY: a backend is held */

struct model_row {
    char name[MODELS_MAX_NAME_BYTES];
    enum model_state state;
    int n_held;
    int64_t used_ns;         /* clock_ns of the last acquire; 0: never acquired */
    struct memory_plan plan; /* valid if READY */
    struct err err;          /* valid if FAILED */
};
/* Fills rows[0..min(n, max)) in the order of addition; returns n. */
size_t models_list(struct models *r, struct model_row *rows, size_t max);

#endif
