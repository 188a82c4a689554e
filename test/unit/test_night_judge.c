/* test_night_judge.c: a process reward model of known weights scores the answers of a day, and is compared with users; so
 * are judges that write, from a script. */
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
#include "strategy/grade.h"
#include "strategy/reward.h"
#include "odo_script.h"
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
    struct model *m = NULL;
    struct tok *tok = NULL;
    struct reward *r = NULL;
    struct store *s = NULL;
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

/* Grades by the first letter of the answer; judges steps if it is asked for steps. */
static const char *by_letter(struct script *s, const json_t *messages) {
    (void)s;
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *text = json_string_value(json_object_get(last, "content"));
    const char *answer = strstr(text, "Answer:\n");
    if (!answer) return strstr(text, "bad") ? "Step 1 is incorrect." : "Step 1 is correct.";
    char c = answer[8];
    return c == 'x' ? "I like it" : c == 'y' ? "fail" : c == 'g' ? "5" : c == 'h' ? "4" : "1";
}

/* Writes a 4, which the model holds for twice as likely as a 5, and a letter. */
static int start_likely(struct generation *base, struct err *e) {
    (void)e;
    struct script_run *r = (struct script_run *)base;
    const struct sampler_probs probs = {.n = 3,
                                        .ids = {3 + '4', 3 + 'a', 3 + '5'},
                                        .logprobs = {logf(0.5F), logf(0.25F), logf(0.25F)}};
    struct backend_event ev = {
        .kind = EVENT_TOKEN, .token = 3 + '4', .text = "4", .n = 1, .probs = &probs};
    r->sink.event(r->sink.ud, &ev);
    script_chat(r, CHAT_CONTENT, "4", 1, -1, NULL, NULL);
    struct generation_end end = {.finish = FINISH_STOP};
    ev = (struct backend_event){.kind = EVENT_END, .end = &end};
    r->sink.event(r->sink.ud, &ev);
    return r->sink.event(r->sink.ud, &(struct backend_event){.kind = EVENT_DONE});
}

static void a_grade_is_a_mean(void **state) {
    (void)state;
    struct script script;
    struct gguf *g = NULL;
    struct tok *tok = NULL;
    struct err e = {0};
    char path[64];
    double grade;
    snprintf(path, sizeof path, "%s/vocabulary.gguf", scratch);
    if (tiny_prm_write(path, NULL, NULL, &e) || gguf_open(&g, path, &e) || vocab_load(&tok, g, &e))
        fail_msg("%s", e.text);
    struct backend_ops ops = script_ops;
    ops.start = start_likely;
    script_init(&script, NULL, 0);
    struct backend_model model = {.tok = tok};
    script.base.ops = &ops;
    script.base.model = &model;
    const struct grade_ask ask = {.backend = &script.base, .question = "Why?", .answer = "So."};
    assert_int_equal(grade_answer(&grade, &ask, &e), 0);
    assert_float_equal(grade, (4 * 0.5 + 5 * 0.25) / 0.75, 1e-6);
    const struct grade_ask hostile = {
        .backend = &script.base, .question = "Why?", .answer = "\xff\xfe"};
    assert_int_equal(grade_answer(&grade, &hostile, &e), CHIMERE_EINVAL);
    script_fini(&script);
    tok_free(tok);
    gguf_close(g);
}

static void open_day(struct store **s, const char *name) {
    char db[128];
    struct err e = {0};
    snprintf(db, sizeof db, "%s/%s.db", scratch, name);
    if (store_open(s, db, &e)) fail_msg("%s", e.text);
}

