/* library.h: a store and the documents in it, in the test's own folder (scratch.h). */
#ifndef CHIMERE_TEST_LIBRARY_H
#define CHIMERE_TEST_LIBRARY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "retrieval/docs.h"
#include "store/store.h"

#include "scratch.h"

struct library {
    struct store *store;
    struct docs *docs;
};

/* db: the file's name without its end; models may be NULL. */
static inline void library_open(struct library *l, const char *db,
                                const struct docs_models *models) {
    char path[160];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s.db", scratch, db);
    if (store_open(&l->store, path, &e) || docs_open(&l->docs, l->store, models, &e))
        fail_msg("%s", e.text);
}

static inline struct docs_report library_index(struct library *l, const char *folder,
                                               const char *collection) {
    char path[160];
    struct docs_report r;
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", scratch, folder);
    if (docs_index(l->docs, path, collection, &r, &e)) fail_msg("%s", e.text);
    return r;
}

static inline void library_close(struct library *l) {
    docs_close(l->docs);
    store_close(l->store);
}

#endif
