/* test_engine.c: the sampler chain, scheduling over a weightless model, speculation's exactness. */
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

/* ---- sampler ---- */

static struct sampler *new_sampler(const struct sampler_params *p) {
    struct sampler *s;
    struct err e = {0};
    if (sampler_new(&s, p, VOCAB, NULL, &e)) fail_msg("%s", e.text);
    return s;
}

static void neutral(struct sampler_params *p) {
    sampler_defaults(p);
    p->temperature = 1;
    p->top_k = 0;
    p->top_p = 1;
}

static void fill_logits(float *x, uint64_t seed) {
    struct rng r;
    rng_seed(&r, seed);
    for (int i = 0; i < VOCAB; i++) x[i] = (float)(3 * rng_normal(&r));
}

/* Draws n tokens and compares their counts with the distribution p by chi-square (p = 0.0001). */
static void check_distribution(const struct sampler_params *params, const float *logits,
                               const double *p) {
    enum { N = 20000 };
    int count[VOCAB] = {0}, df = -1;
    struct sampler *s = new_sampler(params);
    for (int i = 0; i < N; i++) count[sampler_pick(s, logits, NULL)]++;
    sampler_free(s);
    double chi = 0, rest_p = 0;
    int rest = 0;
    for (int i = 0; i < VOCAB; i++) {
        if (p[i] == 0) assert_int_equal(count[i], 0);
        if (p[i] * N < 8) { /* rare ones together */
            rest_p += p[i];
            rest += count[i];
            continue;
        }
        chi += (count[i] - p[i] * N) * (count[i] - p[i] * N) / (p[i] * N);
        df++;
    }
    if (rest_p * N >= 8) {
        chi += (rest - rest_p * N) * (rest - rest_p * N) / (rest_p * N);
        df++;
    }
    if (df < 1) return;
    double limit =
        df * pow(1 - 2.0 / (9 * df) + 3.72 * sqrt(2.0 / (9 * df)), 3); /* Wilson-Hilferty */
    if (chi > limit) fail_msg("chi-square %.1f with %d degrees of freedom", chi, df);
}

static void softmax(const float *x, double t, double *p) {
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < VOCAB; i++) max = x[i] > max ? x[i] : max;
    for (int i = 0; i < VOCAB; i++) sum += p[i] = exp((x[i] - max) / t);
    for (int i = 0; i < VOCAB; i++) p[i] /= sum;
}

static void keep(double *p, const bool *in) {
    double sum = 0;
    for (int i = 0; i < VOCAB; i++) sum += p[i] *= in[i];
    for (int i = 0; i < VOCAB; i++) p[i] /= sum;
}

/* Rank of token i: how many are likelier. */
static int rank_of(const float *x, int i) {
    int r = 0;
    for (int k = 0; k < VOCAB; k++) r += x[k] > x[i] || (x[k] == x[i] && k < i);
    return r;
}

static void draws_follow_the_definitions(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        float x[VOCAB];
        double p[VOCAB], q[VOCAB];
        bool in[VOCAB];
        struct sampler_params sp;
        fill_logits(x, seed);
        neutral(&sp);
        sp.seed = seed;
        softmax(x, 1, p);
        check_distribution(&sp, x, p);

        neutral(&sp);
        sp.temperature = 2.5f;
        softmax(x, 2.5, q);
        check_distribution(&sp, x, q);

        neutral(&sp);
        sp.top_k = 5;
        memcpy(q, p, sizeof q);
        for (int i = 0; i < VOCAB; i++) in[i] = rank_of(x, i) < 5;
        keep(q, in);
        check_distribution(&sp, x, q);

        neutral(&sp);
        sp.top_p = 0.6f;
        memcpy(q, p, sizeof q);
        for (int i = 0; i < VOCAB; i++) { /* in, while what is likelier sums to less than 0.6 */
            double before = 0;
            for (int k = 0; k < VOCAB; k++) before += rank_of(x, k) < rank_of(x, i) ? p[k] : 0;
            in[i] = before < 0.6;
        }
        keep(q, in);
        check_distribution(&sp, x, q);

        neutral(&sp);
        sp.min_p = 0.1f;
        double best = 0;
        for (int i = 0; i < VOCAB; i++) best = p[i] > best ? p[i] : best;
        memcpy(q, p, sizeof q);
        for (int i = 0; i < VOCAB; i++) in[i] = p[i] >= 0.1 * best;
        keep(q, in);
        check_distribution(&sp, x, q);

        neutral(&sp);
        sp.top_n_sigma = 1;
        double mean = 0, var = 0, max = -INFINITY;
        for (int i = 0; i < VOCAB; i++) mean += x[i] / VOCAB;
        for (int i = 0; i < VOCAB; i++) var += (x[i] - mean) * (x[i] - mean) / VOCAB;
        for (int i = 0; i < VOCAB; i++) max = x[i] > max ? x[i] : max;
        memcpy(q, p, sizeof q);
        for (int i = 0; i < VOCAB; i++) in[i] = x[i] >= max - sqrt(var);
        keep(q, in);
        check_distribution(&sp, x, q);

        neutral(&sp);
        const struct logit_bias bias[] = {{3, 2.0f}, {7, -INFINITY}};
        sp.bias = bias;
        sp.n_bias = 2;
        float y[VOCAB];
        memcpy(y, x, sizeof y);
        y[3] += 2;
        y[7] = -INFINITY;
        softmax(y, 1, q);
        check_distribution(&sp, x, q);
    }
}

