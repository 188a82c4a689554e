/* importance.c: see importance.h. */
#include "eval/importance.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/pool.h"
#include "eval/products.h"
#include "format/quant.h"
#include "kernels/cpu/cpu.h"

enum {
    BLOCK = PRODUCTS_BLOCK,
    /* rows that a single matrix takes correlations from, evenly spaced: 128 per unknown */
    ROWS = 32768,
};

struct matrix {
    char name[GGUF_MAX_NAME];
    const struct weight *w; /* view: the weight struct that is passed to ops */
    uint64_t *counts;       /* owned [n_mat]; NULL until first seen */
    double *sums;           /* owned [n_mat, n_in]; a view if `shares` */
    struct products *corr;  /* owned; a view if `shares`; NULL: none */
    uint64_t stride;        /* one in `stride` rows is added to corr */
    size_t like;            /* index of a matrix with the same inputs; SIZE_MAX: none */
    bool shares;            /* the sums of `like`, which then saw each row before this one */
};

/* Matrices of a layer that multiply the same inputs as another one, which is used before them. */
#define SAME(slot, as)                                                                             \
    { offsetof(struct layer_weights, slot), offsetof(struct layer_weights, as) }
static const struct {
    size_t slot, like;
} same_inputs[] = {SAME(attn.k, attn.q),    SAME(attn.v, attn.q),         SAME(ffn.up, ffn.gate),
                   SAME(moe.up, moe.gate),  SAME(moe.sh_up, moe.sh_gate), SAME(gdn.z, gdn.qkv),
                   SAME(gdn.beta, gdn.qkv), SAME(gdn.alpha, gdn.qkv)};

