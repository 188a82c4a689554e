/* test_team.c: engines that serve as one: where jobs go, what they say, cards that fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "engine/gpus.h"
#include "engine/lm.h"
#include "engine/team.h"

enum { VOCAB = 300, N_MEMBER = 3, LONG = 64 * 20 };

struct team_of {
    struct engine *engines[N_MEMBER];
    int32_t n;
};

static void open_team(struct team_of *t, int32_t n, int32_t delay_us, const int32_t *n_run_ok,
                      int32_t n_queue) {
    static const char *const names[] = {"a", "b", "c"};
    struct err e = {0};
    t->n = n;
    for (int32_t i = 0; i < n; i++) {
        struct engine_params p;
        engine_defaults(&p);
        p.n_seq = 4;
        p.n_ctx = 1 << 15;
        p.n_queue = n_queue;
        const struct lm_fake_params fp = {.n_vocab = VOCAB,
                                          .n_ctx = p.n_ctx,
                                          .n_seq = p.n_seq,
                                          .delay_us = delay_us,
                                          .n_run_ok = n_run_ok ? n_run_ok[i] : 0};
        struct lm *lm;
        if (lm_open_fake(&lm, &fp, &e) || engine_new_over(&t->engines[i], lm, NULL, &p, &e))
            fail_msg("%s", e.text);
    }
    if (n > 1 && team_new(t->engines, names, n, &e)) fail_msg("%s", e.text);
}

static void close_team(struct team_of *t) {
    for (int32_t i = t->n; i-- > 0;) engine_free(t->engines[i]);
}

struct said {
    struct engine_job j;
    int32_t tokens[64], n;
    bool ended;
};
static _Atomic bool is_held; /* running jobs are, at their next token */

static bool hear(struct engine_job *j, int32_t token, bool is_end,
                 const struct sampler_probs *probs) {
    while (is_held) usleep(1000);
    struct said *s = j->ud;
    (void)is_end, (void)probs;
    if (s->n < 64) s->tokens[s->n++] = token;
    return true;
}
static void ended(struct engine_job *j) {
    __atomic_store_n(&((struct said *)j->ud)->ended, true, __ATOMIC_RELEASE);
}

static int post_drawn(struct said *s, struct engine *g, const int32_t *prompt, int32_t n,
                      int32_t max, float temperature, struct err *e) {
    *s = (struct said){.j = {.p.prompt = prompt,
                             .p.n_prompt = n,
                             .p.max_tokens = max,
                             .on_token = hear,
                             .on_done = ended,
                             .ud = s}};
    sampler_defaults(&s->j.p.sampling);
    s->j.p.sampling.seed = 7;
    s->j.p.sampling.temperature = temperature;
    return engine_submit(g, &s->j, e);
}
static int post(struct said *s, struct engine *g, const int32_t *prompt, int32_t n, int32_t max,
                struct err *e) {
    return post_drawn(s, g, prompt, n, max, 0.7f, e);
}
static void wait_for(const struct said *s) {
    while (!__atomic_load_n(&s->ended, __ATOMIC_ACQUIRE)) sched_yield();
}

/* A text of its own for each topic. */
static void fill(int32_t *prompt, int32_t n, int32_t topic) {
    for (int32_t i = 0; i < n; i++) prompt[i] = (i * 7 + topic * 13 + i / 50) % VOCAB;
}

static int64_t given(struct engine *g, int32_t i) {
    struct team_member m;
    team_at(g, i, &m, NULL);
    return m.n_job;
}

