/* importance.c: see importance.h. */
#include "eval/importance.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "format/quant.h"
#include "kernels/cpu/cpu.h"

enum {
    BLOCK = 256, /* number of inputs whose correlations with each other are kept */
    PENDING = 8, /* rows that are added to the correlations together */
    /* rows that a single matrix takes correlations from, evenly spaced: 128 per unknown */
    ROWS = 32768,
};

struct matrix {
    char name[GGUF_MAX_NAME];
    const struct weight *w; /* view: the weight struct that is passed to ops */
    double *sums;           /* owned [n_mat, n_in]; NULL until first seen */
    uint64_t *counts;       /* owned [n_mat] */
    float *corr;            /* owned [n_mat, n_in, BLOCK]: sums of products; NULL: none */
    float *pending;         /* owned [n_mat, PENDING, n_in]: rows not yet added to corr */
    uint64_t stride;        /* one in `stride` rows is added to corr */
};

struct importance {
    struct matrix *matrices; /* owned [n]; sorted by name at the end of the run */
    size_t n, cap;
    struct map by_slot; /* address of a weight struct -> index */
    int64_t n_chunk;
    int32_t chunk_size;
    bool correlations;
    uint64_t n_tok;
    uint64_t corr_bytes; /* bytes of all correlations in the file */
    bool failed;         /* out of memory while observing */
};

static int add_matrix(struct importance *s, const char *name, const struct weight *w,
                      struct err *e) {
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 256;
        struct matrix *grown = mem_realloc(s->matrices, cap * sizeof *grown);
        if (!grown) return err_set(e, CHIMERE_ENOMEM, "importance matrix: out of memory");
        s->matrices = grown;
        s->cap = cap;
    }
    struct matrix *mat = &s->matrices[s->n];
    *mat = (struct matrix){.w = w};
    snprintf(mat->name, sizeof mat->name, "%s", name);
    if (map_put(&s->by_slot, (const char *)&w, sizeof w, (uint32_t)s->n) < 0)
        return err_set(e, CHIMERE_ENOMEM, "importance matrix: out of memory");
    s->n++;
    return 0;
}

/* Returns the weight struct that the ops receive. Fused tensors are multiplied through views; one view represents
 * the tensor of the file, because all views have the same inputs. */
static const struct weight *slot_of(const struct layer_weights *l, const struct weight *w) {
    if (w == &l->moe.gate_up) return &l->moe.up;
    if (w == &l->attn.qkv) return &l->attn.q;
    if (w == &l->ssm.x) return &l->ssm.x_dt;
    if (w == &l->gdn.qkvz) return &l->gdn.qkv;
    if (w == &l->gdn.ba) return &l->gdn.beta;
    return w;
}

/* Adds every matrix of the file that layer il multiplies with (-1: the model outside of layers). */
static int add_layer(struct importance *s, const struct model *m, int32_t il, bool output,
                     struct err *e) {
    const struct layer_weights *l = il < 0 ? NULL : &m->weights.layer[il];
    const char *base = il < 0 ? (const char *)&m->weights.global : (const char *)l;
    int rc = 0;
    for (const struct tensor_row *const *table = m->hp.arch->tensors; *table; table++)
        for (const struct tensor_row *row = *table; row->gguf && !rc; row++) {
            if (row->is_vector || (row->where == AT_GLOBAL) != (il < 0) ||
                !arch_has(&m->hp, (enum tensor_where)row->where, il))
                continue;
            char name[GGUF_MAX_NAME];
            arch_tensor_name(row, il, name, sizeof name);
            const struct weight *w = (const struct weight *)(const void *)(base + row->slot);
            if (il < 0 && (!output || w != &m->weights.global.output)) continue;
            if (!gguf_find_tensor(m->gguf, name)) {
                if (il >= 0) continue;
                snprintf(name, sizeof name, "token_embd.weight"); /* tied embeddings */
            }
            rc = add_matrix(s, name, l ? slot_of(l, w) : w, e);
        }
    return rc;
}

