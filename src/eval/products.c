/* products.c: see products.h. */
#include "eval/products.h"

#include <string.h>

#include "base/mem.h"
#include "base/pool.h"

enum {
    BLOCK = PRODUCTS_BLOCK,
    PANEL = 8, /* inputs whose values are stored together, row after row */
    TILE = 4,  /* by PANEL: sums that fit in the registers of any processor */
    /* Rows that are kept. Each pass reads and writes all sums, 1 KiB per input: with 8 rows, memory was the limit. */
    ROWS_SINGLE = 128,
    ROWS_STACK = 32, /* per matrix of a stack, so that they take an eighth of the sums' memory */
};

struct products {
    int64_t n_in, n_mat, n_panel;
    int32_t n_row; /* rows that are kept at most */
    float *sums;   /* owned [n_mat, n_in, BLOCK] */
    float *rows;   /* owned [n_mat, n_panel, n_row, PANEL] */
    int32_t *have; /* owned [n_mat]: number of rows kept */
};

struct products *products_new(int64_t n_in, int64_t n_mat) {
    struct products *p = mem_zalloc(sizeof *p);
    if (!p) return NULL;
    p->n_in = n_in;
    p->n_mat = n_mat;
    p->n_panel = (n_in + PANEL - 1) / PANEL;
    p->n_row = n_mat == 1 ? ROWS_SINGLE : ROWS_STACK;
    p->sums = mem_alloc_array((size_t)(n_mat * n_in), BLOCK * sizeof *p->sums);
    p->rows =
        mem_alloc_array((size_t)(n_mat * p->n_panel), (size_t)p->n_row * PANEL * sizeof *p->rows);
    p->have = mem_alloc_array((size_t)n_mat, sizeof *p->have);
    if (p->sums && p->rows && p->have) return p;
    products_free(p);
    return NULL;
}

void products_free(struct products *p) {
    if (!p) return;
    mem_free(p->sums);
    mem_free(p->rows);
    mem_free(p->have);
    mem_free(p);
}

/* ---- adding the rows that are kept ---- */

struct job {
    const struct products *p;
    const float *rows; /* view: of the matrix */
    float *sums;       /* view: of the matrix */
    int32_t n_row;
    int64_t next;
};

/* sums[i, j] += the products of input i of panel a and input j of panel b. */
static void add_tile(const float *a, const float *b, int32_t n_row, int64_t n_i, float *sums) {
    float acc[TILE][PANEL] = {{0}};
    for (int32_t r = 0; r < n_row; r++, a += PANEL, b += PANEL)
        for (int i = 0; i < TILE; i++)
            for (int j = 0; j < PANEL; j++) acc[i][j] += a[i] * b[j];
    for (int64_t i = 0; i < n_i; i++)
        for (int j = 0; j < PANEL; j++) sums[i * BLOCK + j] += acc[i][j];
}

/* The products of a panel with itself and the later panels of its block; the rest is symmetric. */
static void add_panel(const struct job *j, int64_t panel) {
    const struct products *p = j->p;
    int64_t size = (int64_t)p->n_row * PANEL, i = panel * PANEL, block = i / BLOCK * BLOCK;
    int64_t end = block + BLOCK < p->n_in ? block + BLOCK : p->n_in;
    for (int64_t k = i; k < end; k += PANEL)
        for (int64_t t = 0; t < PANEL && i + t < p->n_in; t += TILE)
            add_tile(j->rows + panel * size + t, j->rows + k / PANEL * size, j->n_row,
                     p->n_in - i - t < TILE ? p->n_in - i - t : TILE,
                     j->sums + (i + t) * BLOCK + k - block);
}

static void add_panels(void *arg, int ith, int n_thread) {
    struct job *j = arg;
    int64_t i, last;
    (void)ith;
    while (pool_take(&j->next, j->p->n_panel, n_thread, &i, &last))
        for (; i < last; i++) add_panel(j, i);
}

static void flush(struct products *p, struct pool *pool, int64_t mat) {
    struct job j = {.p = p,
                    .rows = p->rows + mat * p->n_panel * p->n_row * PANEL,
                    .sums = p->sums + mat * p->n_in * BLOCK,
                    .n_row = p->have[mat]};
    pool_run(pool, add_panels, &j);
    p->have[mat] = 0;
}

void products_add(struct products *p, struct pool *pool, int64_t mat, const float *x) {
    float *row = p->rows + (mat * p->n_panel * p->n_row + p->have[mat]) * PANEL;
    for (int64_t i = 0; i < p->n_in; i += PANEL, row += (int64_t)p->n_row * PANEL)
        memcpy(row, x + i, (size_t)(p->n_in - i < PANEL ? p->n_in - i : PANEL) * sizeof *x);
    if (++p->have[mat] == p->n_row) flush(p, pool, mat);
}

void products_finish(struct products *p, struct pool *pool) {
    for (int64_t mat = 0; mat < p->n_mat; mat++) {
        float *sums = p->sums + mat * p->n_in * BLOCK;
        if (p->have[mat]) flush(p, pool, mat);
        for (int64_t i = 0; i < p->n_in; i++)
            for (int64_t j = 0; j < i % BLOCK; j++)
                sums[i * BLOCK + j] = sums[(i / BLOCK * BLOCK + j) * BLOCK + i % BLOCK];
    }
}

const float *products_sums(const struct products *p) { return p->sums; }