/* Turn after turn of four conversations, one at a time: each stays on one card. */
static void a_conversation_stays_where_its_state_is(void **state) {
    (void)state;
    enum { N_TALK = 4, N_TURN = 5 };
    struct team_of t;
    struct err e = {0};
    static int32_t prompt[N_TALK][LONG];
    static struct said s[N_TALK];
    int32_t where[N_TALK], n_on[N_MEMBER] = {0};
    open_team(&t, 2, 0, NULL, 64);
    for (int32_t k = 0; k < N_TALK; k++) fill(prompt[k], LONG, k);
    for (int32_t turn = 0; turn < N_TURN; turn++) {
        int32_t n = 64 * 4 * (turn + 1);
        for (int32_t k = 0; k < N_TALK; k++) {
            if (post(&s[k], t.engines[0], prompt[k], n - k, 4, &e)) fail_msg("%s", e.text);
            wait_for(&s[k]);
            assert_int_equal(s[k].j.finish, FINISH_LENGTH);
            if (!turn) n_on[where[k] = s[k].j.member]++;
            assert_int_equal(s[k].j.member, where[k]);
        }
    }
    assert_int_equal(n_on[0], 2);
    assert_int_equal(n_on[1], 2);
    close_team(&t);
}

/* A prompt that one card knows goes elsewhere when that card has much more to do than evaluating it costs. */
static void load_moves_a_conversation(void **state) {
    (void)state;
    struct team_of t;
    struct err e = {0};
    static int32_t prompt[LONG];
    static struct said first, s[12];
    int32_t n_on[2] = {0};
    open_team(&t, 2, 3000, NULL, 64);
    fill(prompt, LONG, 1);
    if (post(&first, t.engines[0], prompt, LONG, 1, &e)) fail_msg("%s", e.text);
    wait_for(&first);
    is_held = true; /* none ends before all are posted */
    for (int32_t k = 0; k < 12; k++) {
        if (post(&s[k], t.engines[0], prompt, LONG, 20, &e)) fail_msg("%s", e.text);
        n_on[s[k].j.member]++;
    }
    is_held = false;
    for (int32_t k = 0; k < 12; k++) wait_for(&s[k]);
    assert_int_equal(s[0].j.member, first.j.member);
    for (int32_t k = 0; k < 4; k++)
        assert_int_equal(s[k].j.member, first.j.member); /* its places */
    assert_true(n_on[1 - first.j.member] >= 3);
    close_team(&t);
}

static void scopes_and_short_prompts_are_spread(void **state) {
    (void)state;
    struct team_of t;
    struct err e = {0};
    static int32_t prompt[LONG];
    static struct said s[30];
    open_team(&t, 3, 0, NULL, 64);
    fill(prompt, LONG, 2);
    for (int32_t k = 0; k < 30; k++) { /* one after the other: no load, nothing in common */
        s[k] = (struct said){.n = 0};
        fill(prompt, 64, k);
        if (post(&s[k], t.engines[0], prompt, 60, 2, &e)) fail_msg("%s", e.text);
        wait_for(&s[k]);
    }
    for (int32_t i = 0; i < 3; i++) assert_int_equal(given(t.engines[0], i), 10);
    /* the same prompt under another scope is nobody's */
    fill(prompt, LONG, 3);
    if (post(&s[0], t.engines[0], prompt, LONG, 2, &e)) fail_msg("%s", e.text);
    wait_for(&s[0]);
    int32_t where = s[0].j.member;
    int64_t before = given(t.engines[0], where);
    for (int32_t k = 1; k <= 2; k++) {
        struct said *x = &s[k];
        *x = (struct said){.j = s[0].j};
        x->j.ud = x;
        x->j.p.scope = (uint64_t)k;
        assert_int_equal(engine_submit(t.engines[0], &x->j, &e), 0);
        wait_for(x);
        assert_int_not_equal(x->j.member, where);
    }
    assert_int_equal(given(t.engines[0], where), before);
    close_team(&t);
}

static void texts_are_those_of_one_engine(void **state) {
    (void)state;
    enum { N = 24 };
    static int32_t prompt[N][200];
    static struct said one[N], many[N];
    struct err e = {0};
    for (int32_t how = 0; how < 2; how++) {
        struct team_of t;
        struct said *s = how ? many : one;
        open_team(&t, how ? 3 : 1, 0, NULL, 64);
        for (int32_t k = 0; k < N; k++) {
            fill(prompt[k], 200, k % 5);
            if (post(&s[k], t.engines[0], prompt[k], 100 + k, 40, &e)) fail_msg("%s", e.text);
        }
        for (int32_t k = 0; k < N; k++) wait_for(&s[k]);
        struct engine_totals sum;
        do engine_totals(t.engines[0], &sum);
        while (sum.n_job < N);
        assert_int_equal(sum.n_generated, N * 40);
        assert_int_equal(team_size(t.engines[0]), how ? 3 : 1);
        close_team(&t);
    }
    for (int32_t k = 0; k < N; k++) {
        assert_int_equal(one[k].n, 40);
        assert_memory_equal(one[k].tokens, many[k].tokens, sizeof one[k].tokens);
    }
}

