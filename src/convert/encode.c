/* encode.c: see encode.h. */
#include "convert/encode.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>

#include "base/mem.h"
#include "base/pool.h"
#include "format/quant.h"
#include "format/quant_refine.h"

enum {
    SPAN = 1 << 14, /* elements a thread encodes at once: a multiple of every block */
    SLAB = 1 << 22, /* elements per write */
    GRAB = 4,       /* spans a thread takes at once */
};

struct encoder {
    struct pool *pool;  /* owned */
    unsigned char *out; /* owned: a slab's result */
    float *scratch;     /* owned: [n_thread, n_scratch] */
    size_t n_out, n_scratch;
};

int encode_new(struct encoder **out, int n_thread, struct err *e) {
    struct encoder *x = mem_zalloc(sizeof *x);
    *out = x;
    if (x) x->pool = pool_new(n_thread);
    if (x && x->pool) return 0;
    encode_free(x);
    *out = NULL;
    return err_set(e, CHIMERE_ENOMEM, "out of memory");
}

void encode_free(struct encoder *x) {
    if (!x) return;
    pool_free(x->pool);
    mem_free(x->out);
    mem_free(x->scratch);
    mem_free(x);
}

/* Work on one tensor, shared by the threads. A span is up to `span` elements of one row. */
struct job {
    const struct gguf_tensor *tensor;
    const struct quant_traits *from, *to;
    uint32_t type;
    float most;                 /* largest magnitude of the new type */
    const struct hints *hints;  /* view */
    float *correlation;         /* owned: of the current slab's matrix; NULL: unknown */
    uint64_t column0, n_column; /* of the tensor's rows, the part to encode */
    uint64_t span, spans_per_row, from_row_bytes, to_row_bytes;
    uint64_t first, last; /* spans of the current slab */
    unsigned char *out;   /* view: result of the slab */
    float *scratch;       /* view: [n_thread, n_scratch] */
    size_t n_scratch;
    _Atomic uint64_t next;
    _Atomic uint64_t bad; /* lowest element that does not fit, UINT64_MAX: none */
    _Atomic bool out_of_memory;
};

/* Offset of a span in the result. */
static uint64_t span_at(const struct job *j, uint64_t span) {
    uint64_t row = span / j->spans_per_row, column = span % j->spans_per_row * j->span;
    return row * j->to_row_bytes + column / j->to->block_elements * j->to->block_bytes;
}

static void note_bad(struct job *j, uint64_t element) {
    uint64_t least = atomic_load(&j->bad);
    while (element < least && !atomic_compare_exchange_weak(&j->bad, &least, element)) continue;
}

static void code_span(struct job *j, uint64_t span, float *x) {
    const struct gguf_tensor *t = j->tensor;
    uint64_t row = span / j->spans_per_row, at = span % j->spans_per_row * j->span;
    uint64_t column = j->column0 + at;
    size_t n = (size_t)(j->n_column - at < j->span ? j->n_column - at : j->span);
    const unsigned char *source = t->data + row * j->from_row_bytes;
    if (j->from->head_bytes) {
        j->from->decode(source, x, t->ne[0]);
        x += column;
    } else {
        j->from->decode(source + column / j->from->block_elements * j->from->block_bytes, x, n);
    }
    float most = j->most;
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) <= most)) {
            note_bad(j, row * t->ne[0] + column + i);
            return;
        }
    struct quant_hints hints = {hints_weights(j->hints, row / t->ne[1]), j->correlation};
    if (hints.weights) hints.weights += column;
    if (hints.correlation) hints.correlation += column * QUANT_REFINE_BLOCK;
    unsigned char *out = j->out + (span_at(j, span) - span_at(j, j->first));
    if (!quant_refine_encode(j->type, x, out, n, &hints)) atomic_store(&j->out_of_memory, true);
}

static void code_spans(void *arg, int ith, int n_thread) {
    (void)n_thread;
    struct job *j = arg;
    float *x = j->scratch + (size_t)ith * j->n_scratch;
    for (;;) {
        uint64_t span = atomic_fetch_add(&j->next, GRAB);
        if (span >= j->last) return;
        for (uint64_t end = span + GRAB < j->last ? span + GRAB : j->last; span < end; span++)
            code_span(j, span, x);
    }
}

