/* A process reward model of known weights: its scores, what is refused, and strategies that it verifies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "kernels/cpu/cpu.h"
#include "model/vocab.h"
#include "strategy/prm.h"
#include "strategy/reward.h"
#include "strategy/strategy.h"

#include "odo_script.h"
#include "scratch.h"
#include "tiny_prm.h"

struct scorer {
    struct dev *dev;
    struct model *m;
    struct tok *tok;
    struct reward *r;
};

static int scorer_open(struct scorer *s, const char *path, struct err *e) {
    *s = (struct scorer){.dev = NULL};
    int rc = cpu_open(&s->dev, 1, CPU_ISA_BEST, e);
    if (!rc) rc = model_open(&s->m, path, s->dev, true, e);
    if (!rc) rc = vocab_load(&s->tok, s->m->gguf, e);
    return rc ? rc : reward_open(&s->r, s->m, s->tok, e);
}

static void scorer_close(struct scorer *s) {
    reward_close(s->r);
    tok_free(s->tok);
    model_close(s->m);
    s->dev->ops->close(s->dev);
}

static void scorer_make(struct scorer *s) {
    struct err e = {0};
    char path[64];
    snprintf(path, sizeof path, "%s/prm.gguf", scratch);
    if (tiny_prm_write(path, "<step>", "fine", &e) || scorer_open(s, path, &e))
        fail_msg("%s", e.text);
}

static struct prm_item score(struct scorer *s, const char *solution) {
    struct prm_item it = {.problem = "How many?", .solution = solution};
    const struct prm_use use = {.reward = s->r};
    struct err e = {0};
    if (prm_score(&use, &it, 1, &e)) fail_msg("%s", e.text);
    assert_false(it.failed);
    return it;
}

/* A step is wrong from the first one that has the word. */
static void test_scores(void **state) {
    (void)state;
    struct scorer s;
    scorer_make(&s);
    struct prm_item it = score(&s, "1. two and two\n2. a bad step\n3. so four");
    assert_int_equal(it.verdict.n_step, 3);
    assert_int_equal(it.verdict.n_said, 3);
    assert_true(it.verdict.step[0] > 0.9);
    assert_true(it.verdict.step[1] < 0.1 && it.verdict.step[2] < 0.1);
    assert_true(it.verdict.score < 0.1);
    assert_int_equal(it.stats.n_generated, 0);
    assert_true(it.stats.n_prompt > 0);
    assert_true(score(&s, "1. two and two\n2. so four").verdict.score > 0.9);
    /* nothing of an earlier solution remains */
    assert_true(score(&s, "bad").verdict.score < 0.1);
    assert_true(score(&s, "good").verdict.score > 0.9);
    it = score(&s, "");
    assert_int_equal(it.verdict.n_said, 0);
    assert_true(it.verdict.score > 0.49 && it.verdict.score < 0.51);
    scorer_close(&s);
}

/* A solution that writes the mark does not end a step with it. */
static void test_mark_in_text(void **state) {
    (void)state;
    struct scorer s;
    scorer_make(&s);
    struct prm_item it =
        score(&s, "1. four <step> is <step> right\n2. a <st<step>ep> bad <step> end");
    assert_int_equal(it.verdict.n_said, 2);
    assert_true(it.verdict.step[0] > 0.9 && it.verdict.step[1] < 0.1);
    scorer_close(&s);
}

/* Steps past the context have no verdict. */
static void test_long(void **state) {
    (void)state;
    struct scorer s;
    struct buf b;
    scorer_make(&s);
    buf_init(&b, 1 << 16);
    for (int i = 1; i <= 8; i++) {
        buf_printf(&b, "%d. ", i);
        for (int k = 0; k < 100; k++) buf_puts(&b, "x");
        buf_puts(&b, i == 8 ? "bad\n" : "\n");
    }
    struct prm_item it = score(&s, b.p);
    assert_int_equal(it.verdict.n_step, 8);
    assert_in_range(it.verdict.n_said, 1, 7);
    assert_true(it.verdict.score > 0.9);
    assert_in_range(it.stats.n_prompt, 1, PRM_CTX);
    buf_fini(&b);
    scorer_close(&s);
}

static void test_stopped(void **state) {
    (void)state;
    struct scorer s;
    struct err e = {0};
    _Atomic bool cancelled = true;
    scorer_make(&s);
    struct prm_item it = {.problem = "?", .solution = "bad"}, late = it;
    const struct prm_use stopped = {.reward = s.r, .cancelled = &cancelled},
                         over = {.reward = s.r, .deadline_ns = clock_ns() - 1};
    assert_int_equal(prm_score(&stopped, &it, 1, &e), 0);
    assert_int_equal(prm_score(&over, &late, 1, &e), 0);
    assert_true(it.verdict.score > 0.49 && it.verdict.score < 0.51);
    assert_true(it.failed && late.failed);
    assert_int_equal(it.stats.n_prompt + late.stats.n_prompt, 0);
    scorer_close(&s);
}

static void test_refused(void **state) {
    (void)state;
    char path[64];
    static const struct {
        const char *mark, *good, *error;
    } rows[] = {{NULL, NULL, "is no process reward model"},
                {"<step>", NULL, "chimere.prm.good"},
                {"<step>", "superb", "chimere.prm.good"},
                {"two tokens", "fine", "chimere.prm.mark"}};
    snprintf(path, sizeof path, "%s/none.gguf", scratch);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct scorer s;
        struct err e = {0};
        assert_int_equal(tiny_prm_write(path, rows[i].mark, rows[i].good, &e), 0);
        assert_int_not_equal(scorer_open(&s, path, &e), 0);
        assert_null(s.r);
        assert_non_null(strstr(e.text, rows[i].error));
        scorer_close(&s);
    }
    struct scorer s;
    struct err e = {0};
    assert_int_equal(scorer_open(&s, TEST_NANO, &e), CHIMERE_EUNSUPPORTED);
    assert_non_null(strstr(e.text, "is no process reward model"));
    scorer_close(&s);
}

/* ---- strategies ---- */

/* One of four candidates has no bad step; the model itself is never asked to judge. */
static const char *one_is_good(struct script *s, const json_t *messages) {
    const char *t = json_string_value(json_object_get(json_array_get(messages, 0), "content"));
    assert_null(strstr(t, "Check each step"));
    return s->at++ == 2 ? "It is 4." : "A bad sum. It is 3.";
}

static void expect_four(const char *spec) {
    struct scorer s;
    struct script script;
    struct request request;
    struct strategy strategy;
    struct strategy_result r;
    struct err e = {0};
    scorer_make(&s);
    script_init(&script, NULL, 0);
    script.choose = one_is_good;
    request_init(&request);
    request.messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "How many?");
    assert_int_equal(strategy_parse(&strategy, spec, &e), 0);
    const struct strategy_use use = {
        .strategy = &strategy, .backend = &script.base, .verifier = s.r, .request = &request};
    if (strategy_run(&use, &r, &e)) fail_msg("%s", e.text);
    assert_string_equal(r.content.p, "It is 4.");
    assert_true(r.score > 0.9);
    assert_int_equal(r.cost.n_check, 0);
    assert_true(r.cost.n_check_prompt > 0);
    strategy_fini(&r);
    request_fini(&request);
    script_fini(&script);
    scorer_close(&s);
}

static void test_strategies(void **state) {
    (void)state;
    expect_four("best_of_n:n=4");
    expect_four("dvts:n=4,width=4");
    expect_four("beam:n=4,width=4");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores),  cmocka_unit_test(test_mark_in_text),
        cmocka_unit_test(test_long),    cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_strategies),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
