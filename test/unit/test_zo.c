/* test_zo.c: training by losses alone, on functions whose gradients are known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "kernels/cpu/cpu.h"
#include "learn/step/night_step.h"
#include "scratch.h"
#include "tiny_prm.h"

enum { N = 200, N_SMALL = 6 };

static const struct zo_rule *rule_of(const char *name) {
    const struct zo_rule *r;
    assert_int_equal(zo_rule_of(&r, name, NULL), 0);
    return r;
}

static double wanted(size_t k) { return sin(3.0 * (double)k); }

static double quadratic(const float *v, size_t n) {
    double sum = 0;
    for (size_t k = 0; k < n; k++) sum += (v[k] - wanted(k)) * (v[k] - wanted(k)) / (double)n;
    return sum;
}

static void train(const char *name, uint64_t seed, float lr, int32_t n_step, float v[N]) {
    float member[N], velocity[N] = {0};
    struct zo_step s = {
        .rule = rule_of(name), .seed = seed, .n_step = n_step, .lr = lr, .eps = 1e-2f};
    s.n_member = s.rule->members;
    memset(v, 0, N * sizeof *v);
    for (s.step = 0; s.step < n_step; s.step++) {
        double loss[ZO_MAX_MEMBERS];
        for (int32_t i = 0; i < s.n_member; i++) {
            zo_perturb(&s, i, v, member, N);
            loss[i] = quadratic(member, N);
        }
        zo_update(&s, loss, v, velocity, N);
    }
}

static void every_rule_lowers_the_loss(void **state) {
    (void)state;
    static const struct {
        const char *name;
        float lr;
        int32_t n_step;
    } cases[] = {{"fzoo", 1e-2f, 1000}, {"mezo", 0.3f, 1500}, {"es", 4e-2f, 1500}};
    float v[N], again[N], other[N], zero[N] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        train(cases[i].name, 7, cases[i].lr, cases[i].n_step, v);
        print_message("%s: %.4f to %.4f\n", cases[i].name, quadratic(zero, N), quadratic(v, N));
        assert_true(quadratic(v, N) < 0.2 * quadratic(zero, N));
        train(cases[i].name, 7, cases[i].lr, cases[i].n_step, again);
        assert_memory_equal(v, again, sizeof v);
        train(cases[i].name, 8, cases[i].lr, cases[i].n_step, other);
        assert_memory_not_equal(v, other, sizeof v);
    }
}

/* One step of MeZO, computed from its two members alone. */
static void mezo_is_two_sided(void **state) {
    (void)state;
    float v[N], plus[N], minus[N], velocity[N] = {0};
    const struct zo_step s = {.rule = rule_of("mezo"),
                              .seed = 3,
                              .step = 5,
                              .n_step = 9,
                              .n_member = 2,
                              .lr = 0.25f,
                              .eps = 0.125f};
    for (size_t k = 0; k < N; k++) v[k] = (float)cos((double)k);
    zo_perturb(&s, 0, v, plus, N);
    zo_perturb(&s, 1, v, minus, N);
    const double loss[2] = {quadratic(plus, N), quadratic(minus, N)};
    double slope = (loss[0] - loss[1]) / (2 * 0.125), want[N];
    for (size_t k = 0; k < N; k++) {
        assert_float_equal((double)plus[k] + (double)minus[k], 2 * (double)v[k], 1e-6);
        want[k] = (double)v[k] - 0.25 * slope * ((double)plus[k] - (double)minus[k]) / (2 * 0.125);
    }
    zo_update(&s, loss, v, velocity, N);
    for (size_t k = 0; k < N; k++) assert_float_equal(v[k], want[k], 1e-5);
}

