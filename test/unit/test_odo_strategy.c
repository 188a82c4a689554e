/* Strategies over a scripted backend: what is picked, what it cost, and what is left when it goes wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "odo/strategy_impl.h"

#include "odo_script.h"

struct bed {
    struct script script;
    struct ask ask;
    struct strategy strategy;
    struct strategy_use use;
    struct strategy_result r;
    struct buf seen; /* what the client gets */
};

static int see(void *ud, const struct ask_event *ev) {
    struct bed *b = ud;
    if (ev->kind == ASK_CHAT && ev->chat->kind == CHAT_CONTENT)
        buf_put(&b->seen, ev->chat->text, ev->chat->n);
    return 0;
}

static void bed_open(struct bed *b, const char *spec, const char *const *replies, int n) {
    memset(b, 0, sizeof *b);
    script_init(&b->script, replies, n);
    struct err e = {0};
    if (strategy_parse(&b->strategy, spec, &e)) fail_msg("%s", e.text);
    ask_init(&b->ask);
    b->ask.messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "How many?");
    b->use = (struct strategy_use){.strategy = &b->strategy,
                                   .backend = &b->script.base,
                                   .ask = &b->ask,
                                   .on_event = see,
                                   .ud = b};
    buf_init(&b->seen, 1 << 20);
}

static int go(struct bed *b, struct err *e) {
    strategy_fini(&b->r);
    return strategy_run(&b->use, &b->r, e);
}

static const char *said(const struct bed *b) { return b->r.content.n ? b->r.content.p : ""; }
static const char *seen(const struct bed *b) { return b->seen.n ? b->seen.p : ""; }

static void bed_close(struct bed *b) {
    strategy_fini(&b->r);
    buf_fini(&b->seen);
    ask_fini(&b->ask);
    script_fini(&b->script);
}

/* ---- names ---- */

