#include "backend/catalog/catalog.h"

#include <string.h>

#include "backend/catalog/models_backend.h"
#include "base/mem.h"

struct entry {
    struct backend *backend;
    struct catalog_names names; /* find NULL: no additional names */
    bool owned;
};

struct catalog {
    struct entry entries[CATALOG_MAX]; /* [n] */
    size_t n;
    const char *const *aliases; /* borrowed [n_alias] */
    size_t n_alias;
    const char *given; /* borrowed; NULL: none */
};

int catalog_new(struct catalog **out, struct err *e) {
    *out = mem_zalloc(sizeof **out);
    return *out ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

void catalog_free(struct catalog *c) {
    if (!c) return;
    for (size_t i = 0; i < c->n; i++)
        if (c->entries[i].owned) c->entries[i].backend->ops->close(c->entries[i].backend);
    mem_free(c);
}

int catalog_add(struct catalog *c, struct backend *b, const struct catalog_names *names,
                struct err *e) {
    if (c->n == CATALOG_MAX)
        return err_set(e, CHIMERE_ELIMIT, "models: expected at most %d", CATALOG_MAX);
    c->entries[c->n++] =
        (struct entry){.backend = b, .names = names ? *names : (struct catalog_names){0}};
    return 0;
}

int catalog_add_model(struct catalog *c, struct models *r, const char *name,
                      const struct load_params *how, struct err *e) {
    struct backend *b = NULL;
    int rc = models_add(r, name, how, e);
    if (!rc) rc = models_backend_new(&b, r, name, how, e);
    if (!rc && (rc = catalog_add(c, b, NULL, e))) b->ops->close(b);
    if (!rc) c->entries[c->n - 1].owned = true;
    return rc;
}

void catalog_alias(struct catalog *c, const char *const *aliases, size_t n, const char *given) {
    c->aliases = aliases;
    c->n_alias = n;
    c->given = given;
}

size_t catalog_count(const struct catalog *c) { return c->n; }

struct backend *catalog_at(const struct catalog *c, size_t entry) {
    return c->entries[entry].backend;
}

struct backend *catalog_find(const struct catalog *c, const char *name, size_t *entry) {
    struct backend *b = NULL;
    size_t i = 0;
    while (i < c->n && strcmp(c->entries[i].backend->name, name) != 0) i++;
    if (i < c->n) b = c->entries[i].backend;
    for (size_t k = 0; k < c->n && !b; k++) {
        const struct catalog_names *names = &c->entries[k].names;
        if (names->find && (b = names->find(names->ud, name))) i = k;
    }
    if (b && entry) *entry = i;
    return b;
}

struct backend *catalog_resolve(const struct catalog *c, const char *name, size_t *entry,
                                struct err *e) {
    struct backend *b;
    if (entry) *entry = 0;
    if (!name || !name[0]) return c->entries[0].backend;
    if ((b = catalog_find(c, name, entry))) return b;
    for (size_t i = 0; i < c->n_alias; i++) {
        const char *alias = c->aliases[i], *eq = strchr(alias, '=');
        size_t n = eq ? (size_t)(eq - alias) : strlen(alias);
        bool any = n == 1 && alias[0] == '*';
        if (!any && (strlen(name) != n || memcmp(name, alias, n) != 0)) continue;
        if (!eq) return c->entries[0].backend;
        if ((b = catalog_find(c, eq + 1, entry))) return b;
    }
    if (c->given && strcmp(c->given, name) == 0) return c->entries[0].backend;
    err_set(e, CHIMERE_ENOENT, "model: there is no '%.80s' here", name);
    err_hint(e, "/v1/models lists all, such as %.40s; serve --alias '*' accepts any name",
             c->entries[0].backend->name);
    return NULL;
}

bool catalog_is_alias(const struct catalog *c, const char *name) {
    for (size_t i = 0; i < c->n_alias; i++)
        if (!strcmp(c->aliases[i], "*") || !strcmp(c->aliases[i], name)) return true;
    return false;
}

struct listing {
    const struct backend *backend;
    int (*each)(void *ud, const char *name, const struct backend *b);
    void *ud;
};

static int list_further(void *ud, const char *name) {
    const struct listing *l = ud;
    return strcmp(name, l->backend->name) ? l->each(l->ud, name, l->backend) : 0;
}

int catalog_list(const struct catalog *c,
                 int (*each)(void *ud, const char *name, const struct backend *b), void *ud) {
    int rc = 0;
    for (size_t i = 0; i < c->n && !rc; i++)
        rc = each(ud, c->entries[i].backend->name, c->entries[i].backend);
    for (size_t i = 0; i < c->n && !rc; i++) {
        const struct entry *x = &c->entries[i];
        struct listing l = {x->backend, each, ud};
        if (x->names.list) rc = x->names.list(x->names.ud, list_further, &l);
    }
    return rc;
}
