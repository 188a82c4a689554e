/* docs_near.c: nearest passages. The store searches them if it can (store/server/doc_near.h). Otherwise, the vectors of a
 * collection are read from the store once per version and kept in memory (engram/vec.h). */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engram/vec.h"
#include "retrieval/docs_impl.h"
#include "store/doc.h"
#include "store/server/doc_near.h"

void docs_near_fini(struct docs_near *n) {
    engram_vec_free(n->vec);
    mem_free(n->collection);
    *n = (struct docs_near){0};
}

struct loading {
    float *x;     /* owned [cap, n_dim] */
    int64_t *ids; /* owned [cap]: ids of the chunks */
    int64_t n, cap;
    int32_t n_dim;
};

static int load_one(void *ud, const struct store_chunk *c) {
    struct loading *l = ud;
    if (c->n_vec != l->n_dim) return 0; /* damaged record */
    if (l->n == l->cap) {
        int64_t cap = l->cap ? 2 * l->cap : 1024;
        size_t bytes;
        if (!size_mul((size_t)cap * (size_t)l->n_dim, sizeof *l->x, &bytes) ||
            bytes > DOCS_NEAR_MAX_BYTES)
            return CHIMERE_ELIMIT;
        float *x = mem_realloc(l->x, bytes);
        if (!x) return CHIMERE_ENOMEM;
        l->x = x;
        int64_t *ids = mem_realloc(l->ids, (size_t)cap * sizeof *ids);
        if (!ids) return CHIMERE_ENOMEM;
        l->ids = ids;
        l->cap = cap;
    }
    memcpy(l->x + l->n * l->n_dim, c->vec, (size_t)l->n_dim * sizeof *l->x);
    l->ids[l->n++] = c->id;
    return 0;
}

static int load(struct docs *d, struct docs_near *n, const char *collection, int64_t version,
                struct err *e) {
    struct loading l = {.n_dim = docs_n_vec(d)};
    docs_near_fini(n);
    if (collection && !(n->collection = mem_strdup(collection)))
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = store_doc_vectors(d->store, collection, docs_embedder(d), load_one, &l, e);
    if (rc == CHIMERE_ELIMIT)
        err_set(e, rc, "more than %d bytes of vectors in one collection", DOCS_NEAR_MAX_BYTES);
    else if (rc == CHIMERE_ENOMEM) err_set(e, rc, "out of memory");
    if (!rc && l.n) rc = engram_vec_new_with_ids(&n->vec, l.x, l.ids, l.n, l.n_dim, NULL, 0, e);
    mem_free(l.x);
    mem_free(l.ids);
    if (rc) docs_near_fini(n);
    else n->version = version;
    return rc;
}

static bool same(const char *a, const char *b) { return a && b ? !strcmp(a, b) : !a && !b; }

/* Returns the entry for a collection: its own, else an unused one, else the least recently used. */
static struct docs_near *place(struct docs *d, const char *collection) {
    struct docs_near *best = &d->near[0];
    for (int i = 0; i < DOCS_NEAR_KEPT; ++i) {
        struct docs_near *n = &d->near[i];
        if (n->version && same(n->collection, collection)) return n;
        if (!n->version && best->version) best = n;
        else if (n->version && best->version && n->used_ns < best->used_ns) best = n;
    }
    return best;
}

struct found {
    int64_t *ids;
    float *cosines;
    int32_t n;
};

static int take_found(void *ud, const struct store_chunk *c) {
    struct found *f = ud;
    f->ids[f->n] = c->id;
    f->cosines[f->n++] = (float)c->score;
    return 0;
}

int32_t docs_nearest(struct docs *d, const char *collection, const float *query, int32_t k,
                     int64_t *ids, float *cosines, struct err *e) {
    const struct store_doc_query q = {.scope = collection,
                                      .embedder = docs_embedder(d),
                                      .query = query,
                                      .n_dim = docs_n_vec(d),
                                      .k = k};
    struct found f = {.ids = ids, .cosines = cosines};
    int got = store_doc_nearest(d->store, &q, take_found, &f, e);
    if (got != CHIMERE_EUNSUPPORTED) return got ? got : f.n;
    int64_t version = store_doc_version(d->store, e);
    if (version < 0) return (int32_t)version;
    pthread_mutex_lock(&d->near_lock);
    struct docs_near *n = place(d, collection);
    int32_t found = 0;
    int rc = n->version == version && same(n->collection, collection)
                 ? 0
                 : load(d, n, collection, version, e);
    if (!rc) n->used_ns = clock_ns();
    if (!rc && n->vec) rc = engram_vec_search(n->vec, query, k, ids, cosines, e);
    while (!rc && n->vec && found < k && ids[found] >= 0) ++found;
    pthread_mutex_unlock(&d->near_lock);
    return rc ? rc : found;
}