static int bad_value(const struct job *j, struct err *e) {
    uint64_t at = atomic_load(&j->bad);
    return err_set(e, CHIMERE_ENUMERIC,
                   "tensor %s: row %" PRIu64 ", column %" PRIu64
                   ": expected a finite number up to %g, as %s holds it",
                   j->tensor->name, at / j->tensor->ne[0], at % j->tensor->ne[0], (double)j->most,
                   j->to->name);
}

/* Allocates memory for a slab's result and each thread's span. */
static int reserve(struct encoder *x, size_t n_out, size_t n_scratch, struct err *e) {
    if (n_out > x->n_out) {
        mem_free(x->out);
        x->out = mem_alloc(n_out);
        x->n_out = x->out ? n_out : 0;
    }
    if (n_scratch > x->n_scratch) {
        mem_free(x->scratch);
        x->scratch = mem_alloc_array((size_t)pool_n_thread(x->pool) * n_scratch, sizeof(float));
        x->n_scratch = x->scratch ? n_scratch : 0;
    }
    return x->out && x->scratch ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
}

/* Slabs end at the end of a matrix, so that only one matrix's correlations are in memory. */
static int begin_correlation(struct job *j, struct err *e) {
    if (!hints_has_correlation(j->hints) || !quant_refine_is_possible(j->type)) return 0;
    j->correlation =
        mem_alloc_array((size_t)j->tensor->ne[0], QUANT_REFINE_BLOCK * sizeof *j->correlation);
    return j->correlation ? 0
                          : err_set(e, CHIMERE_ENOMEM, "tensor %s: out of memory", j->tensor->name);
}

static int begin_slab(struct job *j, uint64_t n_span, uint64_t slab, struct err *e) {
    uint64_t per_matrix = j->tensor->ne[1] * j->spans_per_row;
    uint64_t end = j->correlation ? (j->first / per_matrix + 1) * per_matrix : n_span;
    j->last = end - j->first < slab ? end : j->first + slab;
    atomic_store(&j->next, j->first);
    return j->correlation && j->first % per_matrix == 0
               ? hints_correlation(j->hints, j->first / per_matrix, j->correlation, e)
               : 0;
}

int encode_run(struct encoder *x, const struct gguf_tensor *t, uint64_t first, uint64_t n,
               uint32_t type, const struct hints *hints, encode_sink *sink, void *ud,
               struct err *e) {
    struct job j = {.tensor = t,
                    .from = quant_traits(t->type),
                    .to = quant_traits(type),
                    .type = type,
                    .most = quant_max(type),
                    .hints = hints,
                    .column0 = first,
                    .n_column = n,
                    .bad = UINT64_MAX};
    bool whole = j.from->head_bytes || j.to->head_bytes; /* rows with their own scale */
    j.span = n < SPAN || whole ? n : SPAN;
    j.spans_per_row = (n + j.span - 1) / j.span;
    quant_row_bytes(t->type, t->ne[0], &j.from_row_bytes);
    quant_row_bytes(type, n, &j.to_row_bytes);
    uint64_t n_span = t->n_elements / t->ne[0] * j.spans_per_row,
             slab = SLAB / j.span ? SLAB / j.span : 1;
    if (slab > n_span) slab = n_span;
    /* the largest type has eight bytes per element */
    j.n_scratch = (size_t)(j.from->head_bytes ? t->ne[0] : j.span);
    int rc = reserve(x, (size_t)(slab * j.span) * sizeof(double), j.n_scratch, e);
    j.out = x->out;
    j.scratch = x->scratch;
    if (!rc) rc = begin_correlation(&j, e);
    for (j.first = 0; j.first < n_span && !rc; j.first = j.last) {
        rc = begin_slab(&j, n_span, slab, e);
        if (!rc) pool_run(x->pool, code_spans, &j);
        if (rc) break;
        if (atomic_load(&j.out_of_memory)) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
        else if (atomic_load(&j.bad) != UINT64_MAX) rc = bad_value(&j, e);
        else
            rc = sink(ud, x->out, (size_t)(span_at(&j, j.last) - span_at(&j, j.first)),
                      j.last / j.spans_per_row * j.from_row_bytes, e);
    }
    mem_free(j.correlation);
    return rc;
}