static void a_grade_is_a_score(void **state) {
    (void)state;
    struct script script;
    struct store *s;
    struct judge_report out;
    script_init(&script, NULL, 0);
    script.choose = by_letter;
    open_day(&s, "grades");
    put(s, "good", "good", 0.1, 0);
    put(s, "half", "half", 0.1, 1);
    put(s, "bad", "bad", 0.9, 0);
    put(s, "none", "x", 0.3, 0);
    struct judge j = {.grader = &script.base, .name = "prm"};
    assert_int_equal(judge_day(&out, s, &j, NULL), 0);
    assert_int_equal(out.n_judged, 3);
    assert_int_equal(out.n_failed, 1);
    assert_float_equal(seen_of(s, "good").score, 1, 0);
    assert_float_equal(seen_of(s, "half").score, 0.75, 0);
    assert_true(seen_of(s, "half").worth == 0); /* the user outweighs it */
    assert_float_equal(seen_of(s, "bad").score, 0, 0);
    assert_true(!seen_of(s, "none").is_new && seen_of(s, "none").score == 0.3);
    /* what users rated comes first, and the judge sees the question with the answer */
    assert_non_null(strstr(script_text(&script, 0, -1), "Question:\nHow many?\n\nAnswer:\nhalf"));
    /* with verdicts on steps, the score is the mean of both */
    struct judge both = {.prover = &script.base, .grader = &script.base, .name = "both"};
    assert_int_equal(judge_day(&out, s, &both, NULL), 0);
    assert_float_equal(seen_of(s, "half").score, (1 + 0.75) / 2, 1e-9);
    assert_float_equal(seen_of(s, "bad").score, 0, 1e-9);
    store_close(s);
    script_fini(&script);
}

/* A judge that fails three times in a row stops; what it has not judged keeps its score. */
static void a_broken_judge_stops(void **state) {
    (void)state;
    struct script script;
    struct store *s;
    struct judge_report out;
    char name[8];
    script_init(&script, NULL, 0);
    script.choose = by_letter;
    open_day(&s, "broken");
    put(s, "old", "good", 0.1, 0);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "n%d", i);
        put(s, name, "y", 0.3, 0);
    }
    struct judge j = {.grader = &script.base, .name = "prm"};
    assert_int_equal(judge_day(&out, s, &j, NULL), 0);
    assert_int_equal(out.n_failed, 3);
    assert_non_null(strstr(out.why, "the script says so"));
    assert_true(!seen_of(s, "old").is_new);
    store_close(s);
    script_fini(&script);
}

/* A judge that does not prefer what users accepted judges nothing else. */
static void users_refuse_a_judge(void **state) {
    (void)state;
    struct script script;
    struct store *s;
    struct judge_report out;
    char name[8];
    script_init(&script, NULL, 0);
    script.choose = by_letter;
    open_day(&s, "refused");
    put(s, "open", "good", 0.1, 0);
    /* it prefers 6 of the 10 accepted answers to all rejected ones, and the others to none: ties */
    for (int i = 0; i < 2 * JUDGE_LEAST_RATED; i++) {
        snprintf(name, sizeof name, "r%d", i);
        bool accepted = i % 2;
        put(s, name, accepted && i < 12 ? "half" : "bad", 0.1, accepted ? 5 : 1);
    }
    struct judge j = {.grader = &script.base, .name = "prm"};
    assert_int_equal(judge_day(&out, s, &j, NULL), 0);
    assert_false(out.is_refused);
    assert_float_equal(out.auc, 0.8, 1e-9);
    assert_float_equal(seen_of(s, "open").score, 1, 0);
    for (int i = 0; i < 12; i++) { /* users now reject what it prefers */
        snprintf(name, sizeof name, "r%d", i);
        assert_int_equal(store_quality_feedback(s, name, i % 2 ? 2 : 4, NULL, NULL), 0);
    }
    put(s, "later", "good", 0.3, 0);
    j.name = "other";
    assert_int_equal(judge_day(&out, s, &j, NULL), 0);
    assert_true(out.is_refused && out.auc < JUDGE_LEAST_AUC);
    assert_int_equal(out.n_judged, 2 * JUDGE_LEAST_RATED);
    assert_float_equal(seen_of(s, "later").score, 0.3, 0);
    store_close(s);
    script_fini(&script);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_judged_once), cmocka_unit_test(a_grade_is_a_score),
        cmocka_unit_test(a_grade_is_a_mean), cmocka_unit_test(a_broken_judge_stops),
        cmocka_unit_test(users_refuse_a_judge)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
