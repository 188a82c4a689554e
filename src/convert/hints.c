/* hints.c: see hints.h. */
#include "convert/hints.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "format/quant.h"
#include "format/quant_refine.h"

enum { BLOCK = QUANT_REFINE_BLOCK };

/* Correlations are known up to sampling noise and rounding to half precision. Keeping only this fraction of them,
 * no direction seems to cost nothing. */
static const float KEPT = 0.99f;

struct hints {
    const struct gguf_tensor *t;        /* view */
    float *weights;                     /* owned [n_matrix, ne0] */
    const struct gguf_tensor *corr;     /* view of the file; NULL: none */
    const unsigned char *sums, *counts; /* views of the file: f32 [n_matrix, ne0] and [n_matrix] */
    uint64_t n_matrix;
    float *pool; /* owned [ne0, BLOCK]: mean products over all experts; NULL for a single matrix */
};

static float float_at(const unsigned char *p, uint64_t i) {
    float f;
    memcpy(&f, p + i * sizeof f, sizeof f);
    return f;
}

static const struct gguf_tensor *find(const struct gguf *g, const char *tensor,
                                      const char *suffix) {
    char name[GGUF_MAX_NAME + 16];
    snprintf(name, sizeof name, "%s%s", tensor, suffix);
    return gguf_find_tensor(g, name);
}

/* Adds factor times the sums of products of one matrix to out. */
static int add_products(const struct hints *h, uint64_t matrix, double factor, float *out,
                        struct err *e) {
    uint64_t n = h->t->ne[0];
    const unsigned char *sums = h->sums + matrix * n * sizeof(float);
    const unsigned char *corr = h->corr->data + matrix * n * BLOCK * sizeof(uint16_t);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t first = i / BLOCK * BLOCK, n_own = n - first < BLOCK ? n - first : BLOCK;
        double row = factor * sqrt((double)float_at(sums, i));
        for (uint64_t j = 0; j < n_own; j++) {
            uint16_t half;
            memcpy(&half, corr + (i * BLOCK + j) * sizeof half, sizeof half);
            float r = i == first + j ? 1 : KEPT * quant_f16_to_f32(half);
            if (!(fabsf(r) <= 1.01f))
                return err_set(e, CHIMERE_ENUMERIC,
                               "importance matrix: entry %s.in_corr, input %" PRIu64
                               ": expected a correlation from -1 to 1, got %g",
                               h->t->name, i, (double)r);
            out[i * BLOCK + j] +=
                (float)(row * (double)r * sqrt((double)float_at(sums, first + j)));
        }
    }
    return 0;
}

static int make_pool(struct hints *h, struct err *e) {
    double total = 0;
    for (uint64_t k = 0; k < h->n_matrix; k++) total += (double)float_at(h->counts, k);
    h->pool = mem_alloc_array((size_t)h->t->ne[0], BLOCK * sizeof *h->pool);
    int rc = h->pool ? 0 : err_set(e, CHIMERE_ENOMEM, "importance matrix: out of memory");
    for (uint64_t k = 0; k < h->n_matrix && !rc && total > 0; k++)
        rc = add_products(h, k, 1 / total, h->pool, e);
    return rc;
}

/* The weights were read before, so sums and counts are finite and not negative. */
static int find_correlation(struct hints *h, const struct imatrix *m, struct err *e) {
    const struct gguf *g = imatrix_gguf(m);
    const struct gguf_tensor *corr = g ? find(g, h->t->name, ".in_corr") : NULL;
    if (!corr) return 0;
    const struct gguf_tensor *sums = find(g, h->t->name, ".in_sum2");
    const struct gguf_tensor *counts = find(g, h->t->name, ".counts");
    if (corr->type != QUANT_F16 || corr->ne[0] != BLOCK || corr->ne[1] != h->t->ne[0] ||
        corr->ne[2] * corr->ne[3] != h->n_matrix || sums->n_elements != h->n_matrix * h->t->ne[0] ||
        counts->n_elements != h->n_matrix)
        return err_set(e, CHIMERE_EMISMATCH,
                       "importance matrix: entry %s.in_corr: expected f16 [%d, %" PRIu64
                       ", %" PRIu64 "] with sums and counts of each matrix",
                       h->t->name, BLOCK, h->t->ne[0], h->n_matrix);
    h->corr = corr;
    h->sums = sums->data;
    h->counts = counts->data;
    return h->n_matrix > 1 ? make_pool(h, e) : 0;
}

int hints_open(struct hints **out, const struct imatrix *m, const struct gguf_tensor *t,
               struct err *e) {
    uint64_t n_matrix = t->ne[2] * t->ne[3];
    *out = NULL;
    int rc = m ? imatrix_check(m, t->name, t->ne[0], n_matrix, e) : CHIMERE_ENOENT;
    if (rc) return rc == CHIMERE_ENOENT ? 0 : rc;
    struct hints *h = mem_zalloc(sizeof *h);
    if (!h) return err_set(e, CHIMERE_ENOMEM, "tensor %s: out of memory", t->name);
    h->t = t;
    h->n_matrix = n_matrix;
    h->weights = mem_alloc_array((size_t)n_matrix, (size_t)t->ne[0] * sizeof *h->weights);
    rc = h->weights ? imatrix_weights(m, t->name, t->ne[0], n_matrix, h->weights, e)
                    : err_set(e, CHIMERE_ENOMEM, "tensor %s: out of memory", t->name);
    if (!rc) rc = find_correlation(h, m, e);
    if (rc) hints_close(h);
    else *out = h;
    return rc;
}

void hints_close(struct hints *h) {
    if (!h) return;
    mem_free(h->weights);
    mem_free(h->pool);
    mem_free(h);
}

const float *hints_weights(const struct hints *h, uint64_t matrix) {
    return h ? h->weights + matrix * h->t->ne[0] : NULL;
}

bool hints_are_correlated(const struct imatrix *m, const struct gguf_tensor *t) {
    const struct gguf *g = imatrix_gguf(m);
    return g && find(g, t->name, ".in_corr");
}

bool hints_has_correlation(const struct hints *h) { return h && h->corr; }

int hints_correlation(const struct hints *h, uint64_t matrix, float *out, struct err *e) {
    size_t n = (size_t)h->t->ne[0] * BLOCK;
    double count = (double)float_at(h->counts, matrix), prior = h->pool ? IMATRIX_PRIOR : 0;
    double all = count + prior > 0 ? count + prior : 1;
    for (size_t i = 0; i < n; i++) out[i] = h->pool ? (float)(prior / all) * h->pool[i] : 0;
    return add_products(h, matrix, 1 / all, out, e);
}
