/* ramp_judge.c: see ramp_judge.h. */
#include "ramp/ramp_judge.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "eval/logprob.h"
#include "format/quant.h"

enum {
    BINS = 128, /* most likely tokens that are kept */
    FIRST = 32, /* first position of a window whose rows count */
    N_SEQ = 8,  /* windows per forward, and its tokens */
    N_BATCH = 512,
};

struct bins { /* per row */
    int32_t ids[BINS];
    float logp[BINS];
    float rest; /* probability of all other tokens */
};

struct ramp_judge {
    struct model *m;              /* borrowed */
    const struct windows_text *t; /* borrowed */
    struct pool *pool;            /* owned */
    struct bins *bins;            /* owned [n_window, n_row] */
    double *kl;                   /* owned [n_window, n_row] of the last run */
    struct window *windows;       /* owned [n_window] */
    size_t *which;                /* owned [n_window]: windows of the current run */
    int32_t n_row, n_bin;
    bool is_reference;

    /* the current rows */
    size_t window;
    int32_t pos, n_now;
    const float *rows;
};

/* Puts the n_bin largest of x into b, unordered: a heap whose root is the smallest of them. */
static void sift(int32_t *ids, const float *x, int32_t n, int32_t at) {
    for (;;) {
        int32_t least = at, left = 2 * at + 1;
        for (int32_t k = left; k < left + 2 && k < n; k++)
            if (x[ids[k]] < x[ids[least]]) least = k;
        if (least == at) return;
        int32_t id = ids[at];
        ids[at] = ids[least];
        ids[least] = id;
        at = least;
    }
}

static void keep_top(struct bins *b, const float *x, int32_t n_vocab, int32_t n_bin, double norm) {
    for (int32_t i = 0; i < n_bin; i++) b->ids[i] = i;
    for (int32_t i = n_bin / 2; i-- > 0;) sift(b->ids, x, n_bin, i);
    for (int32_t i = n_bin; i < n_vocab; i++)
        if (x[i] > x[b->ids[0]]) {
            b->ids[0] = i;
            sift(b->ids, x, n_bin, 0);
        }
    double mass = 0;
    for (int32_t i = 0; i < n_bin; i++) {
        b->logp[i] = (float)((double)x[b->ids[i]] - norm);
        mass += exp((double)b->logp[i]);
    }
    b->rest = (float)(mass < 1 ? 1 - mass : 0);
}

static double divergence(const struct bins *b, const float *x, int32_t n_bin, double norm) {
    double sum = 0, mass = 0;
    for (int32_t i = 0; i < n_bin; i++) {
        double p = exp((double)b->logp[i]), q = (double)x[b->ids[i]] - norm;
        sum += p * ((double)b->logp[i] - q);
        mass += exp(q);
    }
    double rest = 1 - mass;
    if (b->rest > 1e-9f)
        sum += (double)b->rest * log((double)b->rest / (rest > 1e-9 ? rest : 1e-9));
    return sum > 0 ? sum : 0;
}

static void judge_part(void *arg, int ith, int n_thread) {
    struct ramp_judge *j = arg;
    int32_t n_vocab = j->m->hp.n_vocab;
    for (int32_t k = ith; k < j->n_now; k += n_thread) {
        const float *x = j->rows + (int64_t)k * n_vocab;
        size_t at = j->which[j->window] * (size_t)j->n_row + (size_t)(j->pos + k - FIRST);
        double norm = logprob_norm(x, n_vocab);
        j->kl[at] = norm;
        if (!isfinite(norm)) continue;
        if (j->is_reference) keep_top(&j->bins[at], x, n_vocab, j->n_bin, norm);
        else j->kl[at] = divergence(&j->bins[at], x, j->n_bin, norm);
    }
}

static int on_rows(void *ud, size_t i, int32_t pos, int32_t n_row, const float *rows,
                   struct err *e) {
    struct ramp_judge *j = ud;
    j->window = i;
    j->pos = pos;
    j->n_now = n_row;
    j->rows = rows;
    pool_run(j->pool, judge_part, j);
    for (int32_t k = 0; k < n_row; k++)
        if (!isfinite(j->kl[j->which[i] * (size_t)j->n_row + (size_t)(pos + k - FIRST)]))
            return err_set(e, CHIMERE_ENUMERIC, "window %zu, position %d: expected finite logits",
                           j->which[i], pos + k);
    return 0;
}

static int run(struct ramp_judge *j, size_t n, struct err *e) {
    static const struct windows_params p = {
        .n_seq = N_SEQ, .n_batch = N_BATCH, .k_type = QUANT_F16, .v_type = QUANT_F16};
    for (size_t i = 0; i < n; i++) {
        j->which[i] = i * j->t->n_window / n;
        j->windows[i] = (struct window){.tokens = j->t->tokens + j->which[i] * (size_t)j->t->ctx,
                                        .n_tok = j->t->ctx,
                                        .first = FIRST};
    }
    return windows_run(j->m, j->windows, n, &p, on_rows, j, e);
}

int ramp_judge_open(struct ramp_judge **out, struct model *m, const struct windows_text *t,
                    int n_thread, struct err *e) {
    *out = NULL;
    struct ramp_judge *j = mem_zalloc(sizeof *j);
    if (!j) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    j->m = m;
    j->t = t;
    j->n_row = t->ctx - 1 - FIRST;
    j->n_bin = m->hp.n_vocab < BINS ? m->hp.n_vocab : BINS;
    size_t n = t->n_window * (size_t)j->n_row;
    j->pool = pool_new(n_thread);
    j->bins = mem_alloc_array(n, sizeof *j->bins);
    j->kl = mem_alloc_array(n, sizeof *j->kl);
    j->windows = mem_alloc_array(t->n_window, sizeof *j->windows);
    j->which = mem_alloc_array(t->n_window, sizeof *j->which);
    int rc = j->pool && j->bins && j->kl && j->windows && j->which
                 ? 0
                 : err_set(e, CHIMERE_ENOMEM, "divergence: out of memory");
    j->is_reference = true;
    if (!rc) rc = run(j, t->n_window, e);
    j->is_reference = false;
    if (rc) ramp_judge_close(j);
    else *out = j;
    return rc;
}

void ramp_judge_close(struct ramp_judge *j) {
    if (!j) return;
    pool_free(j->pool);
    mem_free(j->bins);
    mem_free(j->kl);
    mem_free(j->windows);
    mem_free(j->which);
    mem_free(j);
}

int ramp_judge_run(struct ramp_judge *j, size_t n_window, double *kl, struct err *e) {
    size_t n = n_window && n_window < j->t->n_window ? n_window : j->t->n_window;
    int rc = run(j, n, e);
    double sum = 0;
    for (size_t i = 0; i < n && !rc; i++)
        for (int32_t k = 0; k < j->n_row; k++)
            sum += j->kl[j->which[i] * (size_t)j->n_row + (size_t)k];
    *kl = sum / (double)(n * (size_t)j->n_row);
    return rc;
}
