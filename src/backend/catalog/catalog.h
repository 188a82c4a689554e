/* catalog.h: the models that a request may name, and the backend of each.
 *
 * An entry is a backend with its own name. It may have additional names that change over time (an orchestrator's
 * pipelines). It may also represent a model that is loaded on demand (models_backend.h). Aliases map any other name to
 * one of these. The catalogue is filled before it is used; from then on any thread may read it. */
#ifndef CHIMERE_BACKEND_CATALOG_CATALOG_H
#define CHIMERE_BACKEND_CATALOG_CATALOG_H

#include "backend/catalog/models.h"

enum { CATALOG_MAX = MODELS_MAX + 16 }; /* entries */

struct catalog;

/* Additional names of one entry. */
struct catalog_names {
    void *ud; /* borrowed until catalog_free */
    /* Returns the backend of this name, valid as long as the entry's; NULL: there is currently no such name. */
    struct backend *(*find)(void *ud, const char *name);
    /* Calls `each` for all current names. A nonzero result of `each` stops the loop and is returned. */
    int (*list)(void *ud, int (*each)(void *each_ud, const char *name), void *each_ud);
};

int catalog_new(struct catalog **out, struct err *e);
void catalog_free(struct catalog *c); /* closes the backends of catalog_add_model; c may be NULL */
/* The first entry is the default. b is borrowed; names are copied, NULL: no additional names. CHIMERE_ELIMIT: full. */
int catalog_add(struct catalog *c, struct backend *b, const struct catalog_names *names,
                struct err *e);
/* Adds a model that is loaded on demand: to r, and as an entry here. r is borrowed. */
int catalog_add_model(struct catalog *c, struct models *r, const char *name,
                      const struct load_params *how, struct err *e);
/* [n] "NAME" (an alias of the default model) or "NAME=MODEL"; NAME "*" matches any name. given: by what the
 * user chose the default model, which names it too; may be NULL. Borrowed. */
void catalog_alias(struct catalog *c, const char *const *aliases, size_t n, const char *given);

size_t catalog_count(const struct catalog *c); /* entries */
struct backend *catalog_at(const struct catalog *c, size_t entry);
/* Finds an exact name; NULL: none. entry may be NULL. */
struct backend *catalog_find(const struct catalog *c, const char *name, size_t *entry);
/* Finds a name from a request: NULL or "" is the default, and aliases apply. CHIMERE_ENOENT: no such name. entry
 * may be NULL. */
struct backend *catalog_resolve(const struct catalog *c, const char *name, size_t *entry,
                                struct err *e);
/* Returns true if the name is an alias itself, or an alias "*" exists. */
bool catalog_is_alias(const struct catalog *c, const char *name);
/* Lists all names: first the entries, in order, then their additional names with the entry's backend. */
int catalog_list(const struct catalog *c,
                 int (*each)(void *ud, const char *name, const struct backend *b), void *ud);

#endif
