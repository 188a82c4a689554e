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

void engram_vec_free(struct engram_vec *v) { (void)v; }

int engram_vec_search(const struct engram_vec *v, const float *query, int32_t k, int64_t *ids,
                      float *products, struct err *e) {
    (void)v, (void)query, (void)k, (void)ids, (void)products;
    return missing(e);
}

#endif
