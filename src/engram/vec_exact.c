/* vec_exact.c: vec.h in a build without FAISS: every search compares all vectors. */
#include "engram/vec.h"

#ifndef CHIMERE_FAISS

#include <string.h>

#include "base/mem.h"

struct engram_vec {
    float *x;     /* owned [cap, n_dim] */
    int64_t *ids; /* owned [cap] */
    int64_t n, cap;
    int32_t n_dim;
};

bool engram_vec_has_faiss(void) { return false; }

static int no_memory(struct err *e) { return err_set(e, CHIMERE_ENOMEM, "vectors: out of memory"); }

/* Makes room for n more. */
static int grow(struct engram_vec *v, int64_t n, struct err *e) {
    int64_t cap = v->cap ? v->cap : 64;
    size_t bytes;
    while (cap - v->n < n) {
        if (cap > INT64_MAX / 2) return no_memory(e);
        cap *= 2;
    }
    if (cap == v->cap) return 0;
    if (!size_mul((size_t)cap * (size_t)v->n_dim, sizeof *v->x, &bytes)) return no_memory(e);
    float *x = mem_realloc(v->x, bytes);
    if (!x) return no_memory(e);
    v->x = x;
    int64_t *ids = mem_realloc(v->ids, (size_t)cap * sizeof *ids);
    if (!ids) return no_memory(e);
    v->ids = ids;
    v->cap = cap;
    return 0;
}

/* ids: NULL: row numbers. */
static int append(struct engram_vec *v, const float *x, const int64_t *ids, int64_t n,
                  struct err *e) {
    int rc = n > 0 ? grow(v, n, e) : 0;
    if (rc || n <= 0) return rc;
    memcpy(v->x + v->n * v->n_dim, x, (size_t)n * (size_t)v->n_dim * sizeof *x);
    for (int64_t i = 0; i < n; i++) v->ids[v->n + i] = ids ? ids[i] : v->n + i;
    v->n += n;
    return 0;
}

static int make(struct engram_vec **out, const float *x, const int64_t *ids, int64_t n,
                int32_t n_dim, struct err *e) {
    *out = NULL;
    if (n_dim < 1 || n_dim > ENGRAM_VEC_MAX_DIM || n < 0)
        return err_set(e, CHIMERE_EINVAL, "vectors: expected 1 to %d values, got %d",
                       (int)ENGRAM_VEC_MAX_DIM, n_dim);
    struct engram_vec *v = mem_zalloc(sizeof *v);
    if (!v) return no_memory(e);
    v->n_dim = n_dim;
    int rc = append(v, x, ids, n, e);
    if (rc) engram_vec_free(v);
    else *out = v;
    return rc;
}

int engram_vec_new(struct engram_vec **out, const float *x, int64_t n, int32_t n_dim,
                   struct err *e) {
    return make(out, x, NULL, n, n_dim, e);
}

int engram_vec_new_with_ids(struct engram_vec **out, const float *x, const int64_t *ids, int64_t n,
                            int32_t n_dim, const float *centres, int64_t n_centre, struct err *e) {
    (void)centres, (void)n_centre;
    return make(out, x, ids, n, n_dim, e);
}

void engram_vec_free(struct engram_vec *v) {
    if (!v) return;
    mem_free(v->x);
    mem_free(v->ids);
    mem_free(v);
}

int engram_vec_add(struct engram_vec *v, const float *x, const int64_t *ids, int64_t n,
                   struct err *e) {
    return append(v, x, ids, n, e);
}

static bool is_in(const int64_t *ids, int64_t n, int64_t id) {
    for (int64_t i = 0; i < n; i++)
        if (ids[i] == id) return true;
    return false;
}

int engram_vec_remove(struct engram_vec *v, const int64_t *ids, int64_t n, struct err *e) {
    (void)e;
    int64_t n_kept = 0;
    for (int64_t i = 0; i < v->n; i++) {
        if (is_in(ids, n, v->ids[i])) continue;
        if (n_kept < i) {
            memcpy(v->x + n_kept * v->n_dim, v->x + i * v->n_dim, (size_t)v->n_dim * sizeof *v->x);
            v->ids[n_kept] = v->ids[i];
        }
        n_kept++;
    }
    v->n = n_kept;
    return 0;
}

int64_t engram_vec_count(const struct engram_vec *v) { return v->n; }

const float *engram_vec_centres(const struct engram_vec *v, int64_t *n_centre) {
    (void)v;
    *n_centre = 0;
    return NULL;
}

int engram_vec_search(const struct engram_vec *v, const float *query, int32_t k, int64_t *ids,
                      float *products, struct err *e) {
    int32_t found = 0;
    if (k < 1) return err_set(e, CHIMERE_EINVAL, "vectors: expected at least one neighbour");
    for (int64_t i = 0; i < v->n; i++) {
        const float *x = v->x + i * v->n_dim;
        float s = 0;
        for (int32_t j = 0; j < v->n_dim; j++) s += x[j] * query[j];
        if (found == k && s <= products[k - 1]) continue;
        int32_t at = found < k ? found++ : k - 1;
        for (; at && products[at - 1] < s; at--) {
            products[at] = products[at - 1];
            ids[at] = ids[at - 1];
        }
        products[at] = s;
        ids[at] = v->ids[i];
    }
    for (; found < k; found++) ids[found] = -1;
    return 0;
}

#endif