/* Full queues of some members are not the team's; all full: refused. Cancelled jobs end wherever they are. */
static void queues_and_cancelling(void **state) {
    (void)state;
    enum { N = 40 };
    static int32_t prompt[64];
    static struct said s[N];
    struct team_of t;
    struct err e = {0};
    int32_t n_taken = 0;
    open_team(&t, 2, 2000, NULL, 2);
    fill(prompt, 64, 1);
    is_held = true;
    for (int32_t k = 0; k < N; k++) {
        int rc = post(&s[k], t.engines[0], prompt, 50, 0, &e);
        if (rc) assert_int_equal(rc, CHIMERE_EBUSY);
        else n_taken++;
        s[k].ended = rc != 0;
    }
    assert_in_range(n_taken, 4, 2 * (4 + 2) + 2);
    for (int32_t k = 0; k < N; k++)
        if (!s[k].ended) engine_cancel(t.engines[0], &s[k].j);
    is_held = false;
    for (int32_t k = 0; k < N; k++) wait_for(&s[k]);
    for (int32_t i = 0; i < 2; i++) {
        struct team_member m;
        team_at(t.engines[0], i, &m, NULL);
        assert_int_equal(m.n_open, 0);
        assert_int_equal(m.n_todo, 0);
    }
    /* refused by name, not by a card */
    assert_int_equal(post(&s[0], t.engines[0], prompt, 0, 1, &e), CHIMERE_EINVAL);
    prompt[3] = VOCAB;
    assert_int_equal(post(&s[0], t.engines[0], prompt, 50, 1, &e), CHIMERE_EINVAL);
    close_team(&t);
}

static void a_card_that_fails_gets_no_more(void **state) {
    (void)state;
    static const int32_t n_ok[] = {3, 0}, none[] = {1, 1};
    static int32_t prompt[64];
    static struct said s;
    struct team_of t;
    struct err e = {0};
    struct engine_totals sum;
    int32_t n_bad = 0;
    fill(prompt, 64, 1);
    open_team(&t, 2, 0, n_ok, 8);
    for (int32_t k = 0; k < 20; k++) {
        if (post(&s, t.engines[0], prompt, 50, 2, &e)) fail_msg("%s", e.text);
        wait_for(&s);
        n_bad += s.j.finish == FINISH_ERROR;
    }
    assert_int_equal(n_bad, 0); /* what it had moves */
    engine_totals(t.engines[0], &sum);
    assert_int_equal(sum.n_failed_steps, 0); /* the team is well */
    assert_false(sum.is_lost);
    close_team(&t);
    open_team(&t, 2, 0, none, 8);
    int rc = 0;
    for (int32_t k = 0; k < 20 && !rc; k++) {
        rc = post(&s, t.engines[0], prompt, 50, 2, &e);
        if (!rc) wait_for(&s);
    }
    assert_int_equal(rc, CHIMERE_EDEVICE);
    assert_non_null(strstr(e.text, "every card has failed"));
    engine_totals(t.engines[0], &sum);
    assert_true(sum.is_lost);
    close_team(&t);
}

/* Answers of a card that fails after n_ok steps: greedy, drawn, with a limit, in a queue. They continue on another
 * card with the next token, whatever they have said. */
