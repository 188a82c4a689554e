/* test_engine.c: scheduling over a weightless model, speculation's exactness. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/lease.h"
#include "engine/lm.h"
#include "engine/draft/spec.h"

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

static _Atomic bool is_held; /* running jobs are, at their next token */

static bool collect(struct engine_job *j, int32_t token, bool is_end,
                    const struct sampler_probs *probs) {
    while (is_held) usleep(1000);
    (void)probs;
    (void)is_end;
    struct collected *c = j->ud;
    if (c->n < 600) c->tokens[c->n++] = token;
    return !c->stop_after || c->n < c->stop_after;
}
static void ended(struct engine_job *j) {
    __atomic_store_n(&((struct collected *)j->ud)->ended, true, __ATOMIC_RELEASE);
}

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

static void fill_job(struct engine_job *j, struct collected *c, const int32_t *prompt, int32_t n,
                     int32_t max, uint64_t seed) {
    *c = (struct collected){.n = 0};
    *j = (struct engine_job){.p.prompt = prompt,
                             .p.n_prompt = n,
                             .p.max_tokens = max,
                             .on_token = collect,
                             .on_done = ended,
                             .ud = c};
    neutral(&j->p.sampling);
    j->p.sampling.seed = seed;
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
        struct engine_job jobs[N_JOB];
        struct collected got[N_JOB];
        struct err e = {0};
        for (int i = 0; i < N_JOB; i++) {
            fill_job(&jobs[i], &got[i], prompt, N_PROMPT - i % 3, 100, (uint64_t)i);
            if (i % 4 == 0) jobs[i].p.sampling.temperature = 0;
            if (how < 2) assert_int_equal(engine_run(g, &jobs[i], &e), 0);
            else if (engine_submit(g, &jobs[i], &e)) fail_msg("%s", e.text);
        }
        if (how >=
            2) { /* jobs are served in order of arrival: the last one posted may not end last */
            struct engine_job last;
            struct collected lc;
            fill_job(&last, &lc, prompt, 2, 1, 1);
            for (int i = 0; i < N_JOB; i++)
                while (!__atomic_load_n(&got[i].ended, __ATOMIC_ACQUIRE)) engine_run(g, &last, &e);
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
    struct engine_job j[8];
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
    bool taken[8]; /* not always the first: the engine may admit one between two refusals */
    int n_busy = 0;
    is_held = true;
    for (int i = 0; i < 8; i++) {
        fill_job(&j[i], &c[i], prompt, N_PROMPT, 0, 1);
        taken[i] = engine_submit(g, &j[i], &e) != CHIMERE_EBUSY;
        n_busy += !taken[i];
    }
    assert_true(n_busy >= 1);
    for (int i = 0; i < 8; i++) engine_cancel(g, &j[i]);
    is_held = false;
    engine_free(g);
    for (int i = 0; i < 8; i++) {
        if (!taken[i]) continue;
        assert_true(c[i].ended);
        assert_int_equal(j[i].finish, FINISH_CANCELLED);
    }
}

static void lookup_finds_the_longest_match(void **state) {
    (void)state;
    static const int32_t text[] = {1, 2, 3, 4, 50, 9, 2, 3, 4, 60, 8, 1, 2, 3, 4, 77};
    for (int32_t n = 15; n <= 16; n++) {
        static struct spec s;
        struct spec_seq q;
        struct spec_draft d;
        assert_int_equal(spec_init(&s, VOCAB, false, false, NULL), 0);
        assert_int_equal(spec_seq_init(&q, text, n, 8), 0);
        spec_draft_text(&s, &q, NULL, 2, &d);
        assert_int_equal(d.n, n == 15 ? 2 : 0);
        if (d.n) assert_int_equal(d.tokens[0], 50); /* "1 2 3 4" beats the later "2 3 4" */
        spec_seq_fini(&q);
        spec_fini(&s);
    }
}

static bool has_ended(struct collected *c) { return __atomic_load_n(&c->ended, __ATOMIC_ACQUIRE); }

/* Lent only while it has nothing to do; what comes meanwhile waits for the device and then runs. */
static void a_device_is_lent_while_idle(void **state) {
    (void)state;
    struct engine_params p;
    engine_defaults(&p);
    struct engine *g = new_engine(&p, 1000);
    struct engine_job job;
    struct collected got;
    struct engine_totals t;
    struct err e = {0};
    fill_job(&job, &got, prompt, N_PROMPT, 50, 1);
    assert_int_equal(engine_submit(g, &job, &e), 0);
    while (!engine_borrow(g)) sched_yield();
    assert_true(has_ended(&got));
    assert_false(engine_borrow(g));
    assert_false(engine_is_wanted(g));
    fill_job(&job, &got, prompt, N_PROMPT, 50, 1);
    assert_int_equal(engine_submit(g, &job, &e), 0);
    assert_true(engine_is_wanted(g));
    for (int i = 0; i < 100; i++) sched_yield();
    engine_totals(g, &t);
    assert_int_equal(t.n_waiting, 1);
    engine_give_back(g);
    while (!has_ended(&got)) sched_yield();
    assert_int_equal(got.n, 50);
    while (!engine_borrow(g)) sched_yield();
    engine_give_back(g);
    engine_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_do_not_depend_on_company_or_drafts),
        cmocka_unit_test(jobs_end_as_they_should),
        cmocka_unit_test(a_device_is_lent_while_idle),
        cmocka_unit_test(lookup_finds_the_longest_match),
    };
    mem_guard_arm(true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
