/* test_engine.c: scheduling over a weightless model, speculation's exactness. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/lm.h"
#include "engine/spec.h"

enum { VOCAB = 40, EOS = 0 };

static void neutral(struct sampler_params *p) {
    sampler_defaults(p);
    p->temperature = 1;
    p->top_k = 0;
    p->top_p = 1;
}

/* ---- engine over the weightless model ---- */

struct collected {
    int32_t tokens[600];
    int32_t n, stop_after;
    bool ended;
};

static bool collect(struct job *j, int32_t token, bool is_end, const struct sampler_probs *probs) {
    (void)probs;
    (void)is_end;
    struct collected *c = j->ud;
    if (c->n < 600) c->tokens[c->n++] = token;
    return !c->stop_after || c->n < c->stop_after;
}
static void ended(struct job *j) { ((struct collected *)j->ud)->ended = true; }

static struct engine *new_engine(const struct engine_params *p, int32_t delay_us) {
    struct lm_fake_params fp = {.n_vocab = VOCAB,
                                .eos = EOS,
                                .n_eos = 0,
                                .n_ctx = p->n_ctx,
                                .n_seq = p->n_seq,
                                .delay_us = delay_us};
    struct lm *lm;
    struct engine *g;
    struct err e = {0};
    assert_int_equal(lm_open_fake(&lm, &fp, &e), 0);
    if (engine_new_over(&g, lm, NULL, p, &e)) fail_msg("%s", e.text);
    return g;
}

static void fill_job(struct job *j, struct collected *c, const int32_t *prompt, int32_t n,
                     int32_t max, uint64_t seed) {
    *c = (struct collected){.n = 0};
    *j = (struct job){.prompt = prompt,
                      .n_prompt = n,
                      .max_tokens = max,
                      .on_token = collect,
                      .on_done = ended,
                      .ud = c};
    neutral(&j->sampling);
    j->sampling.seed = seed;
}

static const int32_t prompt[] = {5, 9, 5, 9, 7, 3, 5, 9, 5, 9, 7, 3, 5, 9};
enum { N_PROMPT = sizeof prompt / sizeof *prompt };

/* The same jobs alone, together, with and without drafting: the same texts. */
static void texts_do_not_depend_on_company_or_drafts(void **state) {
    (void)state;
    enum { N_JOB = 12 };
    static int32_t want[N_JOB][100];
    for (int how = 0; how < 4; how++) {
        struct engine_params p;
        engine_defaults(&p);
        p.n_seq = how < 2 ? 1 : 5;
        p.n_ctx = 4096;
        p.n_batch = how == 2 ? 64 : 512;
        p.n_chunk = 8;
        p.deterministic = how > 0;
        p.speculate = how % 2;
        struct engine *g = new_engine(&p, 0);
        struct job jobs[N_JOB];
        struct collected got[N_JOB];
        struct err e = {0};
        for (int i = 0; i < N_JOB; i++) {
            fill_job(&jobs[i], &got[i], prompt, N_PROMPT - i % 3, 100, (uint64_t)i);
            if (i % 4 == 0) jobs[i].sampling.temperature = 0;
            if (how < 2) assert_int_equal(engine_run(g, &jobs[i], &e), 0);
            else if (engine_submit(g, &jobs[i], &e)) fail_msg("%s", e.text);
        }
        if (how >=
            2) { /* jobs are served in order of arrival: the last one posted may not end last */
            struct job last;
            struct collected lc;
            fill_job(&last, &lc, prompt, 2, 1, 1);
            for (int i = 0; i < N_JOB; i++)
                while (!((volatile struct collected *)&got[i])->ended) engine_run(g, &last, &e);
        }
        for (int i = 0; i < N_JOB; i++) {
            assert_int_equal(jobs[i].finish, FINISH_LENGTH);
            assert_int_equal(got[i].n, 100);
            if (!how) memcpy(want[i], got[i].tokens, sizeof want[i]);
            assert_memory_equal(want[i], got[i].tokens, sizeof want[i]);
        }
        struct engine_totals t;
        engine_totals(g, &t);
        if (how == 1) assert_true(t.n_accepted > 0); /* repeating text: n-gram drafts were taken */
        engine_free(g);
    }
}

