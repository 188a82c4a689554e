/* catalog.h: the models that a request may name, and the backend that answers for each.
 *
 * An entry is a backend under its own name; it may have further names that come and go (an orchestrator's
 * pipelines), or stand for a model that is loaded when it is asked for (models_backend.h). Aliases map any other
 * name to one of those. The catalogue is filled before it is used; from then on any thread may read it. */
#ifndef CHIMERE_BACKEND_CATALOG_H
#define CHIMERE_BACKEND_CATALOG_H

#include "backend/models.h"

enum { CATALOG_MAX = MODELS_MAX + 16 }; /* entries */

struct catalog;

/* Names of one entry beside its backend's own. */
struct catalog_names {
    void *ud; /* borrowed until catalog_free */
    /* The backend of this name, valid as long as the entry's own; NULL: no such name at present. */
    struct backend *(*find)(void *ud, const char *name);
    /* The names at present. A nonzero result of each stops, and is returned. */
    int (*list)(void *ud, int (*each)(void *each_ud, const char *name), void *each_ud);
};

int catalog_new(struct catalog **out, struct err *e);
void catalog_free(struct catalog *c); /* closes the backends of catalog_add_model; NULL: nothing */
/* The first entry is the default. b is borrowed; names are copied, NULL: none. CHIMERE_ELIMIT: full. */
int catalog_add(struct catalog *c, struct backend *b, const struct catalog_names *names,
                struct err *e);
/* Adds a model that is loaded when it is asked for: to r, and an entry that stands for it. r is borrowed. */
int catalog_add_model(struct catalog *c, struct models *r, const char *name,
                      const struct load_params *how, struct err *e);
/* [n] "NAME" (the default model) or "NAME=MODEL"; "*" as NAME: any name. Borrowed. */
void catalog_alias(struct catalog *c, const char *const *aliases, size_t n);

size_t catalog_count(const struct catalog *c); /* entries */
struct backend *catalog_at(const struct catalog *c, size_t entry);
/* By exact name; NULL: none. entry may be NULL. */
struct backend *catalog_find(const struct catalog *c, const char *name, size_t *entry);
/* As a request names it: NULL or "" is the default, aliases count. CHIMERE_ENOENT as e says. entry may be NULL. */
struct backend *catalog_resolve(const struct catalog *c, const char *name, size_t *entry,
                                struct err *e);
/* True: name itself is an alias, or any name is one. */
bool catalog_is_alias(const struct catalog *c, const char *name);
/* All names: first those of entries, in order, then their further ones, with the entry's own backend. */
int catalog_list(const struct catalog *c,
                 int (*each)(void *ud, const char *name, const struct backend *b), void *ud);

#endif
