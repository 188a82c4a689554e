/* vec_none.c: vec.h in a build without FAISS. */
#include "engram/vec.h"

#ifndef CHIMERE_FAISS

static int missing(struct err *e) {
    err_set(e, CHIMERE_EUNSUPPORTED, "this build has no search by vectors: FAISS was not found");
    err_hint(e, "apt-get install libfaiss-dev, then build again");
    return CHIMERE_EUNSUPPORTED;
}

bool engram_vec_is_built_in(void) { return false; }

int engram_vec_new(struct engram_vec **out, const float *x, int64_t n, int32_t n_dim,
                   struct err *e) {
    (void)x, (void)n, (void)n_dim;
    *out = 0;
    return missing(e);
}

int engram_vec_new_with_ids(struct engram_vec **out, const float *x, const int64_t *ids, int64_t n,
                            int32_t n_dim, const float *centres, int64_t n_centre, struct err *e) {
    (void)x, (void)ids, (void)n, (void)n_dim, (void)centres, (void)n_centre;
    *out = 0;
    return missing(e);
}

int engram_vec_add(struct engram_vec *v, const float *x, const int64_t *ids, int64_t n,
                   struct err *e) {
    (void)v, (void)x, (void)ids, (void)n;
    return missing(e);
}

int engram_vec_remove(struct engram_vec *v, const int64_t *ids, int64_t n, struct err *e) {
    (void)v, (void)ids, (void)n;
    return missing(e);
}

int64_t engram_vec_count(const struct engram_vec *v) {
    (void)v;
    return 0;
}

const float *engram_vec_centres(const struct engram_vec *v, int64_t *n_centre) {
    (void)v;
    *n_centre = 0;
    return 0;
}

void engram_vec_free(struct engram_vec *v) { (void)v; }

int engram_vec_search(const struct engram_vec *v, const float *query, int32_t k, int64_t *ids,
                      float *products, struct err *e) {
    (void)v, (void)query, (void)k, (void)ids, (void)products;
    return missing(e);
}

#endif
