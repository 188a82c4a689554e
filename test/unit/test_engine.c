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
#include "base/rng.h"
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

static bool collect(struct engine_job *j, int32_t token, bool is_end,
                    const struct sampler_probs *probs) {
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
    for (int i = 0; i < 8; i++) {
        fill_job(&j[i], &c[i], prompt, N_PROMPT, 0, 1);
        taken[i] = engine_submit(g, &j[i], &e) != CHIMERE_EBUSY;
        n_busy += !taken[i];
    }
    assert_true(n_busy >= 1);
    for (int i = 0; i < 8; i++) engine_cancel(g, &j[i]);
    engine_free(g);
    for (int i = 0; i < 8; i++) {
        if (!taken[i]) continue;
        assert_true(c[i].ended);
        assert_int_equal(j[i].finish, FINISH_CANCELLED);
    }
}

/* ---- the choice of a draft length ---- */

/* Steps of a sequence that its prediction block drafts for. */
struct world {
    double draft, verify,
        replay; /* of a token asked for, and of one proposed; of one that stays, in the step after */
    double accept;  /* of each token given those before it */
    double propose; /* share of steps in which the drafter knows something */
    int32_t
        n_slow; /* the machine is 1.8 times slower in every other stretch of so many steps; 0: never */
};
struct spent {
    double time, plain; /* plain: had nothing been drafted */
};

static struct spent spend(struct spec *s, const struct world *w, int32_t n) {
    struct spent sum = {0};
    struct rng rng;
    int32_t left = 0;
    rng_seed(&rng, (uint64_t)n);
    for (int32_t i = 0; i < n; i++) {
        int32_t asked = spec_choose(s, 1, true, 3), proposed = 0, kept = 0;
        if (asked && rng_uniform(&rng) < w->propose) proposed = asked;
        while (kept < proposed && rng_uniform(&rng) < w->accept) kept++;
        double slow = w->n_slow && i / w->n_slow % 2 ? 1.8 : 1;
        double ms = slow * (1 + w->draft * asked + w->verify * proposed + w->replay * left);
        left = proposed ? kept + 1 : 0;
        spec_time(s, kept + 1, ms);
        sum.time += ms;
        sum.plain += slow * (kept + 1);
    }
    return sum;
}

/* Where no draft pays, asking for some costs at most 2 %, whatever the reason: none is accepted, most are cut short before
 * they are proposed, tokens that stay are dear in the step after; and where the machine changes its speed. */
static void asking_costs_little_where_it_loses(void **state) {
    (void)state;
    static const struct world worlds[] = {
        {.draft = 0.3, .verify = 0.3, .accept = 0, .propose = 1},
        {.draft = 0.3, .verify = 0.4, .accept = 0.9, .propose = 0.1},
        {.draft = 0.2, .verify = 0.3, .accept = 0.9, .propose = 1, .replay = 0.8},
        {.draft = 0.5, .verify = 0.5, .accept = 0.7, .propose = 0.5},
        {.draft = 0.3, .verify = 0.3, .accept = 0.2, .propose = 1, .n_slow = 500},
        {.draft = 0.6, .verify = 0.6, .accept = 0.8, .propose = 1, .n_slow = 90},
    };
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        struct spec s = {.at = NULL};
        spend(&s, &worlds[i], 200);
        struct spent x = spend(&s, &worlds[i], 20000);
        if (x.time > 1.02 * x.plain) fail_msg("world %zu: %.3f times as long", i, x.time / x.plain);
    }
}

/* Where drafts pay, nearly all is gained that the best depth gains, also after a time in which they lost. */
static void drafts_that_pay_are_found(void **state) {
    (void)state;
    static const struct {
        struct world w;
        double gain;
    } worlds[] = {
        {{.draft = 0.1, .verify = 0.1, .accept = 1, .propose = 1}, 2.5},      /* three: 4 / 1.6 */
        {{.draft = 0.25, .verify = 0.35, .accept = 0.9, .propose = 1}, 1.23}, /* two: 2.71 / 2.2 */
        {{.draft = 0.1, .verify = 0.2, .accept = 0.9, .propose = 1, .n_slow = 300},
         1.81}, /* three: 3.44 / 1.9 */
    };
    static const struct world bad = {.draft = 0.5, .verify = 0.5, .accept = 0.1, .propose = 1};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
        for (int later = 0; later < 2; later++) {
            struct spec s = {.at = NULL};
            if (later) spend(&s, &bad, 5000);
            spend(&s, &worlds[i].w, later ? 8000 : 400);
            struct spent x = spend(&s, &worlds[i].w, 10000);
            if (x.plain < 0.97 * worlds[i].gain * x.time)
                fail_msg("world %zu: %.3f", i, x.plain / x.time);
            spend(&s, &bad, 500);
            x = spend(&s, &bad, 10000);
            if (x.time > 1.03 * x.plain)
                fail_msg("after world %zu: %.3f times as long", i, x.time / x.plain);
        }
}

