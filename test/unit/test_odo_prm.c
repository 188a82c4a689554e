/* The process reward model: splitting, verdicts and scores against hand-made vectors, and a scripted judge. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "strategy/prm.h"

#include "odo_script.h"

static void expect_steps(const char *text, const char *const *want, int n) {
    struct prm_steps s;
    prm_split(text, strlen(text), &s);
    for (int i = 0; i < s.n && i < n; i++) {
        assert_int_equal(s.step[i].n, strlen(want[i]));
        assert_memory_equal(s.step[i].p, want[i], s.step[i].n);
    }
    assert_int_equal(s.n, n);
}
#define STEPS(text, ...)                                                                           \
    do {                                                                                           \
        const char *const want[] = {__VA_ARGS__};                                                  \
        expect_steps(text, want, (int)(sizeof want / sizeof *want));                               \
    } while (0)

static void test_split(void **state) {
    (void)state;
    STEPS("Step 1: a + b = 3.\nStep 2: 3 - 1 = 2.\nThe answer is 2.", "a + b = 3.", "3 - 1 = 2.",
          "The answer is 2.");
    STEPS("Plan:\n1. Count them.\n2) Add them.\n\nSo it is 4.", "Count them.", "Add them.",
          "So it is 4.");
    STEPS("**Step 1:** Look.\n**Step 2:** Leap.", "Look.", "Leap.");
    STEPS("3.14 is pi\n2.71 is e", "3.14 is pi", "2.71 is e"); /* decimals are no numbering */
    STEPS("# One\nfirst\n# Two\nsecond", "One\nfirst", "Two\nsecond");
    STEPS("- the first of three bullets\n- the second of three bullets\n- the third of the bullets",
          "the first of three bullets", "the second of three bullets", "the third of the bullets");
    STEPS("This paragraph is longer than thirty bytes.\n\nThis one is longer than thirty, too.",
          "This paragraph is longer than thirty bytes.", "This one is longer than thirty, too.");
    STEPS("Zed has 3 + 4 = 7 pens. He loses 2, 7 - 2 = 5. The answer is 5.",
          "Zed has 3 + 4 = 7 pens.", "He loses 2, 7 - 2 = 5.", "The answer is 5.");
    STEPS("3 + 4 = 7; 7 - 2 = 5. The answer is 5.", "3 + 4 = 7;", "7 - 2 = 5.", "The answer is 5.");
    STEPS("Yes.", "Yes.");
    struct prm_steps s;
    prm_split("", 0, &s);
    assert_int_equal(s.n, 0);
}

/* What is beyond the last place is not lost. */
static void test_split_many(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 16);
    for (int i = 1; i <= 99; i++) buf_printf(&b, "%d. item\n", i);
    struct prm_steps s;
    prm_split(b.p, b.n, &s);
    assert_int_equal(s.n, PRM_MAX_STEPS);
    const struct slice *last = &s.step[s.n - 1];
    assert_true(last->p + last->n >= b.p + b.n - 5);
    buf_fini(&b);
}

static void test_conclusion(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int n;
    } v[] = {{"3 + 4 = 7 pens.\nThe answer is 7.", 1},
             {"3 + 4 = 7 pens.\nThe answer is 8.", 2}, /* says something else: to be judged */
             {"So 7 pens.\nThe answer is 7.", 1},
             {"3 + 4 = 7 pens in 2 boxes.\nThe answer is 7.", 1},
             {"The answer is 7.", 1},
             {"3 + 4 = 7.\n7 - 2 = 5.", 2}};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct prm_steps s;
        prm_split(v[i].text, strlen(v[i].text), &s);
        prm_conclusion(&s);
        assert_int_equal(s.n, v[i].n);
    }
}

static struct prm_verdict verdict(const char *text, int n_step) {
    struct prm_verdict v;
    prm_read(text, strlen(text), n_step, NULL, 0, &v);
    return v;
}

static void test_verdicts(void **state) {
    (void)state;
    struct prm_verdict v =
        verdict("Step 1: 3 + 4 = 7. Step 1 is correct. \\boxed{correct}\n"
                "Step 2: 7 - 2 = 5, not 6. Step 2 is incorrect. \\boxed{incorrect}\n"
                "Is the solution correct? No",
                2);
    assert_int_equal(v.n_said, 2);
    assert_true(v.step[0] == 1 && v.step[1] == 0 && v.has_whole && v.whole == 0 && v.score == 0);
    v = verdict("\\boxed{correct} and \\boxed{Correct} Is the solution correct? **Yes**", 2);
    assert_true(v.step[0] == 1 && v.step[1] == 1 && v.whole == 1 && v.score == 1);
    v = verdict("step 2 is WRONG", 3);
    assert_true(v.step[0] == 0.5 && v.step[1] == 0 && v.step[2] == 0.5 && v.score == 0);
    assert_int_equal(v.n_said, 1);
    v = verdict("\xe2\x9c\x93 good \xe2\x9c\x97 bad", 2);
    assert_true(v.step[0] == 1 && v.step[1] == 0);
    v = verdict("step 9 is correct, step 0 is correct, step 99999999999 is correct", 2);
    assert_int_equal(v.n_said, 0);
}