/* ---- observing ---- */

static void allocate(struct importance *s, struct matrix *m) {
    size_t n_mat = (size_t)m->w->n_mat, n_in = (size_t)m->w->n_in;
    uint64_t bytes = 0;
    m->sums = mem_alloc_array(n_mat * n_in, sizeof *m->sums);
    m->counts = mem_alloc_array(n_mat, sizeof *m->counts);
    s->failed = !m->sums || !m->counts;
    if (!s->correlations || !u64_mul(n_mat * n_in, BLOCK * sizeof(uint16_t), &bytes) ||
        bytes > IMPORTANCE_MATRIX_CORR || bytes > IMPORTANCE_ALL_CORR - s->corr_bytes)
        return;
    s->corr_bytes += bytes;
    m->stride = n_mat == 1 && s->n_tok > ROWS ? s->n_tok / ROWS : 1;
    m->corr = mem_alloc_array(n_mat * n_in, BLOCK * sizeof *m->corr);
    m->pending = mem_alloc_array(n_mat * n_in, PENDING * sizeof *m->pending);
    s->failed |= !m->corr || !m->pending;
}

/* Adds the products of the PENDING rows to corr; missing rows are zero. */
static void flush(const struct matrix *m, int32_t mat) {
    size_t n_in = (size_t)m->w->n_in;
    const float *x = m->pending + (size_t)mat * PENDING * n_in;
    float *corr = m->corr + (size_t)mat * n_in * BLOCK;
    for (size_t i = 0; i < n_in; i++, corr += BLOCK) {
        size_t first = i / BLOCK * BLOCK, n = n_in - first < BLOCK ? n_in - first : BLOCK;
        /* start at the multiple of 8 at or before the diagonal: the rest is symmetric */
        for (size_t j = (i - first) / 8 * 8; j < n; j++) {
            float sum = 0;
            for (size_t r = 0; r < PENDING; r++) sum += x[r * n_in + i] * x[r * n_in + first + j];
            corr[j] += sum;
        }
    }
}

static void observe_products(const struct matrix *m, int32_t mat, const float *x) {
    size_t n_in = (size_t)m->w->n_in;
    if (m->counts[mat] % m->stride) return;
    size_t at = (size_t)(m->counts[mat] / m->stride % PENDING);
    memcpy(m->pending + ((size_t)mat * PENDING + at) * n_in, x, n_in * sizeof *x);
    if (at + 1 == PENDING) flush(m, mat);
}

/* Adds the remaining rows of each matrix, with zeros in place of missing ones; then copies the upper triangle to
 * the lower one. */
static void finish_products(const struct matrix *m) {
    size_t n_in = (size_t)m->w->n_in;
    for (int32_t mat = 0; m->corr && mat < m->w->n_mat; mat++) {
        size_t have = (size_t)((m->counts[mat] + m->stride - 1) / m->stride % PENDING);
        float *corr = m->corr + (size_t)mat * n_in * BLOCK;
        memset(m->pending + ((size_t)mat * PENDING + have) * n_in, 0,
               (PENDING - have) * n_in * sizeof(float));
        if (have) flush(m, mat);
        for (size_t i = 0; i < n_in; i++)
            for (size_t j = 0; j < i % BLOCK; j++)
                corr[i * BLOCK + j] = corr[(i / BLOCK * BLOCK + j) * BLOCK + i % BLOCK];
    }
}

/* Called on the thread that uses the device, during a forward pass. */
static void observe(void *ud, const struct weight *w, int32_t mat, const float *x, int64_t x_stride,
                    int32_t n_row) {
    struct importance *s = ud;
    uint32_t at;
    if (s->failed || !map_find(&s->by_slot, (const char *)&w, sizeof w, &at)) return;
    struct matrix *m = &s->matrices[at];
    if (mat < 0 || mat >= w->n_mat) return;
    if (!m->sums) allocate(s, m);
    if (s->failed) return;
    double *sums = m->sums + (int64_t)mat * w->n_in;
    for (int32_t r = 0; r < n_row; r++, m->counts[mat]++) {
        for (int64_t i = 0; i < w->n_in; i++) {
            double v = (double)x[r * x_stride + i];
            sums[i] += v * v;
        }
        if (m->corr) observe_products(m, mat, x + r * x_stride);
    }
}

