/* test_ramp.c: choices of types against brute force: a result fits, and no uniform choice that fits is better. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "format/quant.h"
#include "ramp/ramp_effort.h"
#include "ramp/ramp_hull.h"
#include "ramp/ramp_store.h"
#include "ramp/ramp_type.h"

enum { N_GENE = 5, N_FORM = 4, N_WEIGHT = 256 };
static const uint32_t types[N_FORM] = {QUANT_IQ2_S, QUANT_IQ3_S, QUANT_IQ4_XS, QUANT_Q5_K};

struct small {
    struct ramp_set set;
    struct ramp_gene genes[N_GENE];
    struct gguf_tensor tensors[N_GENE];
};

static void model_init(struct small *m) {
    memset(m, 0, sizeof *m);
    m->set.genes = m->genes;
    m->set.n_gene = N_GENE;
    m->set.n_weights = N_GENE * N_WEIGHT;
    m->set.alignment = 1;
    for (int i = 0; i < N_GENE; i++) {
        m->tensors[i] = (struct gguf_tensor){.ne = {N_WEIGHT, 1, 1, 1}, .n_elements = N_WEIGHT};
        m->genes[i] = (struct ramp_gene){.tensor = &m->tensors[i], .gain = 1, .share = 1};
    }
}

static void add_form(struct small *m, int gene, uint64_t bytes, double error) {
    struct ramp_gene *g = &m->genes[gene];
    struct ramp_form f = {.n_bytes = bytes, .error = error};
    f.to.type = types[g->n_form];
    f.to.n_bytes = bytes;
    g->forms[g->n_form++] = f;
}

/* The least predicted divergence of all choices that fit, and of the uniform ones. */
static void brute_force(const struct small *m, const struct ramp_limit *l, double *best,
                        double *uniform) {
    *best = *uniform = INFINITY;
    for (int code = 0; code < 1 << (2 * N_GENE); code++) {
        uint8_t choice[N_GENE];
        bool is_uniform = true;
        uint64_t bytes = 0;
        double sum = 0;
        for (int i = 0; i < N_GENE; i++) {
            choice[i] = (uint8_t)(code >> 2 * i & 3);
            is_uniform &= choice[i] == choice[0];
            bytes += m->genes[i].forms[choice[i]].n_bytes;
            sum += m->genes[i].gain * m->genes[i].forms[choice[i]].error;
        }
        if (bytes > l->bytes) continue;
        *best = fmin(*best, sum);
        if (is_uniform) *uniform = fmin(*uniform, sum);
    }
}

/* The steepest step from 10 bytes is to 25, which only three of five tensors can take; 20 for all is better. */
static void a_uniform_choice_inside_the_hull_is_found(void **st) {
    (void)st;
    struct small m;
    uint8_t choice[N_GENE];
    const struct ramp_limit l = {.bytes = N_GENE * 20};
    model_init(&m);
    for (int i = 0; i < N_GENE; i++) {
        add_form(&m, i, 10, 1);
        add_form(&m, i, 20, .72);
        add_form(&m, i, 25, .55);
        add_form(&m, i, 90, .5);
    }
    ramp_hull_mark(&m.set);
    assert_int_equal(ramp_solve(&m.set, NULL, &l, choice, NULL), 0);
    assert_true(ramp_set_bytes(&m.set, choice) <= l.bytes);
    assert_true(ramp_set_predict(&m.set, choice) <= N_GENE * .72 + 1e-9);
}

