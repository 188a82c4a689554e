/* test_night_judge.c: a process reward model of known weights scores the answers of a day, and is compared with users. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "learn/data/judge.h"
#include "model/vocab.h"
#include "scratch.h"
#include "store/quality.h"
#include "store/store.h"
#include "strategy/reward.h"
#include "tiny_prm.h"

static void put(struct store *s, const char *name, const char *answer, double score,
                int32_t feedback) {
    const struct store_quality q = {.at_ms = 1000,
                                    .name = name,
                                    .origin = "answer",
                                    .question = answer ? "How many?" : NULL,
                                    .answer = answer,
                                    .score = score,
                                    .judge = "old"};
    assert_int_equal(store_quality_add(s, &q, NULL, NULL), 0);
    if (feedback) assert_int_equal(store_quality_feedback(s, name, feedback, NULL, NULL), 0);
}

struct seen {
    const char *name;
    double score, worth;
    bool is_new;
};
static int find(void *ud, const struct store_quality *q) {
    struct seen *x = ud;
    if (!q->name || strcmp(q->name, x->name) != 0) return 0;
    x->score = q->score;
    x->worth = store_quality_worth(q);
    x->is_new = !strcmp(q->judge, "prm");
    return 1;
}
static struct seen seen_of(struct store *s, const char *name) {
    struct seen x = {.name = name};
    assert_int_equal(store_quality_list(s, 0, find, &x, NULL), 1);
    return x;
}

static bool once(void *ud) {
    int *n = ud;
    return (*n)-- > 0;
}

static void answers_are_judged_once(void **state) {
    (void)state;
    struct dev *dev;
    struct model *m;
    struct tok *tok;
    struct reward *r;
    struct store *s;
    struct err e = {0};
    char path[64], db[64];
    snprintf(path, sizeof path, "%s/prm.gguf", scratch);
    snprintf(db, sizeof db, "%s/day.db", scratch);
    if (tiny_prm_write(path, "<step>", "fine", &e) || cpu_open(&dev, 1, CPU_ISA_BEST, &e) ||
        model_open(&m, path, dev, true, &e) || vocab_load(&tok, m->gguf, &e) ||
        reward_open(&r, m, tok, &e) || store_open(&s, db, &e))
        fail_msg("%s", e.text);
    put(s, "a", "1. two and two\n2. so four", 0.1, 0);
    put(s, "b", "1. two and two\n2. a bad step", 0.9, 0);
    put(s, "c", "1. two and two\n2. so four", 0.1,
        1); /* users disagree with the judge on one of each */
    put(s, "d", "a bad answer", 0.9, 5);
    put(s, "e", "a right answer", NAN, 4);
    put(s, "f", "a bad answer too", 0.5, 2);
    put(s, "g", NULL, 0.5, 0); /* its texts are not kept */
    int left = 2;
    struct judge j = {.reward = r, .name = "prm", .goes_on = once, .ud = &left};
    struct judge_report out;
    assert_int_equal(judge_day(&out, s, &j, NULL), 0);
    assert_int_equal(out.n_judged, 2); /* the newest: e, f */
    assert_true(seen_of(s, "f").is_new && seen_of(s, "e").is_new && !seen_of(s, "a").is_new);
    j.goes_on = NULL;
    assert_int_equal(judge_day(&out, s, &j, NULL), 0);
    assert_int_equal(out.n_judged, 4);
    assert_true(seen_of(s, "a").score > 0.9 && seen_of(s, "a").worth > 0.9);
    assert_true(seen_of(s, "b").score < 0.1 && seen_of(s, "b").worth < 0.1);
    assert_true(seen_of(s, "c").score > 0.9 &&
                seen_of(s, "c").worth == 0); /* a user outweighs it */
    assert_true(seen_of(s, "d").score < 0.1 && seen_of(s, "d").worth == 1);
    assert_true(!seen_of(s, "g").is_new && seen_of(s, "g").score == 0.5);
    /* accepted: d (low), e (high); rejected: c (high), f (low). e beats f; e and c, d and f tie or nearly */
    assert_int_equal(out.n_good, 2);
    assert_int_equal(out.n_bad, 2);
    double good[2] = {seen_of(s, "d").score, seen_of(s, "e").score}, want = 0;
    double bad[2] = {seen_of(s, "c").score, seen_of(s, "f").score};
    for (int i = 0; i < 4; i++)
        want += good[i / 2] > bad[i % 2] ? 0.25 : good[i / 2] == bad[i % 2] ? 0.125 : 0;
    assert_float_equal(out.auc, want, 1e-9);
    assert_true(out.auc > 0.2 && out.auc < 0.8);
    assert_int_equal(judge_day(&out, s, &j, NULL), 0);
    assert_int_equal(out.n_judged, 0);
    store_close(s);
    reward_close(r);
    tok_free(tok);
    model_close(m);
    dev->ops->close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_are_judged_once)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
