// vec.cc: implements vec.h with FAISS. No exception leaves this file.
#include <cmath>
#include <exception>
#include <memory>
#include <new>
#include <vector>

#include <faiss/Clustering.h>
#include <faiss/IndexFlat.h>
#include <faiss/IndexIDMap.h>
#include <faiss/IndexIVFFlat.h>

extern "C" {
#include "engram/vec.h"
}

struct engram_vec {
    std::unique_ptr<faiss::IndexFlatIP>
        flat; // centres of cells, or the vectors; must outlive index
    std::unique_ptr<faiss::Index> index;
    bool has_cells;
};

bool engram_vec_has_faiss(void) { return true; }

// Runs a call of FAISS and converts an exception to an error.
template <typename F> static int guarded(struct err *e, F call) {
    try {
        call();
        return 0;
    } catch (const std::bad_alloc &) {
        return err_set(e, CHIMERE_ENOMEM, "vectors: out of memory");
    } catch (const std::exception &x) {
        return err_set(e, CHIMERE_EINTERNAL, "vectors: %s", x.what());
    }
}

// A search reads one cell in 32: on embeddings of text, recall stays above 90 %.
static void make_cells(engram_vec *v, const float *x, int64_t n, int32_t n_dim,
                       const float *centres, int64_t n_centre) {
    int64_t n_cell = centres ? n_centre : (int64_t)(2 * std::sqrt((double)n));
    auto ivf = std::make_unique<faiss::IndexIVFFlat>(v->flat.get(), n_dim, (size_t)n_cell,
                                                     faiss::METRIC_INNER_PRODUCT);
    if (centres) v->flat->add(n_centre, centres); // FAISS then skips the training
    ivf->cp.niter = 6;
    ivf->cp.max_points_per_centroid = 30;
    ivf->cp.min_points_per_centroid = 1;
    ivf->cp.spherical = true;
    ivf->nprobe = (size_t)(n_cell / 32 > 1 ? n_cell / 32 : 1);
    ivf->train(n, x);
    v->index = std::move(ivf);
    v->has_cells = true;
}

int engram_vec_new_with_ids(struct engram_vec **out, const float *x, const int64_t *ids, int64_t n,
                            int32_t n_dim, const float *centres, int64_t n_centre, struct err *e) {
    *out = nullptr;
    if (n_dim < 1 || n_dim > ENGRAM_VEC_MAX_DIM || n < 0)
        return err_set(e, CHIMERE_EINVAL, "vectors: expected 1 to %d values, got %d",
                       (int)ENGRAM_VEC_MAX_DIM, n_dim);
    return guarded(e, [&] {
        auto v = std::make_unique<engram_vec>();
        v->flat = std::make_unique<faiss::IndexFlatIP>(n_dim);
        if (n > ENGRAM_VEC_EXACT)
            make_cells(v.get(), x, n, n_dim, n_centre > 0 ? centres : nullptr, n_centre);
        else v->index = std::make_unique<faiss::IndexIDMap>(v->flat.get());
        if (n) v->index->add_with_ids(n, x, ids);
        *out = v.release();
    });
}

int engram_vec_new(struct engram_vec **out, const float *x, int64_t n, int32_t n_dim,
                   struct err *e) {
    *out = nullptr;
    std::vector<int64_t> rows;
    int rc = guarded(e, [&] {
        rows.resize((size_t)(n > 0 ? n : 0));
        for (int64_t i = 0; i < n; i++) rows[(size_t)i] = i;
    });
    return rc ? rc : engram_vec_new_with_ids(out, x, rows.data(), n, n_dim, nullptr, 0, e);
}

int engram_vec_add(struct engram_vec *v, const float *x, const int64_t *ids, int64_t n,
                   struct err *e) {
    return guarded(e, [&] { v->index->add_with_ids(n, x, ids); });
}

int engram_vec_remove(struct engram_vec *v, const int64_t *ids, int64_t n, struct err *e) {
    return guarded(e, [&] {
        faiss::IDSelectorBatch chosen((size_t)n, ids);
        v->index->remove_ids(chosen);
    });
}

int64_t engram_vec_count(const struct engram_vec *v) { return v->index->ntotal; }

const float *engram_vec_centres(const struct engram_vec *v, int64_t *n_centre) {
    *n_centre = v->has_cells ? v->flat->ntotal : 0;
    return v->has_cells ? v->flat->get_xb() : nullptr;
}

void engram_vec_free(struct engram_vec *v) { delete v; }

int engram_vec_search(const struct engram_vec *v, const float *query, int32_t k, int64_t *ids,
                      float *products, struct err *e) {
    if (k < 1) return err_set(e, CHIMERE_EINVAL, "vectors: expected at least one neighbour");
    return guarded(e, [&] { v->index->search(1, query, k, products, ids); });
}