static int no_rows(void *ud, size_t i, int32_t pos, int32_t n_row, const float *rows,
                   struct err *e) {
    (void)ud, (void)i, (void)pos, (void)n_row, (void)rows, (void)e;
    return 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct matrix *)a)->name, ((const struct matrix *)b)->name);
}

/* Removes the matrices that no op was called with. */
static void finish(struct importance *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) finish_products(&s->matrices[i]);
    for (size_t i = 0; i < s->n; i++)
        if (s->matrices[i].counts) s->matrices[n++] = s->matrices[i];
    s->n = n;
    qsort(s->matrices, n, sizeof *s->matrices, by_name);
}

int importance_run(struct importance **out, struct model *m, const struct windows_text *t,
                   const struct importance_params *p, struct err *e) {
    *out = NULL;
    struct importance *s = mem_zalloc(sizeof *s);
    struct window *w = mem_alloc_array(t->n_window, sizeof *w);
    int rc = s && w ? 0 : err_set(e, CHIMERE_ENOMEM, "importance matrix: out of memory");
    if (!rc) {
        map_init(&s->by_slot, (size_t)64 << 20);
        s->n_chunk = (int64_t)t->n_window;
        s->chunk_size = t->ctx;
        s->correlations = p->correlations;
        s->n_tok = (uint64_t)t->n_window * (uint64_t)t->ctx;
    }
    for (int32_t il = -1; !rc && il < m->hp.n_layer; il++) rc = add_layer(s, m, il, p->output, e);
    for (size_t i = 0; !rc && i < t->n_window; i++)
        w[i] = (struct window){.tokens = t->tokens + i * (size_t)t->ctx,
                               .n_tok = t->ctx,
                               .first = p->output ? 0 : t->ctx};
    if (!rc) {
        cpu_observe(m->dev, observe, s);
        rc = windows_run(m, w, t->n_window, &p->windows, no_rows, NULL, e);
        cpu_observe(m->dev, NULL, NULL);
    }
    if (!rc && s->failed) rc = err_set(e, CHIMERE_ENOMEM, "importance matrix: out of memory");
    if (!rc) finish(s);
    if (!rc && !s->n)
        rc =
            err_set(e, CHIMERE_EUNSUPPORTED, "%s: no product was observed on this device", m->name);
    mem_free(w);
    if (rc) importance_free(s);
    else *out = s;
    return rc;
}

void importance_free(struct importance *s) {
    if (!s) return;
    for (size_t i = 0; i < s->n; i++) {
        mem_free(s->matrices[i].sums);
        mem_free(s->matrices[i].counts);
        mem_free(s->matrices[i].corr);
        mem_free(s->matrices[i].pending);
    }
    mem_free(s->matrices);
    map_fini(&s->by_slot);
    mem_free(s);
}

size_t importance_n(const struct importance *s) { return s->n; }

size_t importance_n_correlated(const struct importance *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) n += s->matrices[i].corr != NULL;
    return n;
}

void importance_unreached(const struct importance *s, uint64_t *n_unreached, uint64_t *n_expert) {
    *n_unreached = *n_expert = 0;
    for (size_t i = 0; i < s->n; i++) {
        const struct matrix *m = &s->matrices[i];
        for (int64_t k = 0; m->w->n_mat > 1 && k < m->w->n_mat; k++) {
            ++*n_expert;
            *n_unreached += m->counts[k] == 0;
        }
    }
}

/* ---- the file ---- */

