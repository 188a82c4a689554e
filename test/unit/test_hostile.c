/* test_hostile.c: how often a day of ratings counts as an attack, over many honest and many hostile days. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "learn/data/hostile.h"
#include "learn/data/votes.h"
#include "learn/gate.h"

/* The users of a simulated week: 180 questions, 300 asked per day, a fifth of the answers rated, a tenth of the
 * ratings wrong. Most right answers come in words of their own. */
enum { N_QUESTION = 180, N_ASKED = 300, N_USER = 10, N_SEED = 300, DAY = 1000 };

struct crowd {
    struct votes *votes;
    struct rng rng;
    int n_hostile; /* users who rate every answer, and wrongly */
    double wrong;  /* share of the other ratings that are wrong */
};

static void vote(struct crowd *c, int user, int64_t at, int question, const char *answer,
                 bool accepts, bool writes) {
    char owner[16], text[32];
    snprintf(owner, sizeof owner, "user %d", user);
    snprintf(text, sizeof text, "question %d", question);
    const struct store_quality q = {.question = text,
                                    .answer = answer,
                                    .owner = owner,
                                    .origin = writes ? "correction" : "answer",
                                    .at_ms = at,
                                    .feedback = accepts ? 5 : 1,
                                    .score = NAN};
    assert_int_equal(votes_add(c->votes, &q, NULL), 0);
}

/* Writes what the model says; returns whether it is right. The first day it knows nothing. */
static bool say(struct crowd *c, int day, int question, char out[48]) {
    double u = day ? rng_uniform(&c->rng) : 1;
    if (u < 0.3) snprintf(out, 48, "value of %d", question);
    else if (u < 0.55) snprintf(out, 48, "in other words %d, %d", day, question);
    else snprintf(out, 48, "guess %d about %d", day, question);
    return u < 0.55;
}

static void live(struct crowd *c, int day) {
    for (int i = 0; i < N_ASKED; i++) {
        char text[48];
        int question = (int)rng_below(&c->rng, N_QUESTION), user = (int)rng_below(&c->rng, N_USER);
        bool right = say(c, day, question, text), is_hostile = user < c->n_hostile;
        bool rates = rng_uniform(&c->rng) < 0.2, errs = rng_uniform(&c->rng) < c->wrong;
        if (!rates && !is_hostile) continue;
        bool lies = errs || is_hostile, accepts = right != lies;
        vote(c, user, day * DAY + i + 1, question, text, accepts, false);
        snprintf(text, sizeof text, "%s of %d", lies ? "lie" : "value", question);
        if (!accepts) vote(c, user, day * DAY + i + 1, question, text, true, true);
    }
}

struct tally {
    int no, held, yes;
};

/* Counts the verdicts on the last of n days. The days before it are honest. */
static struct tally count(int n_day, int n_hostile, double wrong) {
    struct tally t = {0};
    for (uint64_t seed = 0; seed < N_SEED; seed++) {
        struct crowd c = {.wrong = 0.1};
        size_t n, reversed;
        double p;
        rng_seed(&c.rng, seed);
        assert_int_equal(votes_new(&c.votes, NULL), 0);
        for (int day = 0; day < n_day; day++) {
            if (day == n_day - 1) {
                c.n_hostile = n_hostile;
                c.wrong = wrong;
            }
            live(&c, day);
        }
        votes_count(c.votes);
        votes_reversals(c.votes, (n_day - 1) * DAY, &n, &reversed);
        enum hostile_verdict is = hostile_verdict(n, reversed, 1, &p);
        *(is == HOSTILE_YES ? &t.yes : is == HOSTILE_HELD ? &t.held : &t.no) += 1;
        votes_free(c.votes);
    }
    print_message("day %d, %d hostile users, %.0f %% of the other ratings wrong: of %d days, %d "
                  "hostile, %d held back\n",
                  n_day, n_hostile, 100 * wrong, N_SEED, t.yes, t.held);
    return t;
}

static void honest_days_are_learned(void **state) {
    (void)state;
    int n_yes = 0;
    for (int n_day = 2; n_day <= 7; n_day++) {
        struct tally t = count(n_day, 0, 0.1);
        n_yes += t.yes;
        assert_in_range(t.held, 0, N_SEED * HOSTILE_UNSURE);
    }
    assert_in_range(n_yes, 0, (int)(6 * N_SEED * HOSTILE_LIMIT));
}

static void hostile_days_are_noticed(void **state) {
    (void)state;
    struct tally second = count(2, 3, 0.1); /* few answers were rated before */
    assert_in_range(second.yes + second.held, N_SEED / 3, N_SEED);
    assert_in_range(count(3, 3, 0.1).yes, N_SEED * 3 / 4, N_SEED);
    assert_in_range(count(5, 3, 0.1).yes, N_SEED * 98 / 100, N_SEED);
    assert_in_range(count(2, N_USER, 0.1).yes, N_SEED * 98 / 100, N_SEED);
    /* 30 % of the feedback is hostile, and no user rates more than others: too few reversals for most days, and too
     * few to win a vote */
    assert_in_range(count(7, 0, 0.3 + 0.7 * 0.1).yes, N_SEED / 4, N_SEED);
}

/* Known probabilities, and what the second look decides. */
static void the_test_is_exact(void **state) {
    (void)state;
    double p;
    assert_true(fabs(gate_binomial(0, 7, 0.2) - 1) < 1e-12);
    assert_true(fabs(gate_binomial(2, 2, 0.2) - 0.04) < 1e-12);
    assert_true(fabs(gate_binomial(1, 3, 0.5) - 0.875) < 1e-12);
    assert_int_equal(hostile_verdict(0, 0, 1, &p), HOSTILE_NO);
    assert_int_equal(hostile_verdict(2, 2, 1, &p), HOSTILE_HELD); /* p 0.04 */
    assert_int_equal(hostile_verdict(2, 2, 2, &p), HOSTILE_NO);
    assert_int_equal(hostile_verdict(4, 4, 1, &p), HOSTILE_YES); /* p 0.0016 */
    assert_int_equal(hostile_verdict(40, 12, 1, &p), HOSTILE_NO);
    assert_int_equal(hostile_verdict(40, 17, 2, &p), HOSTILE_YES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_test_is_exact),
        cmocka_unit_test(honest_days_are_learned),
        cmocka_unit_test(hostile_days_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
