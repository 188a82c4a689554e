/* test_spec_cost.c: the arithmetic of speculation against sums by hand and against simulated rounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "base/rng.h"
#include "engine/draft/spec_cost.h"

static void near(double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance)) fail_msg("expected %.6f, got %.6f", want, got);
}

static void expected_tokens_are_the_sum_of_products(void **state) {
    (void)state;
    const double a[] = {0.88, 0.80, 0.72}, none[] = {0, 1, 1}, all[] = {1, 1, 1};
    near(spec_expected(a, 0), 1, 0);
    near(spec_expected(a, 1), 1.88, 1e-12);
    near(spec_expected(a, 2), 2.584, 1e-12);   /* + 0.704 */
    near(spec_expected(a, 3), 3.09088, 1e-12); /* + 0.50688 */
    near(spec_expected(none, 3), 1, 0);        /* what follows a rejected slot is worth nothing */
    near(spec_expected(all, 3), 4, 0);
}

/* Rounds drawn one slot at a time, as a target would accept them. */
static void expected_tokens_agree_with_simulated_rounds(void **state) {
    (void)state;
    const double a[] = {0.9, 0.5, 0.7, 0.2};
    enum { N = 200000 };
    struct rng rng;
    rng_seed(&rng, 3);
    for (int32_t k = 0; k <= 4; k++) {
        int64_t n_tok = 0;
        for (int i = 0; i < N; i++) {
            int32_t kept = 0;
            while (kept < k && rng_uniform(&rng) < a[kept]) kept++;
            n_tok += 1 + kept;
        }
        near(spec_expected(a, k), (double)n_tok / N, 0.02);
    }
}

static void the_best_depth_weighs_tokens_against_cost(void **state) {
    (void)state;
    const double good[] = {0.88, 0.80, 0.72}, poor[] = {0.5, 0.3, 0.2};
    const double cheap[] = {1, 1.2, 1.35, 1.5}, dear[] = {1, 1.55, 2.1, 2.7};
    double gain;
    assert_int_equal(spec_best_depth(good, cheap, 3, &gain), 3);
    near(gain, 3.09088 / 1.5, 1e-12);
    assert_int_equal(spec_best_depth(good, cheap, 2, &gain), 2); /* no deeper than asked for */
    near(gain, 2.584 / 1.35, 1e-12);
    assert_int_equal(spec_best_depth(poor, cheap, 3, &gain), 1);
    near(gain, 1.5 / 1.2, 1e-12);                               /* two: 1.65 / 1.35 = 1.222 */
    assert_int_equal(spec_best_depth(poor, dear, 3, &gain), 0); /* plain decoding is an arm */
    near(gain, 1, 0);
    assert_int_equal(spec_best_depth(good, dear, 3, NULL), 2); /* 1.213, 1.230, 1.145 */
}

static void unknown_costs_are_not_chosen(void **state) {
    (void)state;
    const double all[] = {1, 1}, holes[] = {1, 0, 2.9}, no_plain[] = {0, 1, 1};
    assert_int_equal(spec_best_depth(all, holes, 2, NULL), 2);
    assert_int_equal(spec_best_depth(all, holes, 1, NULL), 0);
    assert_int_equal(spec_best_depth(all, no_plain, 2, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expected_tokens_are_the_sum_of_products),
        cmocka_unit_test(expected_tokens_agree_with_simulated_rounds),
        cmocka_unit_test(the_best_depth_weighs_tokens_against_cost),
        cmocka_unit_test(unknown_costs_are_not_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