static void add_tensors(const struct importance *s, struct gguf_writer *g) {
    for (size_t i = 0; i < s->n; i++) {
        const struct matrix *m = &s->matrices[i];
        char name[GGUF_MAX_NAME + 16];
        const uint64_t sums[2] = {(uint64_t)m->w->n_in, (uint64_t)m->w->n_mat},
                       counts[2] = {1, (uint64_t)m->w->n_mat};
        snprintf(name, sizeof name, "%s.in_sum2", m->name);
        gguf_add_tensor(g, name, QUANT_F32, 2, sums);
        snprintf(name, sizeof name, "%s.counts", m->name);
        gguf_add_tensor(g, name, QUANT_F32, 2, counts);
        if (!m->corr) continue;
        const uint64_t corr[3] = {BLOCK, sums[0], sums[1]};
        snprintf(name, sizeof name, "%s.in_corr", m->name);
        gguf_add_tensor(g, name, QUANT_F16, 3, corr);
    }
}

/* Converts sums of products to correlations. In half precision they have four digits whatever the scale of the
 * inputs. */
static int write_correlations(const struct matrix *m, struct gguf_writer *g, struct err *e) {
    size_t n = (size_t)(m->w->n_mat * m->w->n_in);
    uint16_t row[BLOCK];
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        size_t own = i % (size_t)m->w->n_in % BLOCK,
               first = i - own; /* first row of the block in its matrix */
        for (size_t j = 0; j < BLOCK; j++) {
            double v = 0;
            if (first % (size_t)m->w->n_in + j < (size_t)m->w->n_in) {
                double a = (double)m->corr[i * BLOCK + own];
                double b = (double)m->corr[(first + j) * BLOCK + j];
                v = a > 0 && b > 0 ? (double)m->corr[i * BLOCK + j] / sqrt(a * b) : 0;
            }
            row[j] = quant_f32_to_f16((float)v);
        }
        rc = gguf_write_data(g, row, sizeof row, e);
    }
    return rc;
}

static int write_matrix(const struct matrix *m, struct gguf_writer *g, struct err *e) {
    size_t n = (size_t)(m->w->n_mat * m->w->n_in), n_mat = (size_t)m->w->n_mat;
    float *row = mem_alloc_array(n > n_mat ? n : n_mat, sizeof *row);
    if (!row) return err_set(e, CHIMERE_ENOMEM, "importance matrix: out of memory");
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        row[i] = (float)m->sums[i];
        if (!isfinite(row[i]))
            rc = err_set(e, CHIMERE_ENUMERIC,
                         "%s, input %zu: expected a finite sum of squares, got %g", m->name, i,
                         m->sums[i]);
    }
    if (!rc) rc = gguf_write_data(g, row, n * sizeof *row, e);
    for (size_t i = 0; i < n_mat; i++) row[i] = (float)m->counts[i];
    if (!rc) rc = gguf_write_data(g, row, n_mat * sizeof *row, e);
    mem_free(row);
    return rc || !m->corr ? rc : write_correlations(m, g, e);
}

int importance_write(const struct importance *s, const char *path, const char *dataset,
                     struct err *e) {
    struct gguf_writer *g;
    int rc = gguf_writer_new(&g, path, 0, 0, e);
    if (rc) return rc;
    const struct slice name = {dataset, strlen(dataset)};
    gguf_put_str(g, "general.type", "imatrix", strlen("imatrix"));
    gguf_put_strings(g, "imatrix.datasets", &name, 1);
    gguf_put_u32(g, "imatrix.chunk_count", (uint32_t)s->n_chunk);
    gguf_put_u32(g, "imatrix.chunk_size", (uint32_t)s->chunk_size);
    add_tensors(s, g);
    for (size_t i = 0; i < s->n && !rc; i++) rc = write_matrix(&s->matrices[i], g, e);
    if (!rc) return gguf_writer_close(g, e);
    gguf_writer_abort(g);
    return rc;
}