/* The first steps pay for cold caches: they keep no drafter that loses. */
static void a_wrong_beginning_is_mended(void **state) {
    (void)state;
    struct spec s = {.at = NULL};
    for (int32_t i = 0; i < 40; i++) {
        int32_t n = spec_choose(&s, 1, true, 3);
        spec_time(&s, 1 + n, n ? 1 + 0.8 * n : 4);
    }
    static const struct world w = {.draft = 0.3, .verify = 0.7, .accept = 0.8, .propose = 1};
    spend(&s, &w, 1000);
    struct spent x = spend(&s, &w, 10000);
    assert_true(x.time < 1.02 * x.plain);
}

/* Each number of sequences that decode together has a choice of its own, and so have those without the block. */
static void choices_are_apart(void **state) {
    (void)state;
    struct spec s = {.at = NULL};
    for (int32_t i = 0; i < 2000; i++)
        for (int32_t k = 0; k < 2; k++) { /* two together lose, one gains */
            for (int32_t step = 0; step < 20; step++) {
                int32_t n = spec_choose(&s, 1 + k, true, 3);
                spec_time(&s, 1 + n, k ? 1.0 + 1.5 * n : 1 + 0.1 * n);
            }
            spec_pause(&s);
        }
    assert_int_equal(s.choices[0][1].best, 3);
    assert_int_equal(s.choices[1][1].best, 0);
    assert_int_equal(s.choices[0][0].n_look, 0);
}

/* A prediction block follows while nothing is known and where drafting pays; where it loses, one sequence in four. */
static void following_stops_where_drafting_loses(void **state) {
    (void)state;
    struct spec s = {.at = NULL};
    struct spec_seq q = {.off = true};
    assert_false(spec_follows(&s, &q, 1));
    int n_follow[2] = {0, 0};
    for (int pays = 0; pays < 2; pays++)
        for (int i = 0; i < 64; i++) {
            q = (struct spec_seq){.history = NULL};
            q.follows = spec_follows(&s, &q, 1);
            if (!pays && !i) assert_true(q.follows);
            n_follow[pays] += q.follows;
            for (int k = 0; k < 200; k++) {
                int32_t n = spec_choose(&s, 1, q.follows, 3);
                if (!q.follows) n = 0; /* nobody drafts */
                spec_time(&s, 1 + n, pays ? 1 + 0.1 * n : 1 + 1.5 * n);
            }
        }
    assert_true(n_follow[0] >= 16 && n_follow[0] <= 20);
    if (n_follow[1] < 24) fail_msg("%d of 64", n_follow[1]);
}

static void ngrams_find_the_longest_match(void **state) {
    (void)state;
    static const int32_t text[] = {1, 2, 3, 4, 50, 9, 2, 3, 4, 60, 8, 1, 2, 3, 4, 77};
    struct drafter_request r[] = {{.history = text, .n_history = 15, .n_draft = 2},
                                  {.history = text, .n_history = 16, .n_draft = 2}};
    assert_int_equal(drafter_ngram.draft(NULL, r, 2, NULL), 0);
    assert_int_equal(r[0].n_draft, 2);
    assert_int_equal(r[0].tokens[0], 50); /* "1 2 3 4" beats the later "2 3 4" */
    assert_int_equal(r[1].n_draft, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_do_not_depend_on_company_or_drafts),
        cmocka_unit_test(a_wrong_beginning_is_mended),
        cmocka_unit_test(jobs_end_as_they_should),
        cmocka_unit_test(asking_costs_little_where_it_loses),
        cmocka_unit_test(drafts_that_pay_are_found),
        cmocka_unit_test(choices_are_apart),
        cmocka_unit_test(following_stops_where_drafting_loses),
        cmocka_unit_test(ngrams_find_the_longest_match),
    };
    mem_guard_arm(true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
