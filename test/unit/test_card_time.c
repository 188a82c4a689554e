/* test_card_time.c: predictions from runs whose kernels follow the model exactly. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "ramp/card_time.h"

static const struct kernel {
    const char *name;
    uint64_t n, bytes;
    double latency, work; /* us; us x multiprocessors */
} kernels[] = {
    {"read", 30, 20000000, 1, 100}, {"compute", 10, 1000000, 2, 3000}, {"small", 200, 0, 1.5, 20}};

/* us of a step by the definition, independent of card_time(). */
static double step_of(const struct ramp_card *card, int32_t n_sm, double slower,
                      double work_slower) {
    double us = 0;
    for (size_t i = 0; i < 3; i++) {
        const struct kernel *k = &kernels[i];
        double read = (double)k->bytes / (0.92 * card->bandwidth) * 1e6;
        double work = k->work * work_slower / n_sm;
        us += (double)k->n * (k->latency * slower + (read > work ? read : work));
    }
    return us;
}

static double step(const struct ramp_card *card, int32_t n_sm, double slower) {
    return step_of(card, n_sm, slower, slower);
}

/* events: how much more the sum of kernels is than the step. */
static struct card_run run_of(const struct ramp_card *card, int32_t n_sm, double events) {
    struct card_run r = {.n_sm = n_sm, .n_seq = 1, .n_kernel = 3};
    r.us = step(card, n_sm, 1);
    for (size_t i = 0; i < 3; i++) {
        const struct kernel *k = &kernels[i];
        double read = (double)k->bytes / (0.92 * card->bandwidth) * 1e6, work = k->work / n_sm;
        r.kernels[i] = (struct op_time){.n_launch = k->n, .bytes = k->bytes};
        snprintf(r.kernels[i].name, sizeof r.kernels[i].name, "%s", k->name);
        r.kernels[i].us = events * (double)k->n * (k->latency + (read > work ? read : work));
    }
    return r;
}

static void other_cards_follow_the_model(void **state) {
    (void)state;
    const struct ramp_card *here = ramp_card_find("h100-80g");
    assert_non_null(here);
    struct card_run all = run_of(here, 132, 1.3), few = run_of(here, 40, 1.2);
    static const char *const names[] = {"rtx-3060-12g", "rtx-5060-ti-16g", "rtx-5090-32g"};
    for (size_t i = 0; i < 3; i++) {
        const struct ramp_card *card = ramp_card_find(names[i]);
        assert_non_null(card);
        double want = step(card, card->n_sm, here->clock / card->clock);
        assert_true(fabs(card_time(&all, &few, here, card, false) / want - 1) < 1e-6);
        /* a GeForce multiplies a quarter as many bytes per clock and multiprocessor */
        want = step_of(card, card->n_sm, here->clock / card->clock, 4 * here->clock / card->clock);
        assert_true(fabs(card_time(&all, &few, here, card, true) / want - 1) < 1e-6);
    }
    struct ramp_card part = *here;
    part.n_sm = 64;
    assert_true(fabs(card_time(&all, &few, here, &part, false) / step(here, 64, 1) - 1) < 1e-6);
}

static void kernels_that_differ_count_as_latency(void **state) {
    (void)state;
    const struct ramp_card *here = ramp_card_find("h100-80g");
    struct card_run all = run_of(here, 132, 1), few = run_of(here, 40, 1);
    snprintf(few.kernels[1].name, sizeof few.kernels[1].name, "another");
    struct ramp_card part = *here;
    part.n_sm = 20;
    double us = card_time(&all, &few, here, &part, false);
    assert_true(isfinite(us) && us > all.us * 0.9);
    few.n_kernel = 0; /* nothing was timed */
    assert_true(isfinite(card_time(&all, &few, here, &part, false)));
}

static void cards_are_told_apart_by_bandwidth(void **state) {
    (void)state;
    assert_string_equal(card_of(132, 3.1e12)->name, "h100-80g");
    assert_string_equal(card_of(132, 4.4e12)->name, "h200-141g");
    assert_string_equal(card_of(36, 4.1e11)->name, "rtx-5060-ti-16g");
    assert_null(card_of(1, 1e12));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_cards_follow_the_model),
        cmocka_unit_test(kernels_that_differ_count_as_latency),
        cmocka_unit_test(cards_are_told_apart_by_bandwidth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
