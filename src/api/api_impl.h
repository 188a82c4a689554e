/* api_impl.h: what stands behind chimere.h's names. */
#ifndef CHIMERE_API_API_IMPL_H
#define CHIMERE_API_API_IMPL_H

#include "chimere.h"
#include "backend/backend.h"
#include "engine/load.h"

struct chimere_model {
    struct loaded loaded;    /* owned */
    struct backend *backend; /* owned */
};

/* struct chimere_error is struct err by another name: e may stand for both. */
static inline struct err *api_err(struct chimere_error *e) {
    _Static_assert(sizeof(struct err) == sizeof *e, "one layout");
    return (struct err *)e;
}

/* Copies a caller's options over our defaults: a program compiled with an older header has a shorter
 * struct, and what it does not know stays as it was. false: never initialised. */
bool api_take_options(void *own, size_t own_size, const void *theirs);

#endif