static void jobs_end_as_they_should(void **state) {
    (void)state;
    struct engine_params p;
    engine_defaults(&p);
    p.n_seq = 2;
    p.n_ctx = 256;
    p.n_queue = 3;
    struct engine *g = new_engine(&p, 300);
    struct job j[8];
    struct collected c[8];
    struct err e = {0};
    fill_job(&j[0], &c[0], prompt, N_PROMPT, 0, 1);
    c[0].stop_after = 7;
    assert_int_equal(engine_run(g, &j[0], &e), 0);
    assert_int_equal(j[0].finish, FINISH_STOP);
    assert_int_equal(c[0].n, 7);
    fill_job(&j[1], &c[1], prompt, N_PROMPT, 0, 1);
    assert_int_equal(engine_run(g, &j[1], &e), 0);
    assert_int_equal(j[1].finish, FINISH_LENGTH); /* the context's end */
    assert_true(c[1].n + N_PROMPT <= 256);
    static const int32_t foreign[] = {1, VOCAB};
    fill_job(&j[2], &c[2], foreign, 2, 5, 1);
    assert_int_equal(engine_submit(g, &j[2], &e), CHIMERE_EINVAL);
    int32_t longer[300] = {0};
    fill_job(&j[3], &c[3], longer, 300, 5, 1);
    assert_int_equal(engine_submit(g, &j[3], &e), CHIMERE_ELIMIT);
    /* a full queue refuses, a cancelled job ends, waiting or running */
    int n_busy = 0;
    for (int i = 0; i < 8; i++) {
        fill_job(&j[i], &c[i], prompt, N_PROMPT, 0, 1);
        n_busy += engine_submit(g, &j[i], &e) == CHIMERE_EBUSY;
    }
    assert_true(n_busy >= 1);
    for (int i = 0; i < 8; i++) engine_cancel(g, &j[i]);
    engine_free(g);
    for (int i = 0; i < 8 - n_busy; i++) {
        assert_true(c[i].ended);
        assert_int_equal(j[i].finish, FINISH_CANCELLED);
    }
}

/* ---- the choice of a draft length ---- */

static void drafting_stops_where_it_loses(void **state) {
    (void)state;
    struct spec s = {.n_step = 0};
    struct spec_seq q = {.history = NULL};
    for (int i = 0; i < STEP_MAX_TOK; i++) q.accept[i] = 0.7f;
    for (int i = 0; i < 40; i++) { /* each drafted token costs as much as a step */
        int32_t n = spec_choose(&s, &q, 3, false);
        spec_time(&s, n, 1.0 + n);
        if (n) spec_learn(&q, n, 0);
    }
    assert_int_equal(spec_choose(&s, &q, 3, false), 0);
    for (int i = 0; i < STEP_MAX_TOK; i++) s.step_ms[i] = 1.0 + 0.1 * i, q.accept[i] = 0.9f;
    assert_int_equal(spec_choose(&s, &q, 3, false), 3);
    assert_int_equal(spec_choose(&s, &q, 3, true), 3);
}

/* Time of n steps where a step with d drafts takes 1 + cost * d and every draft is or is not accepted; how
 * many tokens that gave in *n_token. */
static double spend(struct spec *s, struct spec_seq *q, int n, double cost, bool good,
                    int *n_token) {
    double time = 0;
    *n_token = 0;
    for (int i = 0; i < n; i++) {
        int32_t d = spec_choose(s, q, 3, false);
        spec_time(s, d, 1 + cost * d);
        if (d) spec_learn(q, d, good ? d : 0);
        time += 1 + cost * d;
        *n_token += 1 + (good ? d : 0);
    }
    return time;
}

/* Where no draft is ever taken, looking again costs at most 1 %; where it begins to pay, it is found. */
static void looking_again_costs_little(void **state) {
    (void)state;
    struct spec s = {.n_step = 0};
    struct spec_seq q = {.history = NULL};
    int n_token;
    for (int i = 0; i < STEP_MAX_TOK; i++) q.accept[i] = 0.7f;
    spend(&s, &q, 50, 0.6, false, &n_token);
    double time = spend(&s, &q, 20000, 0.6, false, &n_token);
    assert_true(time <= 1.01 * n_token);
    spend(&s, &q, 40000, 0.1, true, &n_token);
    time = spend(&s, &q, 1000, 0.1, true, &n_token);
    assert_true(n_token > 2.5 * time);
}

/* A draft's tokens are applied to recurrent state by the step after it. Where drafts come at every second step only, that
 * is a plain step, and must not make plain steps look dear. */
