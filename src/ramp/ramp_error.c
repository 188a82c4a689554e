/* ramp_error.c: see ramp_error.h. */
#include "ramp/ramp_error.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "convert/hints.h"
#include "format/quant.h"
#include "format/quant_refine.h"

enum {
    MIN_ROWS = 8,
    SAMPLE_ALL = 8 << 20,  /* weights of all tensors, per type: a minute on two cores */
    SAMPLE_MOST = 1 << 16, /* per tensor: the error is then known to 1 % */
};

struct thread {
    float *x, *e;         /* owned [ne0]: a row, its errors */
    unsigned char *bytes; /* owned: a row in any type */
    float *correlation;   /* owned [ne0, QUANT_REFINE_BLOCK] of `matrix`; NULL: unknown */
    uint64_t matrix;      /* UINT64_MAX: none yet */
    int rc;
    struct err err;
};

struct job {
    const struct ramp_gene *gene;
    const struct hints *hints; /* borrowed; may be NULL */
    uint64_t n_row, n_take;    /* rows of the tensor; rows sampled */
    struct thread *threads;    /* owned [n_thread] */
    double
        *sums; /* owned [n_take, RAMP_MAX_FORMS + 1]: errors, then energy; summed in order later */
    _Atomic uint64_t next;
    _Atomic uint64_t bad_row;
};

static uint64_t row_at(const struct job *j, uint64_t i) {
    uint64_t from = i * j->n_row / j->n_take, to = (i + 1) * j->n_row / j->n_take;
    return from + rng_at(j->gene->index, i) % (to - from);
}

/* Gets the hints for a row's matrix. Rows come in order, so each thread reads a matrix once or twice. */
static int row_hints(const struct job *j, struct thread *t, uint64_t matrix,
                     struct quant_hints *out) {
    *out = (struct quant_hints){hints_weights(j->hints, matrix), t->correlation};
    if (!t->correlation || matrix == t->matrix) return 0;
    t->matrix = matrix;
    return hints_correlation(j->hints, matrix, t->correlation, &t->err);
}

/* Sets e to what a type makes of x's columns [first, first + n). */
static bool round_columns(struct thread *th, uint32_t type, size_t first, size_t n,
                          const struct quant_hints *all) {
    struct quant_hints h = *all;
    if (!n) return true;
    if (h.weights) h.weights += first;
    if (h.correlation) h.correlation += first * QUANT_REFINE_BLOCK;
    if (!quant_refine_encode(type, th->x + first, th->bytes, n, &h)) return false;
    quant_traits(type)->decode(th->bytes, th->e + first, n);
    return true;
}

static int measure_row(struct job *j, uint64_t i, struct thread *th) {
    const struct gguf_tensor *t = j->gene->tensor;
    const struct quant_traits *from = quant_traits(t->type);
    uint64_t row = row_at(j, i), row_bytes = 0;
    size_t n = (size_t)t->ne[0];
    double *sums = j->sums + i * (RAMP_MAX_FORMS + 1);
    struct quant_hints hints;
    int rc = row_hints(j, th, row / t->ne[1], &hints);
    if (rc) return rc;
    quant_row_bytes(t->type, t->ne[0], &row_bytes);
    from->decode(t->data + row * row_bytes, th->x, n);
    sums[RAMP_MAX_FORMS] = quant_refine_error(th->x, n, &hints);
    if (!isfinite(sums[RAMP_MAX_FORMS])) {
        atomic_store(&j->bad_row, row);
        return CHIMERE_ENUMERIC;
    }
    for (int k = 0; k < j->gene->n_form; k++) {
        const struct quantize_columns *to = &j->gene->forms[k].to;
        if (to->type == t->type) continue;
        if (!round_columns(th, to->type, 0, to->n_first, &hints) ||
            !round_columns(th, to->tail, to->n_first, n - to->n_first, &hints))
            return err_set(&th->err, CHIMERE_ENOMEM, "out of memory");
        for (size_t c = 0; c < n; c++) th->e[c] = th->x[c] - th->e[c];
        sums[k] = quant_refine_error(th->e, n, &hints);
    }
    return 0;
}

static void measure_rows(void *arg, int ith, int n_thread) {
    struct job *j = arg;
    struct thread *t = &j->threads[ith];
    (void)n_thread;
    for (uint64_t i; !t->rc && (i = atomic_fetch_add(&j->next, 1)) < j->n_take;)
        t->rc = measure_row(j, i, t);
}

static int finish(struct ramp_gene *g, const struct job *j, int n_thread, struct err *e) {
    double energy = 0;
    if (atomic_load(&j->bad_row) != UINT64_MAX)
        return err_set(e, CHIMERE_ENUMERIC,
                       "tensor %s: row %" PRIu64 ": expected finite numbers, got nan or infinity",
                       g->tensor->name, atomic_load(&j->bad_row));
    for (int k = 0; k < n_thread; k++)
        if (j->threads[k].rc) {
            if (e) *e = j->threads[k].err;
            return j->threads[k].rc;
        }
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

static int begin(struct job *j, int n_thread, struct err *e) {
    size_t n = (size_t)j->gene->tensor->ne[0];
    bool correlated = hints_has_correlation(j->hints), ok;
    j->sums = mem_alloc_array((size_t)j->n_take, (RAMP_MAX_FORMS + 1) * sizeof *j->sums);
    j->threads = mem_alloc_array((size_t)n_thread, sizeof *j->threads);
    ok = j->sums && j->threads;
    for (int i = 0; ok && i < n_thread; i++) {
        struct thread *t = &j->threads[i];
        t->x = mem_alloc_array(n, sizeof *t->x);
        t->e = mem_alloc_array(n, sizeof *t->e);
        t->bytes = mem_alloc(n * sizeof(double) + 64);
        t->matrix = UINT64_MAX;
        if (correlated) t->correlation = mem_alloc_array(n, QUANT_REFINE_BLOCK * sizeof(float));
        ok = t->x && t->e && t->bytes && (t->correlation || !correlated);
    }
    return ok ? 0 : err_set(e, CHIMERE_ENOMEM, "tensor %s: out of memory", j->gene->tensor->name);
}

static void end(struct job *j, int n_thread) {
    for (int i = 0; j->threads && i < n_thread; i++) {
        mem_free(j->threads[i].x);
        mem_free(j->threads[i].e);
        mem_free(j->threads[i].bytes);
        mem_free(j->threads[i].correlation);
    }
    mem_free(j->threads);
    mem_free(j->sums);
}

static int measure_gene(const struct ramp_set *s, struct ramp_gene *g, uint64_t n_sample,
                        struct pool *pool, struct err *e) {
    const struct gguf_tensor *t = g->tensor;
    int n_thread = pool_n_thread(pool);
    struct job j = {.gene = g, .n_row = t->n_elements / t->ne[0], .bad_row = UINT64_MAX};
    j.n_take = n_sample / t->ne[0] > MIN_ROWS ? n_sample / t->ne[0] : MIN_ROWS;
    if (j.n_take > j.n_row) j.n_take = j.n_row;
    struct hints *hints;
    int rc = hints_open(&hints, s->imatrix, t, e);
    if (rc) return rc;
    j.hints = hints;
    rc = begin(&j, n_thread, e);
    if (!rc) {
        pool_run(pool, measure_rows, &j);
        rc = finish(g, &j, n_thread, e);
    }
    end(&j, n_thread);
    hints_close(hints);
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
