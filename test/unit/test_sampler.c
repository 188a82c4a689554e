/* test_sampler.c: each link of the sampler chain against its definition, computed by brute force in double
 * precision; what is drawn is compared by chi-square. */
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
#include "chi.h"
#include "engine/sampler/sampler.h"

enum { VOCAB = 40 };

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

/* Draws n tokens and compares their counts with the distribution p. */
static void check_distribution(const struct sampler_params *params, const float *logits,
                               const double *p) {
    enum { N = 20000 };
    int count[VOCAB] = {0};
    struct sampler *s = new_sampler(params);
    for (int i = 0; i < N; i++) count[sampler_pick(s, logits, NULL)]++;
    sampler_free(s);
    chi_check(count, p, VOCAB, N);
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

/* ---- many tokens, of which a draw sorts only some ---- */

enum { MANY = 5000 };
struct ranked {
    double x;
    int id;
};
static int by_rank(const void *a, const void *b) {
    const struct ranked *p = a, *q = b;
    return p->x > q->x ? -1 : p->x < q->x ? 1 : p->id - q->id;
}

/* The token that u draws from all tokens in order; -1 if u is at a limit between two tokens or filters. */
static int drawn(const struct ranked *r, const struct sampler_params *sp, double u) {
    double p[MANY], sum = 0, all = 0;
    int n = 0;
    for (int i = 0; i < MANY; i++) all += p[i] = exp(r[i].x - r[0].x);
    for (double kept = 0; n < MANY && (n == 0 || kept < sp->top_p * all); n++) kept += p[n];
    for (int i = 0; i < n; i++)
        if (p[i] < sp->min_p * p[0]) n = i;
    for (int i = 0; i < n; i++) sum += p[i] = exp((r[i].x - r[0].x) / (double)sp->temperature);
    double at = 0;
    for (int i = 0; i < n; i++) {
        at += p[i] / sum;
        if (fabs(at - u) < 1e-5) return -1;
        if (u < at) return r[i].id;
    }
    return -1;
}

static void draws_from_many_tokens_follow_their_order(void **state) {
    (void)state;
    static const struct {
        float temperature, top_p, min_p, deviation;
    } cases[] = {{1, 1, 0, 1},    {1, 1, 0, 4},     {1, 0.9f, 0, 1},
                 {1, 0.6f, 0, 3}, {1, 1, 0.02f, 1}, {1.5f, 0.8f, 0.001f, 2}};
    static float x[MANY];
    static struct ranked r[MANY];
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int n_checked = 0;
        struct sampler_params sp;
        struct rng row, own;
        neutral(&sp);
        sp.temperature = cases[c].temperature;
        sp.top_p = cases[c].top_p;
        sp.min_p = cases[c].min_p;
        rng_seed(&row, c);
        for (int i = 0; i < MANY; i++) { /* rounded, so that some are equal */
            x[i] = (float)(round(rng_normal(&row) * 200) / 200) * cases[c].deviation;
            r[i] = (struct ranked){x[i], i};
        }
        qsort(r, MANY, sizeof *r, by_rank);
        for (sp.seed = 1; sp.seed <= 100; sp.seed++) {
            struct sampler *s;
            struct err e = {0};
            if (sampler_new(&s, &sp, MANY, NULL, &e)) fail_msg("%s", e.text);
            rng_seed(&own, sp.seed);
            int expected = drawn(r, &sp, rng_uniform(&own)), got = sampler_pick(s, x, NULL);
            sampler_free(s);
            if (expected < 0) continue;
            if (got != expected) fail_msg("case %zu, seed %d", c, (int)sp.seed);
            n_checked++;
        }
        assert_true(n_checked > 80);
    }
}

/* ---- filters whose definitions take more than a line ---- */

/* Indices by falling probability. */
static void order_of(const double *p, int *by) {
    for (int i = 0; i < VOCAB; i++) {
        int k = i;
        for (; k > 0 && p[by[k - 1]] < p[i]; k--) by[k] = by[k - 1];
        by[k] = i;
    }
}

static double entropy_of(const double *p) {
    double h = 0;
    for (int i = 0; i < VOCAB; i++) h -= p[i] > 0 ? p[i] * log(p[i]) : 0;
    return h;
}

/* Meister et al.: the tokens whose surprise is nearest the entropy, until they hold the mass. */
static void typical_takes_the_expected(void **state) {
    (void)state;
    static const double masses[] = {0.2, 0.5, 0.9};
    for (int round = 0; round < 6; round++) {
        float x[VOCAB];
        double p[VOCAB], sum = 0;
        bool in[VOCAB] = {false};
        struct sampler_params sp;
        fill_logits(x, (uint64_t)round + 10);
        softmax(x, 1, p);
        double h = entropy_of(p);
        while (sum < masses[round % 3]) {
            int best = -1;
            for (int i = 0; i < VOCAB; i++)
                if (!in[i] && (best < 0 || fabs(-log(p[i]) - h) < fabs(-log(p[best]) - h)))
                    best = i;
            in[best] = true;
            sum += p[best];
        }
        neutral(&sp);
        sp.seed = (uint64_t)round;
        sp.typical_p = (float)masses[round % 3];
        keep(p, in);
        check_distribution(&sp, x, p);
    }
}

