/* models_backend.h: a backend that stands for a listed model, loaded or not.
 *
 * A server's list of backends is fixed; what stands in it for a model of models.h holds a tokenizer and
 * nothing else. prepare acquires the real one (loading it if need be, in the caller's time), and the run
 * holds it until it is freed. Its backend_model has no engine: that would go away under whoever looks at it. */
#ifndef CHIMERE_BACKEND_MODELS_BACKEND_H
#define CHIMERE_BACKEND_MODELS_BACKEND_H

#include "backend/models.h"

/* name, of a row added with how; r: borrowed until close. */
int models_backend_new(struct backend **out, struct models *r, const char *name,
                       const struct load_params *how, struct err *e);

#endif
