/* api_impl.h: the implementation of the types in chimere.h. */
#ifndef CHIMERE_API_API_IMPL_H
#define CHIMERE_API_API_IMPL_H

#include "chimere.h"
#include "backend/backend.h"
#include "engine/load.h"

struct chimere_model {
    struct loaded loaded;    /* owned */
    struct backend *backend; /* owned */
};

/* struct chimere_error has the same layout as struct err, so that e may point to either. */
static inline struct err *api_err(struct chimere_error *e) {
    _Static_assert(sizeof(struct err) == sizeof *e, "one layout");
    return (struct err *)e;
}

/* Copies a caller's options over our defaults. A program that was compiled with an older header has a shorter struct;
 * options that it does not know keep their defaults. Returns false if the struct was never initialised. */
bool api_take_options(void *own, size_t own_size, const void *theirs);

#endif