/* With probability P, all tokens above the threshold but the least likely of them go. */
static void xtc_excludes_top_choices(void **state) {
    (void)state;
    static const double chance[] = {0.3, 1, 0.7}, threshold[] = {0.05, 0.1, 0.4};
    for (int round = 0; round < 6; round++) {
        float x[VOCAB];
        double p[VOCAB], q[VOCAB];
        bool in[VOCAB];
        int above = 0, last = -1;
        struct sampler_params sp;
        fill_logits(x, (uint64_t)round + 20);
        softmax(x, 1, p);
        memcpy(q, p, sizeof q);
        for (int i = 0; i < VOCAB; i++) {
            if (p[i] < threshold[round % 3]) continue;
            above++;
            if (last < 0 || p[i] < p[last]) last = i;
        }
        for (int i = 0; i < VOCAB; i++)
            in[i] = above < 2 || p[i] < threshold[round % 3] || i == last;
        keep(q, in);
        for (int i = 0; i < VOCAB; i++)
            p[i] = (1 - chance[round % 3]) * p[i] + chance[round % 3] * q[i];
        neutral(&sp);
        sp.seed = (uint64_t)round;
        sp.xtc_probability = (float)chance[round % 3];
        sp.xtc_threshold = (float)threshold[round % 3];
        check_distribution(&sp, x, p);
    }
}

/* Temperature between t - r and t + r, by the entropy as a share of the largest possible one. */
static void dynamic_temperature_follows_the_entropy(void **state) {
    (void)state;
    static const double exponent[] = {1, 0.5, 2};
    for (int round = 0; round < 6; round++) {
        float x[VOCAB];
        double p[VOCAB], t = round < 3 ? 1 : 0.6, r = round < 3 ? 0.5 : 0.9;
        struct sampler_params sp;
        fill_logits(x, (uint64_t)round + 30);
        softmax(x, 1, p);
        double low = t > r ? t - r : 0,
               share = pow(entropy_of(p) / log(VOCAB), exponent[round % 3]);
        softmax(x, low + (t + r - low) * share, p);
        neutral(&sp);
        sp.seed = (uint64_t)round;
        sp.temperature = (float)t;
        sp.dynatemp_range = (float)r;
        sp.dynatemp_exponent = (float)exponent[round % 3];
        check_distribution(&sp, x, p);
    }
}

/* One step of mirostat from p (Basu et al., algorithms 1 and 2) at mu: q is what it draws from. */
static void mirostat_step(const double *p, int version, double mu, double *q) {
    int by[VOCAB], k = 1;
    order_of(p, by);
    if (version == 1) {
        double num = 0, den = 0;
        for (int i = 1; i < VOCAB && i < 100; i++) {
            double t = log((double)(i + 1) / i), b = log(p[by[i - 1]] / p[by[i]]);
            num += t * b;
            den += t * t;
        }
        double s = num / den, eps = s - 1;
        k = (int)pow(eps * pow(2, mu) / (1 - pow(VOCAB, -eps)), 1 / s);
        k = k < 1 ? 1 : k > VOCAB ? VOCAB : k;
    } else {
        while (k < VOCAB && -log2(p[by[k]]) <= mu) k++;
    }
    bool in[VOCAB] = {false};
    for (int i = 0; i < k; i++) in[by[i]] = true;
    memcpy(q, p, VOCAB * sizeof *q);
    keep(q, in);
}

/* Two draws in a row: the second one's cut depends on the first one's surprise. */
static void mirostat_steers_by_surprise(void **state) {
    (void)state;
    enum { N = 20000 };
    static int count[VOCAB * VOCAB];
    static double pair[VOCAB * VOCAB];
    for (int round = 0; round < 4; round++) {
        int version = 1 + round % 2;
        double tau = round < 2 ? 1.5 : 1, eta = 0.8, p[VOCAB], first[VOCAB], second[VOCAB];
        float x[VOCAB];
        struct sampler_params sp;
        fill_logits(x, (uint64_t)round + 40);
        softmax(x, 1, p);
        mirostat_step(p, version, 2 * tau, first);
        for (int i = 0; i < VOCAB; i++) {
            if (first[i] > 0)
                mirostat_step(p, version, 2 * tau - eta * (-log2(first[i]) - tau), second);
            for (int k = 0; k < VOCAB; k++)
                pair[i * VOCAB + k] = first[i] > 0 ? first[i] * second[k] : 0;
        }
        neutral(&sp);
        sp.mirostat = version;
        sp.mirostat_tau = (float)tau;
        sp.mirostat_eta = (float)eta;
        memset(count, 0, sizeof count);
        for (int n = 0; n < N; n++) {
            sp.seed = (uint64_t)(round * N + n);
            struct sampler *s = new_sampler(&sp);
            int32_t a = sampler_pick(s, x, NULL);
            sampler_accept(s, a);
            count[a * VOCAB + sampler_pick(s, x, NULL)]++;
            sampler_free(s);
        }
        chi_check(count, pair, VOCAB * VOCAB, N);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_the_definitions),
        cmocka_unit_test(draws_from_many_tokens_follow_their_order),
        cmocka_unit_test(typical_takes_the_expected),
        cmocka_unit_test(xtc_excludes_top_choices),
        cmocka_unit_test(dynamic_temperature_follows_the_entropy),
        cmocka_unit_test(mirostat_steers_by_surprise),
        cmocka_unit_test(greedy_takes_the_largest_and_the_lower_id),
        cmocka_unit_test(penalties_do_their_arithmetic),
        cmocka_unit_test(thinking_ends_at_its_budget),
        cmocka_unit_test(bad_parameters_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