static void results_fit_and_beat_uniform_choices(void **st) {
    (void)st;
    struct rng r;
    double excess = 0;
    int n_solved = 0;
    rng_seed(&r, 38);
    for (int trial = 0; trial < 400; trial++) {
        struct small m;
        uint8_t choice[N_GENE];
        double best, uniform;
        model_init(&m);
        for (int i = 0; i < N_GENE; i++) {
            uint64_t bytes = 8;
            double error = 1 + rng_uniform(&r);
            m.genes[i].gain = exp(rng_normal(&r));
            for (int k = 0; k < N_FORM; k++) {
                add_form(&m, i, bytes, error);
                bytes += 1 + rng_below(&r, 12);
                error *= .2 + .7 * rng_uniform(&r);
            }
        }
        const struct ramp_limit l = {.bytes = 40 + rng_below(&r, 140)};
        ramp_hull_mark(&m.set);
        brute_force(&m, &l, &best, &uniform);
        assert_int_equal(ramp_solve(&m.set, NULL, &l, choice, NULL), 0);
        double found = ramp_set_predict(&m.set, choice);
        assert_true(ramp_set_bytes(&m.set, choice) <= l.bytes);
        assert_true(found <= uniform * (1 + 1e-12));
        assert_true(found >= best * (1 - 1e-12));
        excess += found / best - 1;
        n_solved++;
    }
    if (excess / n_solved > .03)
        fail_msg("%.3f above the optimum on average, expected at most 0.03", excess / n_solved);
}

/* Tensors without the type take their next larger form, so that "uniform" never has less than was asked for. */
static void a_uniform_choice_has_a_fallback(void **st) {
    (void)st;
    struct small m;
    uint8_t choice[N_GENE];
    model_init(&m);
    for (int i = 0; i < N_GENE; i++)
        for (int k = 0; k < N_FORM; k++) add_form(&m, i, 60 + 40 * (uint64_t)k, 1);
    for (int k = 1; k + 1 < N_FORM; k++) m.genes[2].forms[k] = m.genes[2].forms[k + 1];
    m.genes[2].n_form--; /* no IQ3_S: 60, 140, 180 bytes */
    ramp_uniform(&m.set, QUANT_IQ3_S, choice);
    for (int i = 0; i < N_GENE; i++) assert_int_equal(choice[i], 1);
    ramp_uniform(&m.set, QUANT_Q8_0, choice); /* 272 bytes: none has so many */
    for (int i = 0; i < N_GENE; i++) assert_int_equal(choice[i], m.genes[i].n_form - 1);
}

/* A form is paid for once; a choice that costs too much changes nothing. */
static void effort_is_spent_once(void **st) {
    (void)st;
    struct small m;
    uint8_t choice[N_GENE] = {0, 1, 2, RAMP_SOURCE, 1};
    model_init(&m);
    for (int i = 0; i < N_GENE; i++)
        for (int k = 0; k < N_FORM; k++) add_form(&m, i, 60 + 40 * (uint64_t)k, 1);
    double cost =
        N_WEIGHT * (ramp_type_cost(types[0], false) + 2 * ramp_type_cost(types[1], false) +
                    ramp_type_cost(types[2], false));
    m.set.effort = 1.5 * cost;
    assert_true(fabs(ramp_effort_of(&m.set, choice) - cost) < 1e-12);
    assert_false(ramp_effort_take(&m.set, choice, .9 * cost));
    assert_true(fabs(ramp_effort_of(&m.set, choice) - cost) < 1e-12);
    assert_true(ramp_effort_take(&m.set, choice, 2 * cost));
    assert_true(fabs(m.set.effort - .5 * cost) < 1e-12);
    assert_true(ramp_effort_of(&m.set, choice) == 0);
    assert_true(ramp_effort_take(&m.set, choice, 0));
    choice[1] = 0; /* one more form, and more than is left of the effort */
    m.set.effort = .9 * N_WEIGHT * ramp_type_cost(types[0], false);
    assert_false(ramp_effort_take(&m.set, choice, 2 * cost));
    assert_true(ramp_effort_of(&m.set, choice) > 0);
}

/* A small model is measured as asked; a large one on fewer tokens, in proportion to the effort, but never on none.
 * Correlated inputs make a form dearer. */