static void test_parse(void **state) {
    (void)state;
    struct strategy s;
    struct err e = {0};
    assert_int_equal(strategy_parse(&s, NULL, &e), 0);
    assert_string_equal(strategy_name(&s), "greedy");
    assert_int_equal(strategy_parse(&s, "majority:n=5,temperature=0.9", &e), 0);
    assert_int_equal(s.n, 5);
    assert_true(s.temperature > 0.89 && s.temperature < 0.91);
    static const char *const bad[] = {
        "best",       "majority:n=0",     "majority:n=x",         "majority:k=2",
        "majority:n", "majority:width=2", "majority:n=9999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(strategy_parse(&s, bad[i], &e), CHIMERE_EINVAL);
    assert_int_equal(strategy_parse(&s, "majority:k=2", &e), CHIMERE_EINVAL);
    assert_non_null(strstr(e.text, "\"k\""));
    char longer[400];
    memset(longer, 'n', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    assert_int_equal(strategy_parse(&s, longer, &e), CHIMERE_ELIMIT);
}

/* ---- final answers: hand-made ---- */

static void test_key(void **state) {
    (void)state;
    static const struct {
        const char *text, *key;
    } v[] = {
        {"12 + 30 = 42; 42 - 2 = 40. The answer is 40.", "40"},
        {"The answer is 7 apples. I had 9 before.", "7"},
        {"so x = 3\n\\boxed{1,234}", "1234"},
        {"\\boxed{5} no, \\boxed{6}", "6"},
        {"It costs 3.50 euros", "3.5"},
        {"from 12 to -4", "-4"},
        {"12-4", "4"}, /* a range or a difference is no negative number */
        {"1,2,3", "3"},
        {"La r\xc3\xa9ponse est 12.", "12"},
        {"The answer is **Paris**.", "paris"},
        {"Yes.", "yes"},
        {"  yes\n", "yes"},
        {"-0", "0"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        char key[64];
        strategy_key(v[i].text, strlen(v[i].text), key);
        assert_string_equal(key, v[i].key);
    }
}

/* ---- greedy and majority ---- */

static void test_greedy(void **state) {
    (void)state;
    static const char *const replies[] = {"The answer is 4."};
    struct bed b;
    struct err e = {0};
    bed_open(&b, "greedy", replies, 1);
    assert_int_equal(go(&b, &e), 0);
    assert_string_equal(said(&b), "The answer is 4.");
    assert_string_equal(seen(&b), said(&b));
    assert_int_equal(b.r.cost.n_answer, 5);
    assert_int_equal(b.r.cost.n_prompt, 10);
    assert_int_equal(b.r.finish, ASK_STOP);
    assert_true(
        json_number_value(json_object_get(json_array_get(b.script.asked, 0), "temperature")) == 0);
    bed_close(&b);
}

static void test_majority(void **state) {
    (void)state;
    static const char *const replies[] = {"It is 3.", "The answer is 4.", "4", "fail", "I say 5."};
    struct bed b;
    struct err e = {0};
    bed_open(&b, "majority:n=5", replies, 5);
    assert_int_equal(go(&b, &e), 0);
    char key[64];
    strategy_key(said(&b), strlen(said(&b)), key);
    assert_string_equal(key, "4"); /* which of the two texts depends on who came first */
    assert_string_equal(seen(&b), said(&b));
    assert_true(b.r.score == 0.5);
    assert_int_equal(json_array_size(b.r.candidates), 5);
    assert_int_equal(b.r.cost.n_call, 5);
    assert_int_equal(strategy_generated(&b.r.cost), 20); /* the one that failed wrote nothing */
    bed_close(&b);
}

static void test_all_fail(void **state) {
    (void)state;
    static const char *const replies[] = {"fail", "fail", "fail"};
    struct bed b;
    struct err e = {0};
    bed_open(&b, "majority:n=3", replies, 3);
    assert_int_equal(go(&b, &e), CHIMERE_EDEVICE);
    assert_string_equal(seen(&b), "");
    bed_close(&b);
}

/* One hangs until the deadline; the others have answered. */
static void test_deadline(void **state) {
    (void)state;
    static const char *const replies[] = {"hang", "4", "4"};
    struct bed b;
    struct err e = {0};
    bed_open(&b, "majority:n=3", replies, 3);
    b.use.deadline_ns = clock_ns() + 300 * 1000000LL;
    assert_int_equal(go(&b, &e), 0);
    assert_true(b.r.was_late);
    assert_string_equal(said(&b), "4");
    assert_int_equal(b.r.finish, ASK_STOP);
    bed_close(&b);
}

static void *cancel_soon(void *flag) {
    usleep(100000);
    *(_Atomic bool *)flag = true;
    return NULL;
}

static void test_cancel(void **state) {
    (void)state;
    static const char *const replies[] = {"hang", "hang", "hang"};
    struct bed b;
    struct err e = {0};
    _Atomic bool cancelled = false;
    pthread_t t;
    bed_open(&b, "majority:n=3", replies, 3);
    b.use.cancelled = &cancelled;
    int64_t start = clock_ns();
    assert_int_equal(pthread_create(&t, NULL, cancel_soon, (void *)&cancelled), 0);
    assert_int_equal(go(&b, &e), 0);
    pthread_join(t, NULL);
    assert_int_equal(b.r.finish, ASK_CANCELLED);
    assert_true(clock_ms_since(start) < 4500); /* a hanging script waits 5 s by itself */
    bed_close(&b);
}

static void test_tools_refused(void **state) {
    (void)state;
    struct bed b;
    struct err e = {0};
    bed_open(&b, "majority", NULL, 0);
    b.ask.tools = json_pack("[{s:s}]", "type", "function");
    assert_int_equal(go(&b, &e), CHIMERE_EUNSUPPORTED);
    bed_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),    cmocka_unit_test(test_key),
        cmocka_unit_test(test_greedy),   cmocka_unit_test(test_majority),
        cmocka_unit_test(test_all_fail), cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_cancel),   cmocka_unit_test(test_tools_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