static void answers_move_from_a_card_that_fails(void **state) {
    (void)state;
    enum { N = 12 };
    static const int32_t n_oks[] = {1, 2, 3, 7, 20, 39};
    static int32_t prompt[N][300];
    static struct said calm[N], s[N];
    struct team_of t;
    struct err e = {0};
    for (int32_t k = 0; k < N; k++) fill(prompt[k], 300, k);
    for (size_t i = 0; i <= sizeof n_oks / sizeof *n_oks; i++) {
        const int32_t n_ok[] = {0, i ? n_oks[i - 1] : 0};
        open_team(&t, 2, 200, n_ok, 64);
        for (int32_t k = 0; k < N; k++) {
            struct said *x = i ? &s[k] : &calm[k];
            if (post_drawn(x, t.engines[0], prompt[k], 200 + k, 40, k % 3 ? 0 : 1.5f, &e))
                fail_msg("%s", e.text);
        }
        int32_t n_prefill = 0;
        for (int32_t k = 0; k < N; k++) {
            struct said *x = i ? &s[k] : &calm[k];
            wait_for(x);
            if (x->j.finish == FINISH_ERROR) fail_msg("%d: %s", k, x->j.err.text);
            assert_int_equal(x->j.finish, FINISH_LENGTH);
            assert_int_equal(x->j.stats.n_generated, 40);
            assert_int_equal(x->j.stats.n_prompt, 200 + k);
            assert_int_equal(x->j.err.code, 0);
            assert_null(x->j.carried);
            assert_int_equal(x->n, 40);
            assert_memory_equal(x->tokens, calm[k].tokens, sizeof x->tokens);
            n_prefill += x->j.stats.prefill_ms > 0;
        }
        assert_int_equal(n_prefill, N);
        struct team_member m[2];
        for (int32_t k = 0; k < 2; k++) {
            team_at(t.engines[0], k, &m[k], NULL);
            assert_int_equal(m[k].n_open, 0);
            assert_int_equal(m[k].n_todo, 0);
        }
        assert_int_equal(m[1].lost, i > 0);
        assert_int_equal(m[1].n_moved, 0);
        if (i) assert_in_range(m[0].n_moved, 1, N);
        else assert_int_equal(m[0].n_moved, 0);
        close_team(&t);
    }
}

/* An answer that is under way when two cards fail has moved once and fails; the third card lives, and answers. */
static void an_answer_moves_once(void **state) {
    (void)state;
    static const int32_t n_ok[] = {5, 5, 0};
    static int32_t prompt[64];
    static struct said s;
    struct team_of t;
    struct err e = {0};
    int32_t n_bad = 0;
    fill(prompt, 64, 1);
    open_team(&t, 3, 0, n_ok, 8);
    for (int32_t k = 0; k < 4; k++) {
        if (post(&s, t.engines[0], prompt, 50, 30, &e)) fail_msg("%s", e.text);
        wait_for(&s);
        n_bad += s.j.finish == FINISH_ERROR;
        assert_null(s.j.carried);
        if (s.j.finish == FINISH_ERROR) assert_int_equal(s.j.err.code, CHIMERE_EDEVICE);
        else assert_int_equal(s.n, 30);
    }
    assert_int_equal(n_bad, 1);
    close_team(&t);
}

/* Cancelled while it moves: it ends, wherever it is. */
static void a_moved_answer_may_be_cancelled(void **state) {
    (void)state;
    static int32_t prompt[8][64];
    static struct said s[8];
    struct err e = {0};
    for (int32_t round = 0; round < 20; round++) {
        struct team_of t;
        const int32_t n_ok[] = {0, 6 + round % 4};
        open_team(&t, 2, 300, n_ok, 64);
        for (int32_t k = 0; k < 8; k++) {
            fill(prompt[k], 64, k);
            if (post(&s[k], t.engines[0], prompt[k], 60, 0, &e)) fail_msg("%s", e.text);
        }
        struct team_member m;
        do team_at(t.engines[0], 1, &m, NULL);
        while (!m.lost && round % 2);
        for (int32_t k = 0; k < 8; k++) engine_cancel(t.engines[0], &s[k].j);
        for (int32_t k = 0; k < 8; k++) {
            wait_for(&s[k]);
            assert_int_equal(s[k].j.finish, FINISH_CANCELLED);
        }
        close_team(&t);
    }
}

