/* attn.c: attention and row-wise ops: how they are distributed over the thread pool. */
#include <stdatomic.h>
#include <string.h>

#include "format/quant.h"
#include "kernels/cpu/cpu_impl.h"

struct attn_job {
    struct cpu *c;
    const struct qkv_store_args *store;
    const struct attn_args *attn;
    const struct attn_full_args *full;
    _Atomic int64_t next;
};

/* ---- attention ---- */

static void store_part(void *arg, int ith, int n_thread) {
    struct attn_job *j = arg;
    const struct qkv_store_args *a = j->store;
    int64_t at = 0, from = (int64_t)a->n_tok * ith / n_thread;
    int64_t to = (int64_t)a->n_tok * (ith + 1) / n_thread;
    for (int32_t n = 0; n < a->n_span; n++)
        for (int32_t i = 0; i < a->spans[n].n_tok; i++, at++)
            if (at >= from && at < to)
                j->c->simd.attn->store(a, &a->spans[n], i, j->c->threads[ith].attn);
}

void cpu_qkv_store(struct dev *d, const struct qkv_store_args *a) {
    struct cpu *c = (struct cpu *)d;
    const struct quant_traits *k = quant_traits(a->kv.k_type), *v = quant_traits(a->kv.v_type);
    bool takes = k && v && k->encode && v->encode && a->kv.d_k % (int32_t)k->block_elements == 0 &&
                 a->kv.d_v % (int32_t)v->block_elements == 0;
    if (!takes || a->kv.d_k > c->ref.need.d_head || a->kv.d_v > c->ref.need.d_head) {
        ref_qkv_store(d, a); /* reports the error */
        return;
    }
    struct attn_job j = {.c = c, .store = a};
    if (!ref_begin(&c->ref)) return;
    if (a->n_tok == 1) store_part(&j, 0, 1); /* too little work to wake other threads */
    else pool_run(c->pool, store_part, &j);
}

static int64_t blocks_of(int64_t n_row) { return (n_row + SIMD_ATTN_ROWS - 1) / SIMD_ATTN_ROWS; }

/* One unit of work is a block of query rows, for each span and kv head (full attention: head). */
static void attn_part(void *arg, int ith, int n_thread) {
    (void)n_thread;
    struct attn_job *j = arg;
    const struct span *spans = j->attn ? j->attn->spans : j->full->spans;
    int32_t n_span = j->attn ? j->attn->n_span : j->full->n_span;
    int32_t n_group = j->attn ? j->attn->kv.n_kv_head : j->full->n_head;
    int64_t per_tok = j->attn ? j->attn->n_head / n_group : 1;
    float *room = j->c->threads[ith].attn;
    int64_t at = 0, mine = atomic_fetch_add(&j->next, 1);
    for (int32_t n = 0; n < n_span;) {
        int64_t n_row = spans[n].n_tok * per_tok, n_block = blocks_of(n_row);
        if (mine >= at + n_block * n_group) {
            at += n_block * n_group;
            n++;
            continue;
        }
        /* later blocks first: they see more keys */
        int32_t head = (int32_t)((mine - at) % n_group);
        int64_t first = (n_block - 1 - (mine - at) / n_group) * SIMD_ATTN_ROWS;
        int32_t count = (int32_t)(n_row - first < SIMD_ATTN_ROWS ? n_row - first : SIMD_ATTN_ROWS);
        if (j->attn) j->c->simd.attn->rows(j->attn, &spans[n], head, (int32_t)first, count, room);
        else j->c->simd.attn->full(j->full, &spans[n], head, (int32_t)first, count, room);
        mine = atomic_fetch_add(&j->next, 1);
    }
}

void cpu_attn(struct dev *d, const struct attn_args *a) {
    struct cpu *c = (struct cpu *)d;
    if (a->kv.d_k > c->ref.need.d_head || a->kv.d_v > c->ref.need.d_head) {
        ref_fail(&c->ref, CHIMERE_EINTERNAL, "attn: wider heads than reserve() was told of");
        return;
    }
    if (!ref_begin(&c->ref)) return;
    struct attn_job j = {.c = c, .attn = a};
    pool_run(c->pool, attn_part, &j);
}

