/* ramp_error.c: see ramp_error.h. */
#include "ramp/ramp_error.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "format/quant.h"

enum {
    MIN_ROWS = 8,
    SAMPLE_ALL = 8 << 20,  /* weights of all tensors, per type: a minute on two cores */
    SAMPLE_MOST = 1 << 16, /* of one tensor: the error's own error is then 1 % */
};

struct job {
    const struct ramp_gene *gene;
    const float *weights;   /* borrowed: [n_matrix, ne0], NULL: ones */
    uint64_t n_row, n_take; /* of the tensor; sampled */
    float *scratch;         /* borrowed: [n_thread, 2 ne0] */
    unsigned char *bytes;   /* borrowed: [n_thread, room] */
    size_t room;
    double *
        sums; /* borrowed: [n_take, RAMP_MAX_FORMS + 1]: errors, then energy; summed in order later */
    _Atomic uint64_t next;
    _Atomic uint64_t bad_row;
    _Atomic bool out_of_memory;
};

static uint64_t row_at(const struct job *j, uint64_t i) {
    uint64_t from = i * j->n_row / j->n_take, to = (i + 1) * j->n_row / j->n_take;
    return from + rng_at(j->gene->index, i) % (to - from);
}

static void measure_row(struct job *j, uint64_t i, float *x, float *y, unsigned char *bytes) {
    const struct gguf_tensor *t = j->gene->tensor;
    const struct quant_traits *from = quant_traits(t->type);
    uint64_t row = row_at(j, i), row_bytes = 0;
    size_t n = (size_t)t->ne[0];
    const float *w = j->weights ? j->weights + row / t->ne[1] * t->ne[0] : NULL;
    double *sums = j->sums + i * (RAMP_MAX_FORMS + 1), energy = 0;
    quant_row_bytes(t->type, t->ne[0], &row_bytes);
    from->decode(t->data + row * row_bytes, x, n);
    for (size_t c = 0; c < n; c++) energy += (w ? (double)w[c] : 1) * (double)x[c] * (double)x[c];
    sums[RAMP_MAX_FORMS] = energy;
    if (!isfinite(energy)) {
        atomic_store(&j->bad_row, row);
        return;
    }
    for (int k = 0; k < j->gene->n_form; k++) {
        const struct quant_traits *to = quant_traits(j->gene->forms[k].type);
        double error = 0;
        if (j->gene->forms[k].type != t->type) {
            if (!to->encode(x, bytes, n, w)) {
                atomic_store(&j->out_of_memory, true);
                return;
            }
            to->decode(bytes, y, n);
            for (size_t c = 0; c < n; c++) {
                double d = (double)x[c] - (double)y[c];
                error += (w ? (double)w[c] : 1) * d * d;
            }
        }
        sums[k] = error;
    }
}

static void measure_rows(void *arg, int ith, int n_thread) {
    struct job *j = arg;
    size_t n = (size_t)j->gene->tensor->ne[0];
    float *x = j->scratch + (size_t)ith * 2 * n;
    (void)n_thread;
    for (uint64_t i; (i = atomic_fetch_add(&j->next, 1)) < j->n_take;)
        measure_row(j, i, x, x + n, j->bytes + (size_t)ith * j->room);
}

static int finish(struct ramp_gene *g, const struct job *j, struct err *e) {
    double energy = 0;
    if (atomic_load(&j->bad_row) != UINT64_MAX)
        return err_set(e, CHIMERE_ENUMERIC,
                       "tensor %s: row %" PRIu64 ": expected finite numbers, got nan or infinity",
                       g->tensor->name, atomic_load(&j->bad_row));
    if (atomic_load(&j->out_of_memory)) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (uint64_t i = 0; i < j->n_take; i++)
        energy += j->sums[i * (RAMP_MAX_FORMS + 1) + RAMP_MAX_FORMS];
    for (int k = 0; k < g->n_form; k++) {
        double sum = 0;
        for (uint64_t i = 0; i < j->n_take; i++)
            sum += j->sums[i * (RAMP_MAX_FORMS + 1) + (uint64_t)k];
        g->forms[k].error = energy > 0 ? sum / energy : 0;
    }
    return 0;
}

static int measure_gene(const struct ramp_set *s, struct ramp_gene *g, uint64_t n_sample,
                        struct pool *pool, struct err *e) {
    const struct gguf_tensor *t = g->tensor;
    int n_thread = pool_n_thread(pool);
    struct job j = {.gene = g, .n_row = t->n_elements / t->ne[0], .bad_row = UINT64_MAX};
    j.n_take = n_sample / t->ne[0] > MIN_ROWS ? n_sample / t->ne[0] : MIN_ROWS;
    if (j.n_take > j.n_row) j.n_take = j.n_row;
    j.room = (size_t)t->ne[0] * sizeof(double) + 64;
    float *weights;
    int rc = ramp_set_weights(s, g, &weights, e);
    if (rc) return rc;
    j.weights = weights;
    j.scratch = mem_alloc_array((size_t)n_thread * 2 * (size_t)t->ne[0], sizeof *j.scratch);
    j.bytes = mem_alloc_array((size_t)n_thread, j.room);
    j.sums = mem_alloc_array((size_t)j.n_take, (RAMP_MAX_FORMS + 1) * sizeof *j.sums);
    if (!j.scratch || !j.bytes || !j.sums)
        rc = err_set(e, CHIMERE_ENOMEM, "tensor %s: out of memory", t->name);
    if (!rc) {
        pool_run(pool, measure_rows, &j);
        rc = finish(g, &j, e);
    }
    mem_free(j.scratch);
    mem_free(j.bytes);
    mem_free(j.sums);
    mem_free(weights);
    return rc;
}

int ramp_error_measure(struct ramp_set *s, uint64_t n_sample, int n_thread, bool quiet,
                       struct err *e) {
    struct pool *pool = pool_new(n_thread);
    if (!pool) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    int rc = 0;
    if (!n_sample) {
        n_sample = SAMPLE_ALL / s->n_gene;
        if (n_sample > SAMPLE_MOST) n_sample = SAMPLE_MOST;
    }
    if (!quiet) progress_begin("errors of types", s->n_gene, false);
    for (size_t i = 0; i < s->n_gene && !rc; i++) {
        rc = measure_gene(s, &s->genes[i], n_sample, pool, e);
        if (!quiet) progress_step(i + 1);
    }
    if (!quiet) progress_end();
    pool_free(pool);
    return rc;
}