static int64_t fail_nth;
static bool hear_then_fail(struct engine_job *j, int32_t token, bool is_end,
                           const struct sampler_probs *probs) {
    mem_fail_nth(fail_nth);
    return hear(j, token, is_end, probs);
}

/* Memory may run out while an answer is to move: then it fails as its card did. */
static void moving_may_run_out_of_memory(void **state) {
    (void)state;
    static const int32_t n_ok[] = {1, 1};
    static int32_t prompt[64];
    static struct said s;
    struct err e = {0};
    fill(prompt, 64, 1);
    for (fail_nth = 1; fail_nth <= 2; fail_nth++) {
        struct team_of t;
        open_team(&t, 2, 0, n_ok, 8);
        s = (struct said){.j = {.p.prompt = prompt,
                                .p.n_prompt = 50,
                                .p.max_tokens = 9,
                                .p.no_cache = true,
                                .on_token = hear_then_fail,
                                .on_done = ended,
                                .ud = &s}};
        sampler_defaults(&s.j.p.sampling);
        if (engine_submit(t.engines[0], &s.j, &e)) fail_msg("%s", e.text);
        wait_for(&s);
        mem_fail_nth(0);
        assert_int_equal(s.j.err.code, CHIMERE_EDEVICE);
        assert_int_equal(s.n, 1);
        assert_null(s.j.carried);
        close_team(&t);
    }
}

static void lists_of_cards(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
        int n;
    } cases[] = {
        {NULL, NULL, 0},
        {"0", NULL, 1},
        {"1,0", NULL, 2},
        {"cpu,cpu", NULL, 2},
        {"0,1,2,3,4,5,6,7", NULL, 8},
        {"0,1,2,3,4,5,6,7,8", "at most 8", -1},
        {"0,1,0", "card 0 is named twice", -1},
        {"", "got ''", -1},
        {"0,", "got ''", -1},
        {",0", "got ''", -1},
        {"0,x", "got 'x'", -1},
        {"0, 1", "got ' 1'", -1},
        {"-1", "got '-1'", -1},
        {"12", "got '12'", -1},
        {"cuda:0", "got 'cuda:0'", -1},
        {"cpux", "got 'cpux'", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gpus g;
        struct err e = {0};
        int rc = gpus_parse(cases[i].text, &g, &e);
        assert_int_equal(rc < 0, cases[i].n < 0);
        if (!rc) assert_int_equal(g.n, cases[i].n);
        if (rc && !strstr(e.text, cases[i].says)) fail_msg("'%s': %s", cases[i].text, e.text);
    }
    struct gpus g;
    assert_int_equal(gpus_parse("1,0", &g, NULL), 0);
    assert_string_equal(g.names[0], "cuda:1");
    assert_string_equal(g.names[1], "cuda:0");
}

static void memory_may_run_out(void **state) {
    (void)state;
    struct team_of t;
    struct err e = {0};
    static const char *const names[] = {"a"};
    open_team(&t, 1, 0, NULL, 8);
    for (int64_t nth = 1; nth <= 2; nth++) {
        mem_fail_nth(nth);
        int rc = team_new(t.engines, names, 1, &e);
        mem_fail_nth(0);
        assert_int_equal(rc, CHIMERE_ENOMEM);
    }
    close_team(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conversation_stays_where_its_state_is),
        cmocka_unit_test(load_moves_a_conversation),
        cmocka_unit_test(scopes_and_short_prompts_are_spread),
        cmocka_unit_test(texts_are_those_of_one_engine),
        cmocka_unit_test(queues_and_cancelling),
        cmocka_unit_test(a_card_that_fails_gets_no_more),
        cmocka_unit_test(answers_move_from_a_card_that_fails),
        cmocka_unit_test(an_answer_moves_once),
        cmocka_unit_test(a_moved_answer_may_be_cancelled),
        cmocka_unit_test(moving_may_run_out_of_memory),
        cmocka_unit_test(lists_of_cards),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
