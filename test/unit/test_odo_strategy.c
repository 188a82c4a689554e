/* Strategies over a scripted backend: what is picked, what it cost, and what is left when it goes wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "backend/remote.h"
#include "strategy/strategy_check.h"

#include "loopback.h"
#include "odo_script.h"

struct bed {
    struct script script;
    struct request request;
    struct strategy strategy;
    struct strategy_use use;
    struct strategy_result r;
    struct buf seen; /* what the client gets */
};

static int see(void *ud, const struct backend_event *ev) {
    struct bed *b = ud;
    if (ev->kind == EVENT_CHAT && ev->chat->kind == CHAT_CONTENT)
        buf_put(&b->seen, ev->chat->text, ev->chat->n);
    return 0;
}

static void bed_open(struct bed *b, const char *spec, const char *const *replies, int n) {
    memset(b, 0, sizeof *b);
    script_init(&b->script, replies, n);
    struct err e = {0};
    if (strategy_parse(&b->strategy, spec, &e)) fail_msg("%s", e.text);
    request_init(&b->request);
    b->request.messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "How many?");
    b->use = (struct strategy_use){.strategy = &b->strategy,
                                   .backend = &b->script.base,
                                   .request = &b->request,
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
    request_fini(&b->request);
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
    assert_int_equal(b.r.finish, FINISH_STOP);
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

static const char *nonsense(struct script *s, const json_t *messages);

/* All calls of a strategy together, also those of the verifier, stay within its tokens. */
static void test_tokens(void **state) {
    (void)state;
    static const char *const specs[] = {
        "majority:n=4",     "best_of_n:n=4",  "weighted:n=4", "dvts:n=4,width=2",
        "beam:n=4,width=2", "consistent:n=4", "greedy"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        for (int tokens = 1; tokens < 80; tokens += 3) {
            struct bed b;
            char spec[64];
            snprintf(spec, sizeof spec, "%s%stokens=%d", specs[i],
                     strchr(specs[i], ':') ? "," : ":", tokens);
            bed_open(&b, spec, NULL, 0);
            b.script.choose = nonsense;
            struct err e = {0};
            int rc = go(&b, &e);
            if (rc && (rc != CHIMERE_EINVAL || tokens >= 4)) fail_msg("%s: %s", spec, e.text);
            if (strategy_generated(&b.r.cost) > tokens)
                fail_msg("%s: %d tokens", spec, (int)strategy_generated(&b.r.cost));
            bed_close(&b);
        }
}

/* The text that agrees most with the others is chosen. */
static void test_consistent(void **state) {
    (void)state;
    static const char *const replies[] = {
        "Bread rises because yeast makes gas in the dough.", "I like trains and rivers.",
        "Yeast makes gas, and so the dough of bread rises.", "The yeast in the dough makes gas."};
    struct bed b;
    bed_open(&b, "consistent:n=4", replies, 4);
    assert_int_equal(go(&b, NULL), 0);
    assert_non_null(strcasestr(said(&b), "yeast"));
    assert_true(b.r.score > 0.3 && b.r.score < 1);
    assert_string_equal(seen(&b), said(&b));
    bed_close(&b);
    assert_true(strategy_overlap("a b c", 5, "A, B; C!", 8) == 1);
    assert_true(strategy_overlap("a b", 3, "c d", 3) == 0);
    assert_true(strategy_overlap("", 0, "", 0) == 0);
    assert_true(strategy_overlap("a a b", 5, "a b", 3) == 0.8);
}

/* Programs are run with the question's tests, or with those that the model writes. */
static void test_tested(void **state) {
    (void)state;
    static const char *const replies[] = {
        "def add(a, b): return a - b", "def add(a, b): return a + b", "def add(a, b) return",
        "assert add(1, 2) == 3"}; /* the script has no line ends within a reply */
    struct slice tests[STRATEGY_MAX_TESTS];
    static const char lines[] = "so:\n  `assert f(1) == 2`\nassert x\nassertion\nassert ";
    assert_int_equal(strategy_tests(lines, sizeof lines - 1, tests), 2);
    assert_int_equal((int)tests[0].n, 16);
    static const char fenced[] = "Text\n```python\nx = 1\n```\nMore\n```\ny\n```";
    struct slice program = strategy_program(fenced, sizeof fenced - 1);
    assert_int_equal((int)program.n, 6);
    assert_memory_equal(program.p, "x = 1", 5);
    if (access("/usr/bin/python3", X_OK)) {
        puts("skip: /usr/bin/python3 is not installed: apt-get install python3");
        return;
    }
    static const char *const questions[] = {
        "Write add(a, b).\nassert add(3, 4) == 7\nassert add(0, 0) == 0", "Write add(a, b)."};
    for (int i = 0; i < 2; i++) {
        struct bed b;
        struct err e = {0};
        bed_open(&b, "tested:n=3", replies, 4);
        json_decref(b.request.messages);
        b.request.messages = json_pack("[{s:s, s:s}]", "role", "user", "content", questions[i]);
        int rc = go(&b, &e);
        if (rc == CHIMERE_EREFUSED) {
            puts("skip: the kernel forbids sandboxes: allow user namespaces");
            bed_close(&b);
            return;
        }
        if (rc) fail_msg("%s", e.text);
        assert_non_null(strstr(said(&b), "a + b"));
        assert_true(b.r.score == 1);
        assert_int_equal(b.r.cost.n_call, 3 + i);
        bed_close(&b);
    }
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
    b.use.deadline_ns = clock_ns() + 1000 * 1000000LL;
    assert_int_equal(go(&b, &e), 0);
    assert_true(b.r.was_late);
    assert_string_equal(said(&b), "4");
    assert_int_equal(b.r.finish, FINISH_STOP);
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
    assert_int_equal(b.r.finish, FINISH_CANCELLED);
    assert_true(clock_ms_since(start) < HANG_MS / 2.0);
    bed_close(&b);
}

static void test_tools_refused(void **state) {
    (void)state;
    struct bed b;
    struct err e = {0};
    bed_open(&b, "majority", NULL, 0);
    b.request.tools = json_pack("[{s:s}]", "type", "function");
    assert_int_equal(go(&b, &e), CHIMERE_EUNSUPPORTED);
    bed_close(&b);
}

/* ---- with a verifier ---- */

static bool is_check(const json_t *messages) {
    const char *t = json_string_value(json_object_get(json_array_get(messages, 0), "content"));
    return t && !strncmp(t, "Check each step", 15);
}

static const char *last_text(const json_t *messages) {
    const json_t *m = json_array_get(messages, json_array_size(messages) - 1);
    return json_string_value(json_object_get(m, "content"));
}

/* Three candidates say 3, one says 4; the verifier knows better. Under the script's lock. */
static const char *one_is_right(struct script *s, const json_t *messages) {
    if (is_check(messages))
        return strstr(last_text(messages), "= 4") ? "Step 1 is correct." : "Step 1 is incorrect.";
    return s->at++ == 2 ? "2 + 2 = 4." : "2 + 2 = 3.";
}

static const char *nonsense(struct script *s, const json_t *messages) {
    if (is_check(messages)) return "banana banana";
    return s->at++ == 2 ? "2 + 2 = 4." : "2 + 2 = 3.";
}

static const char *judge_fails(struct script *s, const json_t *messages) {
    return is_check(messages) ? "fail" : nonsense(s, messages);
}

static const char *judge_hangs(struct script *s, const json_t *messages) {
    return is_check(messages) ? "hang" : nonsense(s, messages);
}

static void expect_answer(const char *spec, const char *(*choose)(struct script *, const json_t *),
                          bool late, const char *answer) {
    struct bed b;
    struct err e = {0};
    bed_open(&b, spec, NULL, 0);
    b.script.choose = choose;
    if (late) b.use.deadline_ns = clock_ns() + 1000 * 1000000LL;
    assert_int_equal(go(&b, &e), 0);
    assert_string_equal(said(&b), answer);
    assert_string_equal(seen(&b), answer);
    bed_close(&b);
}

static void test_best(void **state) {
    (void)state;
    expect_answer("best_of_n:n=4", one_is_right, false, "2 + 2 = 4.");
    expect_answer("weighted:n=4", one_is_right, false, "2 + 2 = 4.");
    expect_answer("best_of_n:n=4", nonsense, false, "2 + 2 = 3."); /* all neutral: the majority */
    expect_answer("weighted:n=4", nonsense, false, "2 + 2 = 3.");
    expect_answer("best_of_n:n=4", judge_fails, false, "2 + 2 = 3.");
    expect_answer("best_of_n:n=4", judge_hangs, true, "2 + 2 = 3.");
}

/* ---- trees: each reply is a whole step; the second step of an answer ends it ---- */

static const char *two_steps(struct script *s, const json_t *messages) {
    if (is_check(messages)) {
        const char *t = last_text(messages);
        if (json_array_size(messages) > 1)
            t = json_string_value(json_object_get(json_array_get(messages, 0), "content"));
        return strstr(t, "bad") ? "Step 1 is incorrect. Step 2 is incorrect."
                                : "Step 1 is correct. Step 2 is correct.";
    }
    return s->at++ % 2 ? "good step with 7" : "bad step with 8";
}

static void test_tree(void **state) {
    (void)state;
    struct bed b;
    struct err e = {0};
    static const char *const specs[] = {"dvts:n=4,width=2", "beam:n=4,width=2"};
    for (int i = 0; i < 2; i++) {
        bed_open(&b, specs[i], NULL, 0);
        b.script.choose = two_steps;
        assert_int_equal(go(&b, &e), 0);
        assert_string_equal(said(&b), "good step with 7");
        assert_string_equal(seen(&b), said(&b));
        assert_int_equal(b.r.finish, FINISH_STOP);
        assert_true(b.r.score == 1);
        assert_true(b.r.cost.n_check > 0 && b.r.cost.n_answer == 20);
        bed_close(&b);
    }
}

/* A branch whose model fails is dropped, the others go on; where all fail, that is the error. */
static const char *half_fail(struct script *s, const json_t *messages) {
    if (is_check(messages)) return "Step 1 is correct.";
    return s->at++ % 2 ? "fail" : "fine: 5";
}
static const char *all_fail(struct script *s, const json_t *messages) {
    (void)s, (void)messages;
    return "fail";
}

static void test_tree_fails(void **state) {
    (void)state;
    struct bed b;
    struct err e = {0};
    expect_answer("dvts:n=4,width=1", half_fail, false, "fine: 5");
    expect_answer("dvts:n=4,width=2", nonsense, false, "2 + 2 = 3.");
    bed_open(&b, "dvts:n=4,width=2", NULL, 0);
    b.script.choose = all_fail;
    assert_int_equal(go(&b, &e), CHIMERE_EDEVICE);
    bed_close(&b);
}

/* Steps that never end: the rounds are counted, and the best so far is given. */
static const char *endless(struct script *s, const json_t *messages) {
    (void)s;
    return is_check(messages) ? "Step 1 is correct." : "stop\n";
}

static void test_tree_bounds(void **state) {
    (void)state;
    struct bed b;
    struct err e = {0};
    bed_open(&b, "dvts:n=2,width=1,steps=5", NULL, 0);
    b.script.choose = endless;
    b.script.stop = "\n";
    assert_int_equal(go(&b, &e), 0);
    assert_string_equal(said(&b), "stop\nstop\nstop\nstop\nstop\n");
    assert_int_equal(b.r.finish, FINISH_LENGTH);
    bed_close(&b);
    bed_open(&b, "dvts:n=2,width=1", NULL, 0); /* the second round hangs until the deadline */
    static const char *const replies[] = {"one", "Step 1 is correct.", "hang", "hang", "hang"};
    b.script.replies = replies;
    b.script.n = 5;
    b.script.stop = "\n";
    b.strategy.n = 1;
    b.use.deadline_ns = clock_ns() + 1000 * 1000000LL;
    assert_int_equal(go(&b, &e), 0);
    assert_true(!strncmp(said(&b), "one\n", 4));
    assert_true(b.r.was_late);
    bed_close(&b);
}

/* ---- a model behind a server ---- */

/* The first step of an answer ends at a stop string, which the server names; the next one is asked for as its continuation. */
static _Atomic int n_first, n_next;

static void serve_steps(struct loopback *l, int fd, const char *path, const char *request) {
    (void)l, (void)path;
    bool next = strstr(request, "\"continue_final_message\":true") &&
                strstr(request, "{\"role\":\"assistant\",\"content\":\"2 + 2 = 4.\"}");
    *(next ? &n_next : &n_first) += 1;
    loopback_reply(fd, "200 OK", "text/event-stream",
                   next ? "data: {\"choices\":[{\"delta\":{\"content\":\" So 4.\"},"
                          "\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
                        : "data: {\"choices\":[{\"delta\":{\"content\":\"2 + 2 = 4\"},"
                          "\"finish_reason\":\"stop\",\"stop_reason\":\". \"}]}\n\n"
                          "data: [DONE]\n\n");
}

static void test_tree_remote(void **state) {
    (void)state;
    static struct loopback server;
    char url[64];
    struct bed b;
    struct err e = {0};
    struct backend *remote;
    loopback_open(&server, serve_steps);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", server.port);
    bed_open(&b, "dvts:n=1,width=1", NULL, 0);
    assert_int_equal(backend_remote_open(&remote, url, NULL, "m", &e), 0);
    b.use.backend = remote;
    if (go(&b, &e)) fail_msg("%s", e.text);
    assert_string_equal(said(&b), "2 + 2 = 4. So 4.");
    assert_int_equal(n_first, 1);
    assert_int_equal(n_next, 1);
    bed_close(&b);
    remote->ops->close(remote);
    loopback_close(&server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),         cmocka_unit_test(test_key),
        cmocka_unit_test(test_greedy),        cmocka_unit_test(test_majority),
        cmocka_unit_test(test_tokens),        cmocka_unit_test(test_consistent),
        cmocka_unit_test(test_tested),        cmocka_unit_test(test_all_fail),
        cmocka_unit_test(test_deadline),      cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_tools_refused), cmocka_unit_test(test_best),
        cmocka_unit_test(test_tree),          cmocka_unit_test(test_tree_fails),
        cmocka_unit_test(test_tree_bounds),   cmocka_unit_test(test_tree_remote),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
