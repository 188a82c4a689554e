/* models_backend.h: a backend that represents a listed model, whether it is loaded or not.
 *
 * A server's list of backends is fixed. For a model of models.h, it contains this backend, which only holds a
 * tokenizer. prepare acquires the real backend (and loads it if necessary, while the caller waits); the generation
 * holds it until it is freed. Its backend_model has no engine, because the engine could be unloaded while a caller uses
 * it. */
#ifndef CHIMERE_BACKEND_CATALOG_MODELS_BACKEND_H
#define CHIMERE_BACKEND_CATALOG_MODELS_BACKEND_H

#include "backend/catalog/models.h"

/* name: a row of r that was added with how. r is borrowed until close. */
int models_backend_new(struct backend **out, struct models *r, const char *name,
                       const struct load_params *how, struct err *e);

#endif
