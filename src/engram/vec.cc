// vec.cc: FAISS behind vec.h. No exception leaves this file.
#include <cmath>
#include <exception>
#include <memory>
#include <new>

#include <faiss/Clustering.h>
#include <faiss/IndexFlat.h>
#include <faiss/IndexIVFFlat.h>

extern "C" {
#include "engram/vec.h"
}

struct engram_vec {
    std::unique_ptr<faiss::Index> centres; // of cells; must outlive index
    std::unique_ptr<faiss::Index> index;
};

bool engram_vec_is_built_in(void) { return true; }

// A thirty-second part of the cells is looked into: recall stays above nine in ten on embeddings of text.
static std::unique_ptr<faiss::Index> make_cells(engram_vec *v, const float *x, int64_t n,
                                                int32_t n_dim) {
    int64_t n_cell = (int64_t)(2 * std::sqrt((double)n));
    v->centres = std::make_unique<faiss::IndexFlatIP>(n_dim);
    auto ivf = std::make_unique<faiss::IndexIVFFlat>(v->centres.get(), n_dim, (size_t)n_cell,
                                                     faiss::METRIC_INNER_PRODUCT);
    ivf->cp.niter = 6;
    ivf->cp.max_points_per_centroid = 30;
    ivf->cp.min_points_per_centroid = 1;
    ivf->cp.spherical = true;
    ivf->nprobe = (size_t)(n_cell / 32 > 1 ? n_cell / 32 : 1);
    ivf->train(n, x);
    ivf->add(n, x);
    return ivf;
}

int engram_vec_new(struct engram_vec **out, const float *x, int64_t n, int32_t n_dim,
                   struct err *e) {
    *out = nullptr;
    if (n_dim < 1 || n_dim > ENGRAM_VEC_MAX_DIM || n < 0)
        return err_set(e, CHIMERE_EINVAL, "vectors: expected 1 to %d values, got %d",
                       (int)ENGRAM_VEC_MAX_DIM, n_dim);
    try {
        auto v = std::make_unique<engram_vec>();
        if (n > ENGRAM_VEC_EXACT) {
            v->index = make_cells(v.get(), x, n, n_dim);
        } else {
            v->index = std::make_unique<faiss::IndexFlatIP>(n_dim);
            v->index->add(n, x);
        }
        *out = v.release();
        return 0;
    } catch (const std::bad_alloc &) {
        return err_set(e, CHIMERE_ENOMEM, "vectors: out of memory");
    } catch (const std::exception &x_what) {
        return err_set(e, CHIMERE_EINTERNAL, "vectors: %s", x_what.what());
    }
}

void engram_vec_free(struct engram_vec *v) { delete v; }

int engram_vec_search(const struct engram_vec *v, const float *query, int32_t k, int64_t *ids,
                      float *products, struct err *e) {
    if (k < 1) return err_set(e, CHIMERE_EINVAL, "vectors: expected at least one neighbour");
    try {
        v->index->search(1, query, k, products, ids);
        return 0;
    } catch (const std::exception &x_what) {
        return err_set(e, CHIMERE_EINTERNAL, "vectors: %s", x_what.what());
    }
}
