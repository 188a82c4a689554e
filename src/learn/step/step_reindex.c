/* step_reindex.c: reads changed and new documents and forgets deleted ones, collection after collection. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "learn/step/night_step.h"
#include "retrieval/docs_refresh.h"
#include "store/doc.h"
#include "store/doc_scope.h"

enum { MAX_COLLECTIONS = 256 };

struct collections {
    char *v[MAX_COLLECTIONS]; /* owned [n] */
    size_t n;
};

static int add_collection(void *ud, const struct store_doc *d) {
    struct collections *c = ud;
    if (store_doc_is_private(d->collection) && *d->path != '/') return 0; /* was uploaded */
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->v[i], d->collection)) return 0;
    if (c->n == MAX_COLLECTIONS) return CHIMERE_ELIMIT;
    c->v[c->n] = mem_strdup(d->collection);
    return c->v[c->n] ? (c->n++, 0) : CHIMERE_ENOMEM;
}

static int refresh_all(struct night *x, struct docs *docs, const struct collections *c,
                       struct docs_report *all, struct err *e) {
    int rc = 0;
    for (size_t i = 0; !rc && i < c->n; i++) {
        struct docs_report r = {0};
        jobs_progress(x->job, (int64_t)i, (int64_t)c->n, store_doc_shown(c->v[i]));
        rc = docs_refresh(docs, c->v[i], jobs_cancel_flag(x->job), &r, e);
        all->n_seen += r.n_seen;
        all->n_read += r.n_read;
        all->n_new += r.n_new;
        all->n_removed += r.n_removed;
        all->n_skipped += r.n_skipped;
        all->n_failed += r.n_failed;
    }
    return rc;
}

static int propose(struct night *x, const char *path, struct night_gain *gain, char why[256],
                   struct err *e) {
    struct docs *own = NULL, *docs = x->host->docs;
    struct docs_report all = {0};
    struct collections c = {.n = 0};
    (void)path, (void)gain;
    int rc = docs ? 0 : docs_open(&own, x->host->store, NULL, e);
    if (own) docs = own;
    if (!rc) rc = store_doc_list(x->host->store, NULL, add_collection, &c, e);
    if (rc == CHIMERE_ENOMEM) err_set(e, rc, "out of memory");
    if (rc == CHIMERE_ELIMIT) err_set(e, rc, "reindex: more than %d collections", MAX_COLLECTIONS);
    if (!rc) rc = refresh_all(x, docs, &c, &all, e);
    if (!rc)
        snprintf(why, 256,
                 "%zu collections: %d files looked at, %d read again, %d new, %d forgotten, %d "
                 "left as they are, %d failed",
                 c.n, all.n_seen, all.n_read - all.n_new, all.n_new, all.n_removed, all.n_skipped,
                 all.n_failed);
    for (size_t i = 0; i < c.n; i++) mem_free(c.v[i]);
    docs_close(own);
    return rc;
}

const struct night_step night_step_reindex = {
    .name = "reindex",
    .about = "changed and new documents are read, deleted ones forgotten",
    .time = "6h",
    .is_upkeep = true,
    .propose = propose};