void cpu_attn_full(struct dev *d, const struct attn_full_args *a) {
    struct cpu *c = (struct cpu *)d;
    if (a->d_head > c->ref.need.d_head) {
        ref_fail(&c->ref, CHIMERE_EINTERNAL, "attn_full: wider heads than reserve() was told of");
        return;
    }
    if (!ref_begin(&c->ref)) return;
    struct attn_job j = {.c = c, .full = a};
    pool_run(c->pool, attn_part, &j);
}

/* ---- row-wise ops ---- */

enum { ALONE = 16384 }; /* floats; with fewer, waking other threads costs more than it saves */

struct row_job {
    const struct cpu *c;
    float *out;
    const float *x, *y, *w, *b;
    int64_t n_row, n;
    float alpha, beta;
    enum act act;
    void (*row)(const struct row_job *j, int64_t from, int64_t to);
};

static void row_part(void *arg, int ith, int n_thread) {
    const struct row_job *j = arg;
    j->row(j, j->n_row * ith / n_thread, j->n_row * (ith + 1) / n_thread);
}

static void run_rows(struct row_job *j) {
    if (j->n_row * j->n < ALONE) j->row(j, 0, j->n_row);
    else pool_run(j->c->pool, row_part, j);
}

static void rms_rows(const struct row_job *j, int64_t from, int64_t to) {
    for (int64_t r = from; r < to; r++)
        j->c->simd.elem->rms_row(j->out + r * j->n, j->x + r * j->n, j->w, j->n, j->beta);
}

static void layer_rows(const struct row_job *j, int64_t from, int64_t to) {
    for (int64_t r = from; r < to; r++)
        j->c->simd.elem->layer_row(j->out + r * j->n, j->x + r * j->n, j->w, j->b, j->n, j->beta);
}

void cpu_rms_norm(struct dev *d, float *out, const float *x, const float *w, int64_t n_row,
                  int64_t n, float eps) {
    struct row_job j = {.c = (struct cpu *)d,
                        .out = out,
                        .x = x,
                        .w = w,
                        .n_row = n_row,
                        .n = n,
                        .beta = eps,
                        .row = rms_rows};
    run_rows(&j);
}

void cpu_layer_norm(struct dev *d, float *out, const float *x, const float *w, const float *b,
                    int64_t n_row, int64_t n, float eps) {
    struct row_job j = {.c = (struct cpu *)d,
                        .out = out,
                        .x = x,
                        .w = w,
                        .b = b,
                        .n_row = n_row,
                        .n = n,
                        .beta = eps,
                        .row = layer_rows};
    run_rows(&j);
}

/* Elementwise ops are split at multiples of 16, so that the lane of an element does not
 * depend on the number of threads. */
static void act_rows(const struct row_job *j, int64_t from, int64_t to) {
    int64_t first = from * 16, last = to * 16 < j->n ? to * 16 : j->n;
    if (first < last)
        j->c->simd.elem->act_mul(j->out + first, j->x + first, j->y ? j->y + first : NULL,
                                 last - first, j->act);
}

static void axpby_rows(const struct row_job *j, int64_t from, int64_t to) {
    int64_t first = from * 16, last = to * 16 < j->n ? to * 16 : j->n;
    if (first < last)
        j->c->simd.elem->axpby(j->out + first, j->alpha, j->x + first, j->beta, last - first);
}

static void run_elements(struct row_job *j) {
    j->n_row = (j->n + 15) / 16;
    if (j->n < ALONE) j->row(j, 0, j->n_row);
    else pool_run(j->c->pool, row_part, j);
}

void cpu_act_mul(struct dev *d, float *out, const float *a, const float *b, int64_t n,
                 enum act act) {
    struct row_job j = {
        .c = (struct cpu *)d, .out = out, .x = a, .y = b, .n = n, .act = act, .row = act_rows};
    run_elements(&j);
}

void cpu_axpby(struct dev *d, float *y, float alpha, const float *x, float beta, int64_t n) {
    struct row_job j = {.c = (struct cpu *)d,
                        .out = y,
                        .x = x,
                        .n = n,
                        .alpha = alpha,
                        .beta = beta,
                        .row = axpby_rows};
    run_elements(&j);
}
