/* Strategies on chimere-nano: steps join without a seam, what is streamed is the answer, slots come back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "engine/load.h"
#include "strategy/prm.h"
#include "strategy/strategy.h"

#include "await.h"

static struct loaded nano;
static struct backend_model about;
static struct backend *backend;
static bool has_nano;

static int set_up(void **state) {
    (void)state;
    if (!(has_nano = file_exists(TEST_NANO))) {
        print_message("skip: chimere-nano: cmake --build --preset release --target chimere-nano\n");
        return 0;
    }
    struct load_params p;
    struct err e = {0};
    load_defaults(&p);
    p.path = TEST_NANO;
    p.quiet = true;
    p.no_fit = true;
    p.plan.n_seq = 4;
    p.plan.n_ctx = 4 * 1024;
    if (load_open(&nano, &p, &e)) fail_msg("%s", e.text);
    about = (struct backend_model){.m = nano.model,
                                   .engine = nano.engine,
                                   .tok = nano.tok,
                                   .template = nano.template,
                                   .n_seq = 4};
    return backend_local_new(&backend, &about, "nano", NULL);
}

static int tear_down(void **state) {
    (void)state;
    if (!has_nano) return 0;
    backend->ops->close(backend);
    load_close(&nano);
    return 0;
}

static int listen(void *ud, const struct backend_event *ev) {
    if (ev->kind == EVENT_CHAT && ev->chat->kind == CHAT_CONTENT)
        buf_put(ud, ev->chat->text, ev->chat->n);
    return 0;
}

static void answer(const char *spec, const char *question, _Atomic bool *cancelled,
                   struct buf *seen, struct strategy_result *r) {
    struct strategy s;
    struct err e = {0};
    struct request a;
    assert_int_equal(strategy_parse(&s, spec, &e), 0);
    request_init(&a);
    a.messages = json_pack("[{s:s, s:s}]", "role", "user", "content", question);
    a.max_tokens = 120;
    const struct strategy_use u = {.strategy = &s,
                                   .backend = backend,
                                   .request = &a,
                                   .on_event = seen ? listen : NULL,
                                   .ud = seen,
                                   .cancelled = cancelled};
    if (strategy_run(&u, r, &e)) fail_msg("%s", e.text);
    request_fini(&a);
}

static const char question[] = "Emma has 41 apples. Noah gives Emma 17 more. Then Emma loses 5. "
                               "How many apples does Emma have "
                               "now? Show your steps.";

/* A tree of one branch that always takes the likeliest token writes what greedy writes. */
static void test_seams(void **state) {
    (void)state;
    if (!has_nano) skip();
    struct strategy_result a, b;
    answer("greedy", question, NULL, NULL, &a);
    answer("dvts:n=1,width=1,temperature=0", question, NULL, NULL, &b);
    assert_true(a.content.n > 20 && a.content.n == b.content.n);
    assert_memory_equal(a.content.p, b.content.p, a.content.n);
    assert_int_equal(b.finish, FINISH_STOP);
    assert_true(b.cost.n_call > 1 && b.cost.n_check == 0);
    strategy_fini(&a);
    strategy_fini(&b);
}

/* Listened to or not, the same is picked, and what is streamed is the answer. */
static void test_streamed(void **state) {
    (void)state;
    if (!has_nano) skip();
    static const char *const specs[] = {"best_of_n:n=3", "majority:n=3", "weighted:n=3",
                                        "dvts:n=4,width=2", "beam:n=4,width=2"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        struct strategy_result a, b;
        struct buf seen;
        buf_init(&seen, 1 << 16);
        answer(specs[i], question, NULL, &seen, &a);
        answer(specs[i], question, NULL, NULL, &b);
        assert_int_equal(a.content.n, b.content.n);
        assert_memory_equal(a.content.p, b.content.p, a.content.n);
        assert_int_equal(a.content.n, seen.n);
        assert_memory_equal(a.content.p, seen.p, seen.n);
        assert_true((a.cost.n_check > 0) == (i != 1) && a.score >= 0 && a.score <= 1);
        strategy_fini(&a);
        strategy_fini(&b);
        buf_fini(&seen);
    }
}

/* What branches share is evaluated once: the question by the first, then by each way the token that it goes on
 * behind, and maybe the one that ended its step. */
static void test_branches_share(void **state) {
    (void)state;
    if (!has_nano) skip();
    struct strategy_result a, b;
    for (int32_t n = 2; n <= 4; n++) {
        char spec[80];
        snprintf(spec, sizeof spec, "dvts:n=%d,width=%d,temperature=0.9", n, n);
        answer("greedy", question, NULL, NULL, &a);
        answer(spec, question, NULL, NULL, &b);
        int64_t n_way = b.cost.n_prompt / a.cost.n_prompt; /* more than there were */
        int64_t n_evaluated = b.cost.n_prompt - b.cost.n_cached;
        assert_true(n_way > 2 * n && b.cost.n_cached > 0);
        print_message("%d ways: %d tokens of prompts, %d evaluated\n", n, (int)b.cost.n_prompt,
                      (int)n_evaluated);
        assert_in_range(n_evaluated, n, 63 + 2 * n_way); /* at worst greedy kept a block less */
        strategy_fini(&a);
        strategy_fini(&b);
    }
}

/* Its own steps: one right, one wrong. */
static void test_verifier(void **state) {
    (void)state;
    if (!has_nano) skip();
    static const char problem[] = "Emma has 41 apples. Noah gives Emma 17 more. Then Emma loses 5. "
                                  "How many apples does Emma have now?";
    struct prm_item items[] = {
        {.problem = problem,
         .solution = "Step 1: Emma has 41 + 17 = 58 apples after the gift.\n"
                     "Step 2: After losing 5, 58 - 5 = 53 apples are left.\nThe answer is 53."},
        {.problem = problem,
         .solution = "Step 1: Emma has 41 + 17 = 58 apples after the gift.\n"
                     "Step 2: After losing 5, 58 - 5 = 43 apples are left.\nThe answer is 43."}};
    const struct prm_use u = {.backend = backend};
    struct err e = {0};
    if (prm_score(&u, items, 2, &e)) fail_msg("%s", e.text);
    assert_int_equal(items[0].verdict.n_said, 2);
    assert_true(items[0].verdict.score > 0.5);
    assert_true(items[1].verdict.score < 0.5);
    assert_true(items[1].verdict.step[0] > 0.5 && items[1].verdict.step[1] < 0.5);
    prm_drop(&items[0]);
    prm_drop(&items[1]);
}

static void *cancel_soon(void *flag) {
    usleep(30000);
    *(_Atomic bool *)flag = true;
    return NULL;
}

static void test_cancelled(void **state) {
    (void)state;
    if (!has_nano) skip();
    _Atomic bool cancelled = false;
    struct strategy_result r;
    struct engine_totals t;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, (void *)&cancelled), 0);
    answer("dvts:n=8,width=4,temperature=1.5", question, &cancelled, NULL, &r);
    pthread_join(thread, NULL);
    assert_int_equal(r.finish, FINISH_CANCELLED);
    strategy_fini(&r);
    /* a job's slot is returned after the step in which it ended */
    AWAIT((engine_totals(nano.engine, &t), !t.n_active && !t.n_waiting));
    assert_int_equal(t.n_active, 0);
    assert_int_equal(t.n_waiting, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seams),          cmocka_unit_test(test_streamed),
        cmocka_unit_test(test_branches_share), cmocka_unit_test(test_verifier),
        cmocka_unit_test(test_cancelled),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