/* A judge that answers nonsense: neutral, whatever the bytes. */
static void test_nonsense(void **state) {
    (void)state;
    static const char *const texts[] = {"",
                                        "the the the",
                                        "\\boxed{",
                                        "\\boxed{}",
                                        "\\boxed{42}",
                                        "Step",
                                        "step 1 is",
                                        "Step 1 is a poem",
                                        "Is the solution correct?",
                                        "Is the solution correct? Perhaps",
                                        "\xff\xfe\x80 step \xff"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct prm_verdict v = verdict(texts[i], 3);
        assert_true(v.score == 0.5);
        for (int k = 0; k < 3; k++) assert_true(v.step[k] == 0.5);
    }
    char junk[512];
    uint32_t x = 7;
    for (int r = 0; r < 2000; r++) {
        for (size_t i = 0; i < sizeof junk; i++) {
            x = x * 1664525u + 1013904223u;
            junk[i] = "step 1is\\boxed{correct}not ?*\n\xe2\x9c\x93"[x >> 27];
        }
        struct prm_verdict v;
        prm_read(junk, (size_t)r % sizeof junk, 3, NULL, 0, &v);
        assert_true(v.score >= 0 && v.score <= 1);
        struct prm_steps s;
        prm_split(junk, (size_t)r % sizeof junk, &s);
        assert_in_range(s.n, 0, PRM_MAX_STEPS);
    }
}

/* Scores are the model's own odds at the word: P(yes) / (P(yes) + P(no)), 0.6 / (0.6 + 0.2) = 0.75. */
static void test_odds(void **state) {
    (void)state;
    const char *text = "Step 1 is correct. Step 2 is correct.";
    const struct prm_mark marks[] = {{9, 0.6, 0.2}, {28, 0.3, 0.3}}; /* the blank is in the token */
    struct prm_verdict v;
    prm_read(text, strlen(text), 2, marks, 2, &v);
    assert_true(v.step[0] > 0.7499 && v.step[0] < 0.7501);
    assert_true(v.step[1] == 0.5 && v.score == 0.5);
    assert_int_equal(prm_word(" correct", 8), 1);
    assert_int_equal(prm_word(" in", 3), -1);
    assert_int_equal(prm_word("incorrect", 9), -1);
    assert_int_equal(prm_word("Y", 1), 1);
    assert_int_equal(prm_word("no", 2), -1);
    assert_int_equal(prm_word("i", 1), -1);
    assert_int_equal(prm_word("maybe", 5), 0);
    assert_int_equal(prm_word("", 0), 0);
}

static void test_judge(void **state) {
    (void)state;
    static const char *const replies[] = {"Step 1 is correct. Step 2 is incorrect."};
    struct script s;
    struct err e = {0};
    script_init(&s, replies, 1);
    struct prm_use u = {.backend = &s.base};
    struct prm_item items[2] = {
        {.problem = "How many?", .solution = "1 + 1 = 2.\n2 + 2 = 5.\nThe answer is 5."},
        {.problem = "How many?", .solution = "4."}};
    assert_int_equal(prm_score(&u, items, 1, &e), 0);
    assert_true(items[0].verdict.score == 0 && !items[0].failed);
    assert_non_null(
        strstr(script_text(&s, 0, 0),
               "Problem: How many?\n\nSolution:\nStep 1: 1 + 1 = 2.\nStep 2: 2 + 2 = 5."));
    prm_drop(&items[0]);
    assert_int_equal(prm_score(&u, items + 1, 1, &e), 0); /* "out of script" */
    assert_true(items[1].verdict.score == 0.5);
    prm_drop(&items[1]);
    static const char *const bad[] = {"fail", "fail"};
    script_fini(&s);
    script_init(&s, bad, 2);
    assert_int_equal(prm_score(&u, items, 2, &e), 0);
    assert_true(items[0].failed && items[0].verdict.score == 0.5 && items[1].failed);
    prm_drop(&items[0]);
    prm_drop(&items[1]);
    script_fini(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),      cmocka_unit_test(test_split_many),
        cmocka_unit_test(test_conclusion), cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_nonsense),   cmocka_unit_test(test_odds),
        cmocka_unit_test(test_judge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