static void what_a_draft_leaves_to_do_is_its_own(void **state) {
    (void)state;
    for (int pays = 0; pays < 2; pays++) {
        double each = pays ? 0.2 : 0.9, time = 0;
        struct spec s = {.n_step = 0};
        struct spec_seq q = {.history = NULL};
        int n_token = 0, n_drafted = 0, left = 0;
        for (int i = 0; i < STEP_MAX_TOK; i++) q.accept[i] = 0.7f;
        for (int i = 0; i < 4000; i++) {
            int32_t n = spec_choose(&s, &q, 3, false);
            if (i % 2) n = 0; /* nothing to propose */
            double ms = 1 + 0.1 * n + each * left;
            spec_time(&s, n, ms);
            if (n) spec_learn(&q, n, n);
            left = n ? n + 1 : 0;
            if (i < 200) continue;
            time += ms;
            n_token += 1 + n;
            n_drafted += n;
        }
        if (pays) assert_true(n_drafted > 3000);
        else assert_true(time < 1.03 * n_token);
    }
}

/* Plain steps that were slow at first, with cold caches, do not keep a drafter that loses. */
static void a_wrong_beginning_is_mended(void **state) {
    (void)state;
    double time = 0;
    struct spec s = {.n_step = 0};
    struct spec_seq q = {.history = NULL};
    int n_token = 0, left = 0;
    for (int i = 0; i < STEP_MAX_TOK; i++) q.accept[i] = 0.7f;
    for (int i = 0; i < 6000; i++) {
        int32_t n = spec_choose(&s, &q, 3, false);
        double ms = (1 + 0.3 * n + 0.8 * left) * (!n && i < 40 ? 4 : 1);
        spec_time(&s, n, ms);
        if (n) spec_learn(&q, n, n);
        left = n ? n + 1 : 0;
        if (i < 3000) continue;
        time += ms;
        n_token += 1 + n;
    }
    assert_true(time < 1.03 * n_token);
}

/* A prediction block follows while nothing is known and where drafting pays; where it loses, one sequence in 16. */
static void following_stops_where_drafting_loses(void **state) {
    (void)state;
    struct spec s = {.n_step = 0};
    struct spec_seq q = {.off = true};
    assert_false(spec_follows(&s, &q, 3));
    int n_follow[2] = {0, 0};
    for (int pays = 0; pays < 2; pays++)
        for (int i = 0; i < 64; i++) {
            q = (struct spec_seq){.history = NULL};
            for (int k = 0; k < STEP_MAX_TOK; k++) q.accept[k] = 0.7f;
            bool follows = spec_follows(&s, &q, 3);
            if (!pays && !i) assert_true(follows);
            n_follow[pays] += follows;
            for (int k = 0; k < 100; k++) {
                int32_t n = spec_choose(&s, &q, 3, false);
                if (!follows) n = 0; /* nobody drafts */
                spec_time(&s, n, pays ? 1 + 0.1 * n : 1.0 + n);
                if (n) spec_learn(&q, n, n);
            }
            spec_leave(&s, &q);
        }
    assert_true(n_follow[0] >= 4 && n_follow[0] <= 8);
    assert_true(n_follow[1] >= 24);
}

static void ngrams_find_the_longest_match(void **state) {
    (void)state;
    static const int32_t text[] = {1, 2, 3, 4, 50, 9, 2, 3, 4, 60, 8, 1, 2, 3, 4};
    struct spec_seq q;
    assert_int_equal(spec_seq_init(&q, text, 15, 10), 0);
    int32_t out[8];
    assert_int_equal(spec_ngram(&q, 2, out), 2);
    assert_int_equal(out[0], 50); /* "1 2 3 4" beats the later "2 3 4" */
    spec_seq_push(&q, 77);
    assert_int_equal(spec_ngram(&q, 2, out), 0);
    spec_seq_fini(&q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_do_not_depend_on_company_or_drafts),
        cmocka_unit_test(what_a_draft_leaves_to_do_is_its_own),
        cmocka_unit_test(a_wrong_beginning_is_mended),
        cmocka_unit_test(jobs_end_as_they_should),
        cmocka_unit_test(drafting_stops_where_it_loses),
        cmocka_unit_test(looking_again_costs_little),
        cmocka_unit_test(following_stops_where_drafting_loses),
        cmocka_unit_test(ngrams_find_the_longest_match),
    };
    mem_guard_arm(true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