static void measuring_is_bounded_by_the_effort(void **st) {
    (void)st;
    struct small m;
    struct ramp_options as_asked, few, more;
    ramp_defaults(&as_asked);
    model_init(&m);
    few = as_asked;
    assert_false(ramp_effort_limit(&few, &m.set));
    assert_memory_equal(&few, &as_asked, sizeof few);
    for (int i = 0; i < N_GENE; i++) m.tensors[i].n_elements = 200 * 1000 * 1000;
    more = as_asked;
    more.effort_s *= 8;
    assert_true(ramp_effort_limit(&few, &m.set));
    ramp_effort_limit(&more, &m.set);
    double a = (double)few.population * few.generations * few.judge_tok,
           b = (double)more.population * more.generations * more.judge_tok;
    assert_true(a < b && b < 128. * 12 * 16384 && a >= 32. * 3 * 8192);
    few = as_asked;
    few.effort_s = 0;
    assert_true(ramp_effort_limit(&few, &m.set));
    assert_int_equal(few.population, 32);
    assert_int_equal(few.generations, 3);
    assert_int_equal(few.probe_tok, 512);
    uint8_t choice[N_GENE] = {0};
    add_form(&m, 0, 60, 1);
    memset(choice + 1, RAMP_SOURCE, N_GENE - 1);
    double plain = ramp_effort_of(&m.set, choice);
    m.genes[0].is_correlated = true;
    assert_true(ramp_effort_of(&m.set, choice) > 2 * plain);
}

/* When the effort is used up, solutions mix the forms that are encoded, and are no worse than a choice of them. */
static void solutions_take_encoded_forms(void **st) {
    (void)st;
    struct rng r;
    rng_seed(&r, 39);
    for (int trial = 0; trial < 200; trial++) {
        struct small m;
        uint8_t known[2][N_GENE], choice[N_GENE];
        model_init(&m);
        for (int i = 0; i < N_GENE; i++) {
            uint64_t bytes = 8;
            double error = 1 + rng_uniform(&r);
            for (int k = 0; k < N_FORM; k++) {
                add_form(&m, i, bytes, error);
                bytes += 1 + rng_below(&r, 12);
                error *= .2 + .7 * rng_uniform(&r);
            }
            for (int k = 0; k < 2; k++) known[k][i] = (uint8_t)rng_below(&r, N_FORM);
        }
        m.set.effort = 1;
        for (int k = 0; k < 2; k++) assert_true(ramp_effort_take(&m.set, known[k], 1));
        m.set.only_encoded = true;
        ramp_hull_mark(&m.set);
        const struct ramp_limit l = {.bytes = ramp_set_bytes(&m.set, known[0])};
        assert_int_equal(ramp_solve(&m.set, NULL, &l, choice, NULL), 0);
        assert_true(ramp_set_bytes(&m.set, choice) <= l.bytes);
        for (int i = 0; i < N_GENE; i++)
            assert_true(choice[i] == known[0][i] || choice[i] == known[1][i]);
    }
}

/* A card with little bandwidth per multiprocessor reads as fast as its memory allows, and a type in a wider form more
 * bytes than the file has; other cards, and types that take many instructions, are bound by their multiprocessors. */
static void speed_is_that_of_memory_or_of_work(void **st) {
    (void)st;
    static const struct {
        const char *card;
        uint32_t type;
        double gb_s;
    } cases[] = {
        {"rtx-5060-ti-16g", QUANT_Q8_0, .92 * 448},
        {"rtx-5060-ti-16g", QUANT_IQ4_KSS, .92 * 448 * 4 / 4.375},
        {"rtx-5060-ti-16g", QUANT_IQ1_S, .92 * 448 * 1.5625 / 10},
        {"rtx-5060-ti-16g", QUANT_IQ2_XXS, 736. / 132 / 1980 * 36 * 2572},
        {"h200-141g", QUANT_IQ3_KT, 786},
        {"h200-141g", QUANT_F16, 2956},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double v = ramp_type_speed(ramp_card_find(cases[i].card), cases[i].type) * 1e-9;
        if (fabs(v - cases[i].gb_s) > 1e-6 * cases[i].gb_s)
            fail_msg("case %zu: %.3f GB/s, expected %.3f", i, v, cases[i].gb_s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_uniform_choice_inside_the_hull_is_found),
        cmocka_unit_test(results_fit_and_beat_uniform_choices),
        cmocka_unit_test(a_uniform_choice_has_a_fallback),
        cmocka_unit_test(effort_is_spent_once),
        cmocka_unit_test(measuring_is_bounded_by_the_effort),
        cmocka_unit_test(solutions_take_encoded_forms),
        cmocka_unit_test(speed_is_that_of_memory_or_of_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
