/* test_products.c: sums of products of inputs against sums in double precision, and the same bits with any number of
 * threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "eval/products.h"

enum { BLOCK = PRODUCTS_BLOCK, N_IN = 3 * BLOCK, N_ROW = 300 };

static float rows[N_ROW][N_IN];

static void fill(void) {
    struct rng r;
    rng_seed(&r, 5);
    for (int i = 0; i < N_ROW; i++)
        for (int k = 0; k < N_IN; k++) rows[i][k] = (float)rng_normal(&r);
}

/* Rows go to the matrices in turn. */
static struct products *sums_of(int64_t n_in, int n_mat, int n_row, int n_thread) {
    struct pool *pool = pool_new(n_thread);
    struct products *p = products_new(n_in, n_mat);
    assert_non_null(pool);
    assert_non_null(p);
    for (int i = 0; i < n_row; i++) products_add(p, pool, i % n_mat, rows[i]);
    products_finish(p, pool);
    pool_free(pool);
    return p;
}

static void check(int n_in, int n_mat, int n_row) {
    struct products *p = sums_of(n_in, n_mat, n_row, 1), *q = sums_of(n_in, n_mat, n_row, 3);
    const float *got = products_sums(p);
    assert_memory_equal(got, products_sums(q), (size_t)(n_mat * n_in * BLOCK) * sizeof *got);
    for (int m = 0; m < n_mat; m++)
        for (int i = 0; i < n_in; i++)
            for (int j = 0; j < BLOCK; j++, got++) {
                int other = i / BLOCK * BLOCK + j;
                double want = 0;
                for (int r = m; r < n_row && other < n_in; r += n_mat)
                    want += (double)rows[r][i] * (double)rows[r][other];
                if (!(fabs((double)*got - want) <= 1e-4 * (1 + fabs(want))))
                    fail_msg("%d inputs, matrix %d of %d, inputs %d and %d: %g, expected %g", n_in,
                             m, n_mat, i, other, (double)*got, want);
            }
    products_free(p);
    products_free(q);
}

/* Widths that are no multiple of a block, a panel or a tile; more rows than are kept, and fewer. */
static void sums_are_those_of_the_rows(void **state) {
    (void)state;
    fill();
    check(576, 1, N_ROW);
    check(257, 1, 128);
    check(13, 1, 5);
    check(3, 4, N_ROW);
    check(268, 3, 299);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_those_of_the_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
