/* test_engram_vec.c: neighbours against brute force, exact for few vectors, most of them for many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engram/vec.h"

enum { DIM = 32, K = 5 };

/* Unit vectors around n_centre directions, as embeddings of texts on so many subjects would lie. */
static float *make(int64_t n, int n_centre, uint64_t seed) {
    float *x = mem_alloc_array((size_t)n * DIM, sizeof *x);
    struct rng r;
    rng_seed(&r, 1);
    static float centres[256][DIM];
    for (int c = 0; c < n_centre; c++)
        for (int k = 0; k < DIM; k++) centres[c][k] = (float)rng_normal(&r);
    rng_seed(&r, seed);
    for (int64_t i = 0; i < n; i++) {
        const float *c = centres[rng_below(&r, (uint64_t)n_centre)];
        float sum = 0, *v = x + i * DIM;
        for (int k = 0; k < DIM; k++)
            v[k] = c[k] + 0.6f * (float)rng_normal(&r), sum += v[k] * v[k];
        for (int k = 0; k < DIM; k++) v[k] /= sqrtf(sum);
    }
    return x;
}

static float dot(const float *a, const float *b) {
    float s = 0;
    for (int k = 0; k < DIM; k++) s += a[k] * b[k];
    return s;
}

/* Share of the true K nearest that the search finds, over 100 queries. */
static double recall(int64_t n) {
    struct engram_vec *v;
    struct err e = {0};
    float *x = make(n, 64, 2), *q = make(100, 64, 3);
    int found = 0;
    if (engram_vec_new(&v, x, n, DIM, &e)) fail_msg("%s", e.text);
    for (int i = 0; i < 100; i++) {
        int64_t ids[K];
        float products[K], kth = -2;
        assert_int_equal(engram_vec_search(v, q + i * DIM, K, ids, products, &e), 0);
        float best[K];
        for (int k = 0; k < K; k++) best[k] = -2;
        for (int64_t j = 0; j < n; j++) {
            float s = dot(x + j * DIM, q + i * DIM);
            for (int k = 0; k < K; k++)
                if (s > best[k]) {
                    memmove(best + k + 1, best + k, (size_t)(K - 1 - k) * sizeof *best);
                    best[k] = s;
                    break;
                }
        }
        kth = best[K - 1];
        for (int k = 0; k < K; k++) {
            assert_true(ids[k] >= 0 && ids[k] < n);
            assert_true(fabsf(products[k] - dot(x + ids[k] * DIM, q + i * DIM)) < 1e-4f);
            assert_true(k == 0 || products[k] <= products[k - 1]);
            found += products[k] >= kth - 1e-6f;
        }
    }
    engram_vec_free(v);
    mem_free(x);
    mem_free(q);
    return found / (100. * K);
}

static void few_are_exact(void **state) {
    (void)state;
    assert_true(recall(1000) == 1);
}

static void many_are_mostly_found(void **state) {
    (void)state;
    double r = recall(20000);
    if (r < 0.9) fail_msg("recall %.3f", r);
}

static void fewer_than_asked_for(void **state) {
    (void)state;
    struct engram_vec *v;
    struct err e = {0};
    const float x[2][DIM] = {{1}, {0, 1}};
    int64_t ids[K];
    float products[K];
    assert_int_equal(engram_vec_new(&v, x[0], 2, DIM, &e), 0);
    assert_int_equal(engram_vec_search(v, x[1], K, ids, products, &e), 0);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 0);
    assert_int_equal(ids[2], -1);
    assert_int_equal(engram_vec_search(v, x[1], 0, ids, products, &e), CHIMERE_EINVAL);
    engram_vec_free(v);
    assert_int_equal(engram_vec_new(&v, x[0], 2, 0, &e), CHIMERE_EINVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_are_exact),
        cmocka_unit_test(many_are_mostly_found),
        cmocka_unit_test(fewer_than_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