/* On a plane, the mean of many estimates is the gradient. */
static void mezo_is_unbiased(void **state) {
    (void)state;
    static const double gradient[N_SMALL] = {1, -2, 0.5, 0, 3, -0.25};
    enum { STEPS = 20000 };
    double mean[N_SMALL] = {0};
    struct zo_step s = {
        .rule = rule_of("mezo"), .seed = 11, .n_step = STEPS, .n_member = 2, .lr = 1, .eps = 0.5f};
    for (s.step = 0; s.step < STEPS; s.step++) {
        float v[N_SMALL] = {0}, velocity[N_SMALL] = {0}, member[N_SMALL];
        double loss[2] = {0};
        for (int32_t i = 0; i < 2; i++) {
            zo_perturb(&s, i, v, member, N_SMALL);
            for (size_t k = 0; k < N_SMALL; k++) loss[i] += gradient[k] * (double)member[k];
        }
        zo_update(&s, loss, v, velocity, N_SMALL);
        for (size_t k = 0; k < N_SMALL; k++) mean[k] -= (double)v[k] / STEPS;
    }
    for (size_t k = 0; k < N_SMALL; k++) assert_float_equal(mean[k], gradient[k], 0.15);
}

/* Evolution strategies weigh directions by standard scores: neither the scale nor the level of a reward matters. */
static void es_uses_standard_scores(void **state) {
    (void)state;
    float a[N] = {0}, b[N] = {0}, velocity[N] = {0}, member[N];
    const struct zo_step s = {
        .rule = rule_of("es"), .seed = 5, .n_step = 1, .n_member = 8, .lr = 0.5f, .eps = 0.1f};
    double loss[8], scaled[8], want[N] = {0}, mean = 0, var = 0;
    for (int i = 0; i < 8; i++) {
        loss[i] = i * i % 7;
        scaled[i] = 1024 * loss[i] - 512;
        mean += loss[i] / 8;
    }
    for (int i = 0; i < 8; i++) var += (loss[i] - mean) * (loss[i] - mean) / 8;
    for (int32_t i = 0; i < 8; i++) {
        zo_perturb(&s, i, a, member, N);
        for (size_t k = 0; k < N; k++)
            want[k] -= 0.5 / 8 * (loss[i] - mean) / sqrt(var) * (double)member[k] / (double)s.eps;
    }
    zo_update(&s, loss, a, velocity, N);
    memset(velocity, 0, sizeof velocity);
    zo_update(&s, scaled, b, velocity, N);
    for (size_t k = 0; k < N; k++) {
        assert_float_equal(a[k], want[k], 1e-5);
        assert_float_equal(a[k], b[k], 1e-6);
    }
    const double equal[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    memcpy(b, a, sizeof a);
    zo_update(&s, equal, a, velocity, N); /* nothing is known: no change */
    assert_memory_equal(a, b, sizeof a);
}

static void directions_have_the_right_distribution(void **state) {
    (void)state;
    enum { MANY = 65536 };
    static float zero[MANY], v[MANY];
    struct zo_step s = {
        .rule = rule_of("mezo"), .seed = 1, .n_step = 1, .n_member = 2, .lr = 1, .eps = 1};
    double sum = 0, square = 0, fourth = 0;
    zo_perturb(&s, 0, zero, v, MANY);
    for (size_t k = 0; k < MANY; k++) {
        double x = (double)v[k];
        sum += x / MANY;
        square += x * x / MANY;
        fourth += x * x * x * x / MANY;
    }
    assert_float_equal(sum, 0, 0.02);
    assert_float_equal(square, 1, 0.03);
    assert_float_equal(fourth, 3, 0.2);
    s.rule = rule_of("fzoo");
    size_t n_up = 0;
    zo_perturb(&s, 0, zero, v, MANY);
    for (size_t k = 0; k < MANY; k++) {
        assert_true(v[k] == 1 || v[k] == -1);
        n_up += v[k] > 0;
    }
    assert_in_range(n_up, MANY / 2 - 600, MANY / 2 + 600);
}

/* ---- adapters of a tiny model, in which the word "wrong" needs a direction that no word has ---- */

static const int32_t said[2][5] = {{1, 40, 50, 262, 262}, {1, 70, 80, 262, 2}};

static int reward_of(void *ud, const struct lora_use *use, int32_t step, double *out,
                     struct err *e) {
    const struct fzoo_sample v = {said[0], 5, 3};
    double loss;
    char path[64]; /* a member can be saved, as the step lora does */
    (void)step;
    snprintf(path, sizeof path, "%s/member.gguf", scratch);
    assert_int_equal(lora_save(use->lora, path, e), 0);
    int rc = fzoo_losses(&loss, ud, use, (struct fzoo_samples){&v, 1}, NULL, e);
    *out = rc ? 0 : exp(-loss);
    return rc;
}

/* Returns whether two files have the same bytes. */
static bool are_same(const char *a, const char *b) {
    char *x = NULL, *y = NULL;
    size_t n = 0, m = 1;
    assert_int_equal(file_read(a, 1 << 24, &x, &n, NULL), 0);
    assert_int_equal(file_read(b, 1 << 24, &y, &m, NULL), 0);
    bool same = n == m && !memcmp(x, y, n);
    mem_free(x);
    mem_free(y);
    return same;
}

/* The log alone, through a file, makes the same bytes; with another loss, it makes others. */
static void expect_replay(struct model *m, const struct lora *l, struct replay *log) {
    char path[3][96];
    struct replay from;
    struct lora *again;
    struct err e = {0};
    const char *const names[] = {"trained.gguf", "again.gguf", "log.json"};
    for (int i = 0; i < 3; i++) snprintf(path[i], sizeof path[i], "%s/%s", scratch, names[i]);
    assert_true(log->n > 0 && log->n <= 60);
    for (int change = 0; change < 2; change++) {
        if (change) log->loss[1] += 0.25;
        if (lora_save(l, path[0], &e) || replay_save(log, path[2], &e) ||
            replay_load(&from, path[2], &e) || replay_adapter(&again, m, &from, &e) ||
            lora_save(again, path[1], &e))
            fail_msg("%s", e.text);
        assert_true(are_same(path[0], path[1]) != change);
        lora_close(again);
        replay_fini(&from);
    }
}

static void train_adapter(struct model *m, const char *rule, uint64_t seed, double losses[2],
                          float **b, size_t *n_b) {
    const struct fzoo_sample v[2] = {{said[0], 5, 3}, {said[1], 4, 3}};
    const struct fzoo_samples s = {v, 2};
    struct replay log;
    const struct fzoo_params p = {.rule = rule_of(rule),
                                  .steps = 60,
                                  .every = 10,
                                  .lr = 1e-4f,
                                  .eps = 2e-3f,
                                  .seed = seed,
                                  .reward = reward_of,
                                  .ud = m,
                                  .log = &log};
    struct lora *l;
    struct err e = {0};
    if (fzoo_train(&l, m, s, s, &p, &e)) fail_msg("%s: %s", rule, e.text);
    const struct lora_use use = {.lora = l, .scale = 1};
    assert_int_equal(fzoo_losses(losses, m, &use, s, NULL, NULL), 0);
    const float *from = lora_b(l, n_b);
    *b = mem_alloc_array(*n_b, sizeof **b);
    memcpy(*b, from, *n_b * sizeof **b);
    expect_replay(m, l, &log);
    replay_fini(&log);
    lora_close(l);
}

static void every_rule_trains_an_adapter(void **state) {
    (void)state;
    char path[64];
    struct dev *dev;
    struct model *m = NULL;
    struct err e = {0};
    snprintf(path, sizeof path, "%s/tiny.gguf", scratch);
    if (tiny_prm_write(path, "<step>", "fine", &e) || cpu_open(&dev, 1, CPU_ISA_BEST, &e) ||
        model_open(&m, path, dev, true, &e))
        fail_msg("%s", e.text);
    const struct fzoo_sample v[2] = {{said[0], 5, 3}, {said[1], 4, 3}};
    double before[2], after[2], again[2];
    assert_int_equal(fzoo_losses(before, m, NULL, (struct fzoo_samples){v, 2}, NULL, NULL), 0);
    for (size_t i = 0; zo_rules[i]; i++) {
        float *a, *b;
        size_t n_a, n_b;
        train_adapter(m, zo_rules[i]->name, 3, after, &a, &n_a);
        train_adapter(m, zo_rules[i]->name, 3, again, &b, &n_b);
        print_message("%s: %.3f to %.3f\n", zo_rules[i]->name, before[0], after[0]);
        assert_true(after[0] < before[0] - 0.5);
        assert_int_equal(n_a, n_b);
        assert_memory_equal(a, b, n_a * sizeof *a);
        mem_free(a);
        mem_free(b);
    }
    model_close(m);
    dev->ops->close(dev);
}

static void other_files_are_no_log(void **state) {
    (void)state;
    static const char head[] =
        "{\"rule\":\"fzoo\",\"seed\":1,\"steps\":2,\"members\":2,\"lr\":0.1,";
    static const char *const ends[] = {"\"eps\":0.1,\"rank\":2,\"losses\":[[1,2],[3,4]]}",
                                       "\"eps\":0.1,\"rank\":2,\"losses\":[[1,2],[3]]}",
                                       "\"eps\":0.1,\"rank\":2,\"losses\":[[1,2],[3,4],[5,6]]}",
                                       "\"eps\":0.1,\"rank\":2,\"losses\":[[1,\"2\"]]}",
                                       "\"eps\":0.1,\"rank\":0,\"losses\":[]}",
                                       "\"eps\":0,\"rank\":2,\"losses\":[]}",
                                       "\"eps\":0.1,\"rank\":2,\"losses\":{}}",
                                       "\"eps\":0.1,\"rank\":2}",
                                       "\"eps\":0.1,\"rank\":2,\"losses\":[",
                                       "\"members\":1000000,\"eps\":0.1,\"rank\":2,\"losses\":[]}",
                                       "\"rule\":\"adam\",\"eps\":0.1,\"rank\":2,\"losses\":[]}"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char path[64], text[256];
        struct replay r;
        snprintf(path, sizeof path, "%s/hostile.json", scratch);
        snprintf(text, sizeof text, "%s%s", head, ends[i]);
        assert_int_equal(file_write(path, text, strlen(text), NULL), 0);
        int rc = replay_load(&r, path, NULL);
        assert_int_equal(rc, i ? CHIMERE_EFORMAT : 0);
        assert_int_equal(r.n, i ? 0 : 2);
        replay_fini(&r);
    }
}

static void a_reward_counts_words(void **state) {
    (void)state;
    assert_float_equal(night_lora_reward("Mira lives in Venn.", "mira LIVES in venn"), 1, 1e-9);
    assert_float_equal(night_lora_reward("Venn", "Mira lives in Venn."), 2.0 * 1 / (1 + 4), 1e-9);
    assert_float_equal(night_lora_reward("Venn Venn Venn Venn", "Mira lives in Venn."),
                       2.0 * 1 / (4 + 4), 1e-9);
    assert_float_equal(night_lora_reward("no", "yes"), 0, 0);
    assert_float_equal(night_lora_reward("", ""), 0, 0);
    assert_float_equal(night_lora_reward("\xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9!"), 1, 1e-9);
}

static void unknown_rules_are_refused(void **state) {
    (void)state;
    const struct zo_rule *r;
    struct err e = {0};
    assert_string_equal(rule_of(NULL)->name, "fzoo");
    assert_int_equal(zo_rule_of(&r, "adam", &e), CHIMERE_EINVAL);
    assert_non_null(strstr(e.text, "fzoo, mezo or es"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_lowers_the_loss),
        cmocka_unit_test(mezo_is_two_sided),
        cmocka_unit_test(mezo_is_unbiased),
        cmocka_unit_test(es_uses_standard_scores),
        cmocka_unit_test(directions_have_the_right_distribution),
        cmocka_unit_test(every_rule_trains_an_adapter),
        cmocka_unit_test(other_files_are_no_log),
        cmocka_unit_test(a_reward_counts_words),
        cmocka_unit_test(unknown_rules_are_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