struct importance {
    struct matrix *matrices; /* owned [n]; sorted by name at the end of the run */
    size_t n, cap;
    struct map by_slot; /* address of a weight struct -> index */
    struct pool *pool;  /* owned: the model's own threads may be within an op */
    int64_t n_chunk;
    int32_t chunk_size;
    bool correlations;
    bool experts_correlated; /* each expert sees enough rows */
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
    *mat = (struct matrix){.w = w, .like = SIZE_MAX};
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

static void find_same_inputs(struct importance *s, const struct model *m, int32_t il) {
    const char *base = (const char *)&m->weights.layer[il];
    for (size_t i = 0; i < sizeof same_inputs / sizeof *same_inputs; i++) {
        const char *slot = base + same_inputs[i].slot, *like = base + same_inputs[i].like;
        uint32_t at, other;
        if (map_find(&s->by_slot, (const char *)&slot, sizeof slot, &at) &&
            map_find(&s->by_slot, (const char *)&like, sizeof like, &other))
            s->matrices[at].like = other;
    }
}

/* ---- observing ---- */

/* Whether m, first seen with n_row rows of matrix mat, can use the sums of the matrix that it is like. */
static bool can_share(const struct importance *s, const struct matrix *m, int32_t mat,
                      int32_t n_row) {
    const struct matrix *o = m->like == SIZE_MAX ? NULL : &s->matrices[m->like];
    return o && o->counts && !o->shares && o->w->n_mat == m->w->n_mat && o->w->n_in == m->w->n_in &&
           o->counts[mat] == (uint64_t)n_row;
}

static void allocate(struct importance *s, struct matrix *m, int32_t mat, int32_t n_row) {
    size_t n_mat = (size_t)m->w->n_mat, n_in = (size_t)m->w->n_in;
    uint64_t bytes = 0;
    m->counts = mem_alloc_array(n_mat, sizeof *m->counts);
    m->shares = can_share(s, m, mat, n_row);
    m->sums =
        m->shares ? s->matrices[m->like].sums : mem_alloc_array(n_mat * n_in, sizeof *m->sums);
    s->failed = !m->sums || !m->counts;
    if (!s->correlations || (n_mat > 1 && !s->experts_correlated) ||
        !u64_mul(n_mat * n_in, BLOCK * sizeof(uint16_t), &bytes) ||
        bytes > IMPORTANCE_MATRIX_CORR || bytes > IMPORTANCE_ALL_CORR - s->corr_bytes)
        return;
    s->corr_bytes += bytes;
    m->stride = n_mat == 1 && s->n_tok > ROWS ? s->n_tok / ROWS : 1;
    m->corr = m->shares ? s->matrices[m->like].corr : products_new((int64_t)n_in, (int64_t)n_mat);
    s->failed |= !m->corr;
}

/* Called on the thread that uses the device, during a forward pass. */
static void observe(void *ud, const struct weight *w, int32_t mat, const float *x, int64_t x_stride,
                    int32_t n_row) {
    struct importance *s = ud;
    uint32_t at;
    if (s->failed || !map_find(&s->by_slot, (const char *)&w, sizeof w, &at)) return;
    struct matrix *m = &s->matrices[at];
    if (mat < 0 || mat >= w->n_mat) return;
    if (!m->counts) allocate(s, m, mat, n_row);
    if (s->failed) return;
    uint64_t first = m->counts[mat];
    m->counts[mat] += (uint64_t)n_row;
    double *sums = m->sums + (int64_t)mat * w->n_in;
    for (int32_t r = 0; r < n_row && !m->shares; r++, x += x_stride) {
        for (int64_t i = 0; i < w->n_in; i++) {
            double v = (double)x[i];
            sums[i] += v * v;
        }
        if (m->corr && (first + (uint64_t)r) % m->stride == 0)
            products_add(m->corr, s->pool, mat, x);
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
static int finish(struct importance *s, struct err *e) {
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        struct matrix *m = &s->matrices[i];
        const struct matrix *like = m->shares ? &s->matrices[m->like] : m;
        if (m->shares &&
            memcmp(m->counts, like->counts, (size_t)m->w->n_mat * sizeof *m->counts) != 0)
            return err_set(e, CHIMERE_EINTERNAL, "importance matrix: %s: expected the rows of %s",
                           m->name, like->name);
        if (m->corr && !m->shares) products_finish(m->corr, s->pool);
    }
    for (size_t i = 0; i < s->n; i++)
        if (s->matrices[i].counts) s->matrices[n++] = s->matrices[i];
    s->n = n;
    qsort(s->matrices, n, sizeof *s->matrices, by_name);
    return 0;
}

int importance_run(struct importance **out, struct model *m, const struct windows_text *t,
                   const struct importance_params *p, struct err *e) {
    *out = NULL;
    struct importance *s = mem_zalloc(sizeof *s);
    struct window *w = mem_alloc_array(t->n_window, sizeof *w);
    if (s) s->pool = pool_new(p->n_thread);
    int rc = s && w && s->pool ? 0 : err_set(e, CHIMERE_ENOMEM, "importance matrix: out of memory");
    if (!rc) {
        map_init(&s->by_slot, (size_t)64 << 20);
        s->n_chunk = (int64_t)t->n_window;
        s->chunk_size = t->ctx;
        s->correlations = p->correlations;
        s->n_tok = (uint64_t)t->n_window * (uint64_t)t->ctx;
    }
    if (!rc)
        s->experts_correlated = s->n_tok * (uint64_t)m->hp.moe.n_used >=
                                (uint64_t)p->least_rows * (uint64_t)m->hp.moe.n_expert;
    for (int32_t il = -1; !rc && il < m->hp.n_layer; il++) {
        rc = add_layer(s, m, il, p->output, e);
        if (!rc && il >= 0) find_same_inputs(s, m, il);
    }
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
    if (!rc) rc = finish(s, e);
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
        struct matrix *m = &s->matrices[i];
        mem_free(m->counts);
        if (m->shares) continue;
        mem_free(m->sums);
        products_free(m->corr);
    }
    pool_free(s->pool);
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
    const float *corr = products_sums(m->corr);
    uint16_t row[BLOCK];
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        size_t own = i % (size_t)m->w->n_in % BLOCK,
               first = i - own; /* first row of the block in its matrix */
        for (size_t j = 0; j < BLOCK; j++) {
            double v = 0;
            if (first % (size_t)m->w->n_in + j < (size_t)m->w->n_in) {
                double a = (double)corr[i * BLOCK + own];
                double b = (double)corr[(first + j) * BLOCK + j];
                v = a > 0 && b > 0 ? (double)corr[i * BLOCK + j] / sqrt(a * b) : 0;
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