static void greedy_takes_the_largest_and_the_lower_id(void **state) {
    (void)state;
    float x[VOCAB];
    struct sampler_params sp;
    struct sampler_probs probs;
    neutral(&sp);
    sp.temperature = 0;
    sp.n_probs = 3;
    fill_logits(x, 9);
    x[11] = x[30] = 20;
    struct sampler *s = new_sampler(&sp);
    assert_int_equal(sampler_pick(s, x, &probs), 11);
    double p[VOCAB];
    softmax(x, 1, p);
    assert_true(fabs(probs.chosen - log(p[11])) < 1e-5);
    assert_int_equal(probs.n, 3);
    assert_int_equal(probs.ids[0], 11);
    assert_int_equal(probs.ids[1], 30);
    assert_true(probs.logprobs[2] <= probs.logprobs[1]);
    x[5] = NAN;
    assert_int_equal(sampler_pick(s, x, NULL), CHIMERE_ENUMERIC);
    x[5] = INFINITY;
    assert_int_equal(sampler_pick(s, x, NULL), CHIMERE_ENUMERIC);
    sampler_free(s);
}

static void penalties_do_their_arithmetic(void **state) {
    (void)state;
    float x[VOCAB] = {0};
    struct sampler_params sp;
    neutral(&sp);
    sp.temperature = 0;
    sp.repeat_penalty = 2;
    sp.frequency_penalty = 0.5f;
    sp.presence_penalty = 0.25f;
    x[4] = 10; /* 10 / 2 - 2 * 0.5 - 0.25 = 3.75 after two occurrences */
    x[5] = 3.7f;
    struct sampler *s = new_sampler(&sp);
    assert_int_equal(sampler_pick(s, x, NULL), 4);
    sampler_accept(s, 4);
    sampler_accept(s, 4);
    assert_int_equal(sampler_pick(s, x, NULL), 4);
    x[5] = 3.8f;
    assert_int_equal(sampler_pick(s, x, NULL), 5);
    sampler_free(s);

    neutral(&sp);
    sp.temperature = 0;
    sp.dry_multiplier = 1;
    sp.dry_allowed_length = 2;
    s = new_sampler(&sp);
    const int32_t text[] = {1, 2, 3, 9, 1, 2, 3};
    struct err e;
    assert_int_equal(sampler_prime(s, text, 7, &e), 0);
    float y[VOCAB] = {0};
    y[9] = 1.7f; /* would continue a match of three: minus 1.75^(3 - 2) */
    y[8] = 0.1f;
    assert_int_equal(sampler_pick(s, y, NULL), 8);
    y[9] = 1.9f;
    assert_int_equal(sampler_pick(s, y, NULL), 9);
    sampler_free(s);
}

static void thinking_ends_at_its_budget(void **state) {
    (void)state;
    float x[VOCAB] = {0};
    x[20] = 9;
    static const int32_t open[] = {30}, close[] = {31, 32};
    struct sampler_params sp;
    neutral(&sp);
    sp.temperature = 0;
    sp.think_budget = 3;
    sp.think_start = open;
    sp.n_think_start = 1;
    sp.think_end = close;
    sp.n_think_end = 2;
    sp.in_think = true;
    struct sampler *s = new_sampler(&sp);
    static const int32_t want[] = {20, 20, 20, 31, 32, 20, 20, 20, 20, 20};
    for (int i = 0; i < 10; i++) {
        int32_t t = sampler_pick(s, x, NULL);
        assert_int_equal(t, want[i]);
        sampler_accept(s, t);
    }
    sampler_accept(s, 30); /* a second block gets its own budget */
    for (int i = 0; i < 6; i++) {
        int32_t t = sampler_pick(s, x, NULL);
        assert_int_equal(t, want[i]);
        sampler_accept(s, t);
    }
    sampler_free(s);
}

static void bad_parameters_are_refused_by_name(void **state) {
    (void)state;
    struct sampler_params sp;
    struct err e = {0};
    neutral(&sp);
    sp.top_p = NAN;
    assert_int_equal(sampler_check(&sp, VOCAB, &e), CHIMERE_EINVAL);
    assert_non_null(strstr(e.text, "top_p"));
    neutral(&sp);
    const struct logit_bias bias = {VOCAB, 1};
    sp.bias = &bias;
    sp.n_bias = 1;
    assert_int_equal(sampler_check(&sp, VOCAB, &e), CHIMERE_EINVAL);
    assert_non_null(strstr(e.text, "logit_bias"));
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
        cmocka_unit_test(draws_follow_the_definitions),
        cmocka_unit_test(greedy_takes_the_largest_and_the_lower_id),
        cmocka_unit_test(penalties_do_their_arithmetic),
        cmocka_unit_test(thinking_ends_at_its_budget),
        cmocka_unit_test(bad_parameters_are_refused_by_name),
        cmocka_unit_test(texts_do_not_depend_on_company_or_drafts),
        cmocka_unit_test(jobs_end_as_they_should),
        cmocka_unit_test(drafting_stops_where_it_loses),
        cmocka_unit_test(ngrams_find_the_longest_match),
    };
    mem_guard_arm(true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
