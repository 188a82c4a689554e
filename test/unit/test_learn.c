/* test_learn.c: what a night reads, what it takes out, and how its versions are kept and undone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backend/learned.h"
#include "backend/shots.h"
#include "base/mem.h"
#include "learn/data/collect.h"
#include "learn/step/example_file.h"
#include "learn/step/limits_file.h"
#include "learn/gate.h"
#include "learn/data/mask.h"
#include "learn/night_clock.h"
#include "learn/trial.h"
#include "learn/step/night_step.h"
#include "learn/data/own.h"
#include "learn/schedule.h"
#include "learn/simulate/world.h"
#include "learn/data/votes.h"
#include "scratch.h"
#include "store/store.h"

/* ---- secrets ---- */

static void check_mask(const char *text, const char *want) {
    struct buf b;
    buf_init(&b, 1 << 16);
    mask_secrets(&b, text, strlen(text));
    char *got = buf_take(&b);
    assert_string_equal(got, want);
    mem_free(got);
}

static void secrets_are_masked(void **state) {
    (void)state;
    check_mask("write to ann.lee+x@example.org, please", "write to [mail], please");
    check_mask("my card is 4111 1111 1111 1111.", "my card is [card].");
    check_mask("card 4111-1111-1111-1111 or 5500005555555559", "card [card] or [card]");
    check_mask("pay DE89370400440532013000 now", "pay [iban] now");
    check_mask("token ghp_16C7e42F292c6912E7710c838347Ae178B4a end", "token [key] end");
    check_mask("key=sk-abcdefghijklmnop1234",
               "key=sk-abcdefghijklmnop1234"); /* one word: not a token */
    check_mask("use sk-abcdefghijklmnop1234.", "use [key].");
    check_mask("a 3f2b9c4d8e7a6b5c4d3e2f1a0b9c8d7e b", "a [key] b");
    check_mask("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nafter",
               "[key]\nafter");
}

static void ordinary_text_stays(void **state) {
    (void)state;
    static const char *const texts[] = {
        "The year 2026, the number 1234567890123 and 4111111111111112 are no cards.",
        "call +33 1 23 45 67 89 or see https://example.org/a/very/long/path-with-words",
        "antidisestablishmentarianism and Donaudampfschifffahrtsgesellschaft",
        "user@host is no address, nor is @name",
        "GB00WEST12345698765432 fails the check",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) check_mask(texts[i], texts[i]);
}

/* ---- the day ---- */

static struct store *open_store_at(const char *name) {
    char path[256];
    struct store *s;
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    assert_int_equal(store_open(&s, path, NULL), 0);
    return s;
}

static void add(struct store *s, const char *name, const char *question, const char *answer,
                double score, int32_t feedback) {
    const struct store_quality q = {.name = name,
                                    .route = "default",
                                    .model = "m",
                                    .origin = "answer",
                                    .judge = "m",
                                    .question = question,
                                    .answer = answer,
                                    .score = score};
    assert_int_equal(store_quality_add(s, &q, NULL, NULL), 0);
    if (feedback) assert_int_equal(store_quality_feedback(s, name, feedback, NULL, NULL), 0);
}

static void a_day_is_filtered(void **state) {
    (void)state;
    struct store *s = open_store_at("day.db");
    add(s, "1", "Where does Mira live?", "In Sago.", 0.9, 0);
    add(s, "2", "where does MIRA live", "In old Sago.", 0.95, 0); /* the same, better */
    add(s, "3", "Where does Tolo live?", "In Venn.", 0.9, 1);     /* the user says no */
    add(s, "4", "Where does Ilo live?", "In Lumo.", 0.2, 5);      /* the user says yes */
    add(s, "5", "Where does Kesh live?", "Nowhere.", 0.1, 0);
    add(s, "6", "Who is my contact?", "a.b@example.org", 0.9, 0);
    add(s, "7", "empty", "", 0.9, 0);
    add(s, "8", NULL, NULL, 0.9, 0); /* without consent there are no texts */
    struct learn_day d;
    assert_int_equal(learn_collect(&d, s, (struct learn_spans){NULL, 0}, 0.75, NULL), 0);
    assert_int_equal(d.n, 3);
    assert_string_equal(d.v[0].answer, "In old Sago.");
    assert_string_equal(d.v[1].question, "Where does Ilo live?");
    assert_string_equal(d.v[2].answer, "[mail]");
    assert_int_equal(d.n_read, 7);
    assert_int_equal(d.n_worse, 2);
    assert_int_equal(d.n_same, 1);
    assert_int_equal(d.n_long, 1);
    assert_int_equal(d.n_secret, 1);
    assert_int_equal(d.last_id, 7);
    learn_day_fini(&d);
    const struct learn_span all = {0, INT64_MAX};
    assert_int_equal(learn_collect(&d, s, (struct learn_spans){&all, 1}, 0.75, NULL), 0);
    assert_int_equal(d.n, 0);
    assert_int_equal(d.n_hidden, 7);
    learn_day_fini(&d);
    store_close(s);
}

/* Of more answers than a night reads, the newest are read, in the order of time. */
static void the_newest_answers_are_read(void **state) {
    (void)state;
    enum { MORE = 3, N = COLLECT_MAX_ITEMS + MORE };
    struct store *s = open_store_at("many.db");
    char q[40], want[40];
    for (int i = 0; i < N; i++) {
        snprintf(q, sizeof q, "What is number %d?", i);
        add(s, q, q, q, 0.9, 0);
    }
    add(s, "again", q, q, 0.95, 0); /* a duplicate needs no place */
    struct learn_day d;
    assert_int_equal(learn_collect(&d, s, (struct learn_spans){NULL, 0}, 0.75, NULL), 0);
    assert_int_equal(d.n_read, N + 1);
    assert_int_equal(d.n, COLLECT_MAX_ITEMS);
    assert_int_equal(d.n_old, MORE);
    assert_int_equal(d.n_same, 1);
    for (int i = 0; i < COLLECT_MAX_ITEMS; i++) {
        snprintf(want, sizeof want, "What is number %d?", i + MORE);
        assert_string_equal(d.v[i].question, want);
    }
    learn_day_fini(&d);
    store_close(s);
}

static void vote(struct votes *v, const char *owner, int64_t at, const char *question,
                 const char *answer, int32_t feedback, double score) {
    const struct store_quality q = {.question = question,
                                    .answer = answer,
                                    .owner = owner,
                                    .at_ms = at,
                                    .feedback = feedback,
                                    .score = score};
    assert_int_equal(votes_add(v, &q, NULL), 0);
}

static enum votes_result result(const struct votes *v, const char *question, const char *answer) {
    return votes_result(v, learn_text_hash(question), learn_text_hash(answer));
}

static void users_outvote_the_verifier(void **state) {
    (void)state;
    struct votes *v;
    assert_int_equal(votes_new(&v, NULL), 0);
    vote(v, "ann", 7, "one", "right", 5, 0.1);
    vote(v, "bob", 3, "one", "wrong", 0, 1); /* only the verifier likes it */
    vote(v, "ann", 5, "two", "a", 5, NAN);
    vote(v, "bob", 5, "two", "b", 5, NAN);
    vote(v, "bob", 6, "three", "b", 5, NAN); /* one user, many times */
    vote(v, "bob", 7, "three", "b", 5, NAN);
    vote(v, "bob", 8, "three", "b", 5, NAN);
    vote(v, "ann", 9, "three", "a", 5, NAN);
    vote(v, "cleo", 9, "three", "a", 5, NAN);
    vote(v, "ann", 1, "four", "x", 1, 0.9);
    vote(v, "ann", 1, "part one\nand two", "of it\nb", 1, NAN);
    votes_count(v);
    assert_int_equal(result(v, "One!", "right"), VOTES_WON);
    assert_int_equal(result(v, "one", "wrong"), VOTES_LOST);
    assert_int_equal(votes_first_ms(v, learn_text_hash("one")), 3);
    assert_int_equal(votes_first_ms(v, learn_text_hash("none")), 0);
    assert_int_equal(result(v, "two", "a"), VOTES_CONTESTED);
    assert_int_equal(result(v, "three", "a"), VOTES_WON);
    assert_int_equal(result(v, "three", "b"), VOTES_LOST);
    assert_int_equal(result(v, "four", "x"), VOTES_LOST);
    assert_true(votes_outvoted(v, "One!\nWrong."));
    assert_false(votes_outvoted(v, "One!\nRight."));
    assert_true(votes_outvoted(v, "four\nan answer that nobody gave"));
    assert_false(votes_outvoted(v, "two\nb")); /* contested */
    assert_false(votes_outvoted(v, "nobody asked\nx"));
    assert_true(votes_outvoted(v, "part one\nand two\nof it\nb"));
    assert_false(votes_outvoted(v, "no second line"));
    votes_free(v);
}

/* Three of ten users praise wrong answers: with their record, they do not even win where they are two against one. */
static void hostile_users_lose_their_weight(void **state) {
    (void)state;
    struct votes *v;
    char who[16], q[32];
    assert_int_equal(votes_new(&v, NULL), 0);
    for (int i = 0; i < 40; i++)
        for (int k = 0; k < 3; k++) { /* three users see each question */
            int u = (3 * i + k * 7) % 10;
            snprintf(who, sizeof who, "u%d", u);
            snprintf(q, sizeof q, "q%d", i);
            vote(v, who, i, q, "right", u < 3 ? 1 : 5, NAN);
            if (u < 3) vote(v, who, i, q, "wrong", 5, NAN);
        }
    vote(v, "u0", 50, "last", "wrong", 5, NAN);
    vote(v, "u1", 50, "last", "wrong", 5, NAN);
    vote(v, "u5", 50, "last", "right", 5, NAN);
    votes_count(v);
    assert_int_equal(result(v, "last", "right"), VOTES_WON);
    assert_int_equal(result(v, "last", "wrong"), VOTES_LOST);
    votes_free(v);
}

static void correct(struct votes *v, const char *owner, int64_t at, const char *question,
                    const char *answer) {
    const struct store_quality q = {.question = question,
                                    .answer = answer,
                                    .owner = owner,
                                    .origin = "correction",
                                    .at_ms = at,
                                    .feedback = 5,
                                    .score = NAN};
    assert_int_equal(votes_add(v, &q, NULL), 0);
}

/* What users accepted on the first day is rejected, replaced, kept, told in other words and not rated on the second. */
static void reversals_are_counted(void **state) {
    (void)state;
    struct votes *v;
    size_t n, reversed;
    assert_int_equal(votes_new(&v, NULL), 0);
    for (int i = 0; i < 5; i++) {
        char question[8];
        snprintf(question, sizeof question, "q%d", i);
        vote(v, "ann", 1, question, "right", 5, NAN);
    }
    vote(v, "bob", 20, "q0", "right", 1, NAN);
    correct(v, "bob", 20, "q1", "wrong");
    vote(v, "bob", 20, "q2", "right", 5, NAN);
    vote(v, "bob", 20, "q3", "wrong", 0, 1);      /* the verifier is not a user */
    vote(v, "bob", 20, "q4", "is right", 5, NAN); /* other words are no reversal */
    vote(v, "ann", 1, "q5", "right", 5, NAN);
    vote(v, "ann", 20, "q5", "right", 1, NAN); /* the same user changes sides */
    vote(v, "ann", 1, "q6", "wrong", 1, NAN);
    vote(v, "bob", 20, "q6", "wrong", 5, NAN); /* what was rejected is accepted */
    vote(v, "ann", 1, "q7", "wrong", 1, NAN);
    correct(v, "ann", 1, "q7", "right");
    vote(v, "bob", 20, "q7", "other", 1, NAN);
    correct(v, "bob", 20, "q7", "right"); /* corrected to what was accepted */
    vote(v, "bob", 20, "new", "wrong", 5, NAN);
    votes_count(v);
    votes_reversals(v, 10, &n, &reversed);
    assert_int_equal(n, 6);
    assert_int_equal(reversed, 4);
    votes_reversals(v, 30, &n, &reversed);
    assert_int_equal(n, 0);
    votes_free(v);
}

/* Pasted texts and long flattery teach nothing on the verifier's word alone. */
static void unrated_answers_are_suspect(void **state) {
    (void)state;
    struct store *s = open_store_at("suspect.db");
    char name[16], q[32], long_[1200], pasted[800];
    memset(long_, 'a', sizeof long_ - 1);
    memset(pasted, 'b', sizeof pasted - 1);
    long_[sizeof long_ - 1] = pasted[sizeof pasted - 1] = 0;
    for (int i = 0; i < 10; i++) {
        snprintf(name, sizeof name, "s%d", i);
        snprintf(q, sizeof q, "What is number %d?", i);
        add(s, name, q, q, 0.9, 5);
    }
    add(s, "l", "Who is the best?", long_, 1, 0);
    add(s, "p", pasted, "As it says.", 1, 0);
    add(s, "l2", "Tell me a long tale.", long_, 0.9, 5); /* a user wants it */
    struct learn_day d;
    assert_int_equal(learn_collect(&d, s, (struct learn_spans){NULL, 0}, 0.75, NULL), 0);
    assert_int_equal(d.n_suspect, 2);
    assert_int_equal(d.n, 11);
    learn_day_fini(&d);
    store_close(s);
}

/* The same questions every night, whatever their case; of the next quarter, others. */
static void a_tenth_is_held_out(void **state) {
    (void)state;
    const int64_t day = 86400 * 1000;
    int n = 0, n_later = 0, n_both = 0;
    for (int i = 0; i < 1000; i++) {
        char q[64], loud[64];
        snprintf(q, sizeof q, "what is number %d?", i);
        snprintf(loud, sizeof loud, "What is NUMBER %d", i);
        n += learn_holds_out(q, 1);
        n_later += learn_holds_out(q, 91 * day);
        n_both += learn_holds_out(q, 1) && learn_holds_out(q, 91 * day);
        assert_int_equal(learn_holds_out(q, 1), learn_holds_out(loud, 80 * day));
    }
    assert_in_range(n_later, 60, 140);
    assert_in_range(n_both, 0, 30);
    assert_in_range(n, 60, 140);
}

/* Hashes in place of names, and the users of a key below the key. */
static void owners_are_named_by_hash(void **state) {
    (void)state;
    char key[LEARN_SOURCE], user[LEARN_SOURCE], other[LEARN_SOURCE], nobody[LEARN_SOURCE];
    learn_source("key-0011223344556677", key);
    learn_source("key-0011223344556677\tann", user);
    learn_source("key-0011223344556677\tbob", other);
    learn_source("", nobody);
    assert_string_equal(nobody, "night");
    assert_int_equal(strlen(key), 5 + 17);
    assert_int_equal(strlen(user), 5 + 2 * 17);
    assert_memory_equal(user, key, strlen(key));
    assert_int_equal(user[strlen(key)], '/');
    assert_string_not_equal(user, other);
    assert_null(strstr(user, "ann"));
}

/* ---- versions ---- */

static json_t *record_of(struct nights *n, const char *name, const char *bytes) {
    char path[256], sha256[65];
    snprintf(path, sizeof path, "%s/artefact", scratch);
    scratch_put_bytes("artefact", bytes, strlen(bytes));
    assert_int_equal(nights_keep(n, path, sha256, NULL), 0);
    return json_pack("{s:{s:s}}", "artefacts", name, sha256);
}

static void check_live(const struct nights *n, const char *name, const char *want) {
    char path[NIGHTS_MAX_PATH], *text;
    size_t size;
    assert_int_equal(nights_live(n, name, path, sizeof path), want != NULL);
    if (!want) return;
    assert_int_equal(file_read(path, 1 << 20, &text, &size, NULL), 0);
    assert_string_equal(text, want);
    mem_free(text);
}

static void nights_can_be_undone(void **state) {
    (void)state;
    char dir[256];
    int64_t night;
    struct nights *n, *other;
    snprintf(dir, sizeof dir, "%s/nights", scratch);
    assert_int_equal(nights_open(&n, dir, NIGHTS_WRITE, NULL), 0);
    assert_int_equal(nights_open(&other, dir, NIGHTS_WRITE, NULL), CHIMERE_EBUSY);
    check_live(n, "a.bin", NULL);
    json_t *r = record_of(n, "a.bin", "one");
    assert_int_equal(nights_add(n, r, true, &night, NULL), 0);
    assert_int_equal(night, 1);
    json_decref(r);
    r = record_of(n, "b.bin", "two");
    assert_int_equal(nights_add(n, r, true, &night, NULL), 0);
    json_decref(r);
    check_live(n, "a.bin", NULL);
    check_live(n, "b.bin", "two");
    r = record_of(n, "b.bin", "three"); /* refused: recorded, not served */
    assert_int_equal(nights_add(n, r, false, &night, NULL), 0);
    json_decref(r);
    assert_int_equal(nights_current(n), 2);
    assert_int_equal(nights_last(n), 3);
    assert_int_equal(nights_select(n, 1, NULL), 0);
    check_live(n, "a.bin", "one");
    check_live(n, "b.bin", NULL);
    assert_int_equal(nights_select(n, 9, NULL), CHIMERE_ENOENT);
    assert_int_equal(nights_current(n), 1);
    assert_int_equal(nights_select(n, 0, NULL), 0);
    check_live(n, "a.bin", NULL);
    assert_int_equal(nights_select(n, 2, NULL), 0);
    nights_close(n);
    /* a process that died between pointer and files: the next one repairs */
    char live[300];
    snprintf(live, sizeof live, "%s/live/b.bin", dir);
    assert_int_equal(unlink(live), 0);
    assert_int_equal(nights_open(&n, dir, NIGHTS_WRITE, NULL), 0);
    check_live(n, "b.bin", "two");
    nights_close(n);
}

static void damage_is_refused(void **state) {
    (void)state;
    char dir[256], name[400];
    int64_t night;
    struct nights *n;
    snprintf(dir, sizeof dir, "%s/damaged", scratch);
    assert_int_equal(nights_open(&n, dir, NIGHTS_WRITE, NULL), 0);
    json_t *r = record_of(n, "a.bin", "good");
    assert_int_equal(nights_add(n, r, true, &night, NULL), 0);
    const char *sha = json_string_value(json_object_get(json_object_get(r, "artefacts"), "a.bin"));
    snprintf(name, sizeof name, "damaged/objects/%s", sha);
    scratch_put_bytes(name, "evil", 4);
    json_decref(r);
    assert_int_equal(nights_select(n, 1, NULL), CHIMERE_EFORMAT);
    r = json_pack("{s:{s:s}}", "artefacts", "../up", "x");
    assert_int_equal(nights_add(n, r, true, &night, NULL), CHIMERE_EFORMAT);
    json_decref(r);
    check_live(n, "a.bin", "good"); /* the served file is unchanged */
    nights_close(n);
    for (int i = 0; i < 2; i++) { /* a damaged artefact, then a damaged pointer */
        assert_int_equal(nights_open(&n, dir, NIGHTS_WRITE, NULL), CHIMERE_EFORMAT);
        assert_int_equal(nights_open(&n, dir, NIGHTS_RETURN, NULL), 0);
        assert_int_equal(nights_select(n, 1, NULL), CHIMERE_EFORMAT);
        assert_int_equal(nights_select(n, 0, NULL), 0);
        check_live(n, "a.bin", NULL);
        nights_close(n);
        assert_int_equal(nights_open(&n, dir, NIGHTS_WRITE, NULL), 0);
        nights_close(n);
        scratch_put_bytes("damaged/current", "no number", 9);
    }
}

static void gains_have_intervals(void **state) {
    (void)state;
    const double before[] = {2, 3, 4, 5}, after[] = {1, 2, 3, 4}, mixed[] = {1, 4, 3, 6};
    struct night_gain g;
    night_gain_of(&g, before, after, 4);
    assert_float_equal(g.mean, 1, 1e-9);
    assert_float_equal(g.low, 1, 1e-9);
    night_gain_of(&g, before, mixed, 4); /* +1 -1 +1 -1: deviation sqrt(4/3), error half of it */
    assert_float_equal(g.mean, 0, 1e-9);
    assert_float_equal(g.high, 1.96 * 0.5773502692, 1e-6);
    night_gain_of(&g, before, after, 1); /* one says nothing */
    assert_true(!(g.low > 0));
}

/* ---- the gate ---- */

/* Against tables: Holm's procedure by hand, quantiles of the normal distribution. */
static void candidates_are_corrected(void **state) {
    (void)state;
    const double p[] = {0.010, 0.040, 0.030, 0.005};
    double limits[4];
    bool passes[4];
    gate_holm(p, 4, 0.05, limits, passes); /* 0.005 <= 0.0125, 0.010 <= 0.0167, 0.030 > 0.025 */
    assert_true(passes[3] && passes[0] && !passes[2] && !passes[1]);
    assert_float_equal(limits[3], 0.0125, 1e-12);
    assert_float_equal(limits[0], 0.05 / 3, 1e-12);
    assert_float_equal(limits[2], 0.025, 1e-12);
    gate_holm(p, 1, 0.025, limits, passes);
    assert_true(passes[0]);
    gate_holm(p, 0, 0.025, limits, passes);
    assert_float_equal(gate_p(1.959964, 1), 0.025, 1e-6);
    assert_float_equal(gate_p(-1, 1), 0.8413447, 1e-6);
    assert_float_equal(gate_p(1, INFINITY), 1, 0);
    assert_float_equal(gate_p(1, 0), 0, 0);
    assert_float_equal(gate_p(0, 0), 1, 0);
    assert_float_equal(gate_p(NAN, 1), 1, 0);
    assert_float_equal(gate_detectable(1, 0.025), 1.959964 + 0.841621, 1e-5);
    assert_float_equal(gate_detectable_share(200, 30, 0.05), (1.644854 + 0.841621) * 5.477226 / 200,
                       1e-5);
}

/* Fisher's own table (four cups of tea) and a table with sums by hand. */
static void shares_are_compared_exactly(void **state) {
    (void)state;
    assert_float_equal(gate_fisher(4, 4, 0, 4), 1.0 / 70, 1e-12);
    assert_float_equal(gate_fisher(3, 4, 1, 4), 17.0 / 70, 1e-12);
    assert_float_equal(gate_fisher(0, 4, 4, 4), 1, 1e-12);
    assert_float_equal(gate_fisher(5, 5, 0, 5), 1.0 / 252, 1e-12);
    assert_float_equal(gate_fisher(0, 0, 3, 5), 1, 1e-12);
}

/* ---- examples ---- */

static json_t *some_examples(void) {
    json_t *s = json_array();
    assert_true(example_put(s, "Where does Mira live?", "In Sago.", "night/ann"));
    assert_true(example_put(s, "Where does the river Tolo end?", "In Venn.", "night/bob/x"));
    assert_true(example_put(s, "What eats a cat?", "Mice.", "night/bob"));
    assert_false(example_put(s, "where does MIRA live", "Elsewhere.", "night/ann"));
    assert_false(example_put(s, "", "x", "night"));
    assert_false(example_put(s, "\xff", "x", "night"));
    return s;
}

static void the_nearest_examples_are_shown(void **state) {
    (void)state;
    size_t near[3];
    json_t *s = some_examples();
    /* half of the words is enough; "tolo" is rarer than "where" and "does" */
    assert_int_equal(shots_near(s, "Where does Ann swim in the river Tolo?", 3, near), 1);
    assert_int_equal(near[0], 1);
    assert_int_equal(shots_near(s, "Where does Tolo live?", 3, near), 2);
    assert_int_equal(near[0], 0);
    assert_int_equal(near[1], 1);
    assert_int_equal(shots_near(s, "Where does Mira live?", 3, near), 1); /* not the same one */
    assert_int_equal(near[0], 1);
    assert_int_equal(shots_near(s, "?!", 3, near), 0);
    assert_int_equal(shots_near(NULL, "Where?", 3, near), 0);

    json_t *user = json_pack("[{s:s,s:s}]", "role", "user", "content", "What EATS the river");
    json_t *shown = learned_messages("- Be brief.", s, user);
    assert_int_equal(json_array_size(shown), 6);
    static const char *const want[] = {"- Be brief.", "What eats a cat?",
                                       "Mice.",       "Where does the river Tolo end?",
                                       "In Venn.",    "What EATS the river"};
    for (size_t i = 0; i < 6; i++)
        assert_string_equal(json_string_value(json_object_get(json_array_get(shown, i), "content")),
                            want[i]);
    json_decref(shown);
    json_t *own = json_pack("[{s:s,s:s},{s:s,s:s}]", "role", "system", "content", "s", "role",
                            "user", "content", "Where is the cat?");
    shown = learned_messages(NULL, s, own);
    assert_true(json_equal(shown, own));
    json_decref(shown);
    json_decref(own);
    json_decref(user);
    json_decref(s);
}

/* In every language, an example of the day can precede each question of the exam, which asks in other words. */
static void examples_are_near_the_exam(void **state) {
    (void)state;
    struct world w;
    char question[WORLD_MAX_TEXT];
    assert_int_equal(world_make(&w, 60, WORLD_MAX_LANGUAGES, 1, NULL), 0);
    for (int32_t i = 0; i < w.n; i++) {
        json_t *day = json_array();
        size_t near[1];
        for (int32_t k = 0; k < w.n && json_array_size(day) < SHOTS_MAX; k++)
            for (int form = 0; k != i && form < WORLD_N_FORM; form++) {
                if (w.v[k].kind != w.v[i].kind || w.v[k].language != w.v[i].language) continue;
                world_question(&w, k, form, question);
                json_array_append_new(day, json_pack("{s:s}", "question", question));
            }
        world_question(&w, i, WORLD_EXAM, question);
        if (!shots_near(day, question, 1, near)) fail_msg("no example is near: %s", question);
        json_decref(day);
    }
    world_fini(&w);
}

static void limits_are_checked(void **state) {
    (void)state;
    char path[256];
    struct limits l = limits_default(), back;
    snprintf(path, sizeof path, "%s/limits.json", scratch);
    l.v[LIMIT_WEB] = 0.55;
    l.v[LIMIT_ROUTE] = 0.6;
    l.route_of = 0.45;
    assert_int_equal(limits_save(&l, path, NULL), 0);
    assert_int_equal(limits_load(&back, path, NULL), 0);
    assert_memory_equal(&back, &l, sizeof l);
    assert_true(limits_route(&l, 0.45) == 0.6); /* replaces the value that it was fitted for, */
    assert_true(limits_route(&l, 0.5) == 0.5);  /* and no other */
    assert_true(limits_route(&l, 0) == 0);
    static const struct {
        enum limit which;
        double v;
    } bad[] = {
        {LIMIT_EASY, -0.1}, {LIMIT_HARD, 1.1}, {LIMIT_EASY, 0.8}, {LIMIT_SURE, 1}, {LIMIT_WEB, 11}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct limits x = l;
        x.v[bad[i].which] = bad[i].v;
        assert_int_equal(limits_save(&x, path, NULL), 0);
        assert_int_equal(limits_load(&back, path, NULL), CHIMERE_EFORMAT);
    }
    static const char *const damaged[] = {
        "{", "{}", "{\"version\":1,\"route_of\":0,\"limits\":{\"route\":0}}"};
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        scratch_put_bytes("limits.json", damaged[i], strlen(damaged[i]));
        assert_int_equal(limits_load(&back, path, NULL), CHIMERE_EFORMAT);
    }
}

static void examples_are_kept_and_forgotten(void **state) {
    (void)state;
    char path[256], copy[256];
    json_t *s = some_examples(), *back;
    size_t n_gone = 0;
    bool is_empty;
    snprintf(path, sizeof path, "%s/examples.json", scratch);
    snprintf(copy, sizeof copy, "%s/copy.json", scratch);
    assert_int_equal(example_save(s, path, NULL), 0);
    assert_int_equal(example_load(&back, path, NULL), 0);
    assert_true(json_equal(back, s));
    json_decref(back);
    const struct night_person bob = {"night/bob", true};
    assert_int_equal(night_step_examples.forget(path, copy, &bob, &n_gone, &is_empty, NULL), 0);
    assert_int_equal(n_gone, 2);
    assert_int_equal(example_load(&back, copy, NULL), 0);
    assert_int_equal(json_array_size(back), 1);
    json_decref(back);
    for (int i = 0; i < SHOTS_MAX; i++) {
        char text[32];
        snprintf(text, sizeof text, "question %d", i);
        example_put(s, text, "a", "night");
    }
    assert_int_equal(json_array_size(s), SHOTS_MAX);
    json_decref(s);
    static const char *const bad[] = {"{", "{\"version\":1}", "{\"version\":2,\"examples\":[]}",
                                      "{\"version\":1,\"examples\":[{\"question\":\"q\"}]}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        scratch_put_bytes("examples.json", bad[i], strlen(bad[i]));
        assert_int_equal(example_load(&back, path, NULL), CHIMERE_EFORMAT);
        assert_null(back);
    }
}

/* ---- the trial of a night ---- */

static void rated(struct store *s, int64_t night, int n, int32_t rating) {
    static int k;
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", k++);
        const struct store_quality q = {.at_ms = 2000,
                                        .name = name,
                                        .night = night,
                                        .question = "q",
                                        .answer = "a",
                                        .score = NAN};
        assert_int_equal(store_quality_add(s, &q, NULL, NULL), 0);
        assert_int_equal(store_quality_feedback(s, name, rating, NULL, NULL), 0);
    }
}

static void check_canary(const struct nights *n, int64_t night, const char *want) {
    json_t *r;
    assert_int_equal(nights_read(n, night, &r, NULL), 0);
    const json_t *canary = json_object_get(r, "canary");
    assert_string_equal(json_string_value(json_object_get(canary, "result")), want);
    json_decref(r);
}

static int64_t put_on_trial(struct nights *n, const char *artefact) {
    struct trial t = {.share = 0.1, .from_s = 1, .until_s = 100}, got;
    json_t *r = record_of(n, "a.bin", artefact);
    assert_int_equal(nights_add(n, r, false, &t.night, NULL), 0);
    json_decref(r);
    assert_int_equal(trial_start(n, &t, NULL), 0);
    assert_int_equal(trial_load(n, &got, NULL), 0);
    assert_memory_equal(&got, &t, sizeof t);
    return t.night;
}

static void a_trial_ends_by_ratings_or_time(void **state) {
    (void)state;
    char dir[256], path[256];
    struct nights *n;
    struct store *s;
    struct trial t;
    enum trial_end end;
    snprintf(dir, sizeof dir, "%s/trial", scratch);
    snprintf(path, sizeof path, "%s/trial.db", scratch);
    assert_int_equal(store_open(&s, path, NULL), 0);
    assert_int_equal(nights_open(&n, dir, NIGHTS_WRITE, NULL), 0);
    assert_int_equal(trial_finish(n, s, 50, &end, NULL), 0); /* no trial */
    assert_int_equal(end, TRIAL_GOES_ON);

    int64_t bad = put_on_trial(n, "bad");
    rated(s, 0, 20, 5);
    rated(s, bad, 2, 1); /* p 1/231, where less than 0.05 / 6 is needed, rolls back */
    nights_close(n);     /* opening again repairs live/ and keeps the trial */
    assert_int_equal(nights_open(&n, dir, NIGHTS_WRITE, NULL), 0);
    assert_int_equal(trial_finish(n, s, 50, &end, NULL), 0);
    assert_int_equal(end, TRIAL_FAILED);
    check_canary(n, bad, "rolled back: users reject its answers");
    assert_int_equal(trial_load(n, &t, NULL), 0);
    assert_int_equal(t.night, 0);
    assert_int_equal(nights_current(n), 0);

    int64_t good = put_on_trial(n, "good");
    rated(s, good, 1, 1); /* one of one against none of twenty is not enough: p 1/21, limit 0.025 */
    rated(s, good, 3, 4);
    assert_int_equal(trial_finish(n, s, 99, &end, NULL), 0);
    assert_int_equal(end, TRIAL_GOES_ON);
    assert_int_equal(trial_finish(n, s, 0, &end, NULL),
                     0); /* the clock was set back by one second */
    assert_int_equal(trial_load(n, &t, NULL), 0);
    assert_int_equal(t.until_s, 99);
    assert_int_equal(trial_finish(n, s, 99, &end, NULL), 0);
    assert_int_equal(end, TRIAL_PASSED);
    check_canary(n, good, "promoted");
    check_live(n, "a.bin", "good");

    int64_t third = put_on_trial(n, "third");
    assert_int_equal(trial_drop(n, "by hand", NULL), 0);
    check_canary(n, third, "by hand");
    assert_int_equal(trial_drop(n, "by hand", NULL), 0);
    put_on_trial(n, "fourth");
    assert_int_equal(nights_select(n, 0, NULL), 0); /* a return ends a trial */
    assert_int_equal(trial_load(n, &t, NULL), 0);
    assert_int_equal(t.night, 0);
    scratch_put_bytes("trial/trial", "{", 1);
    assert_int_equal(trial_load(n, &t, NULL), 0);
    assert_int_equal(t.night, 0);
    nights_close(n);
    store_close(s);
}

/* ---- the switch of a running server ---- */

static struct learned_version *version(int64_t night) {
    struct learned_version *v = mem_zalloc(sizeof *v);
    assert_non_null(v);
    v->night = night;
    return v;
}

static void versions_end_with_their_last_request(void **state) {
    (void)state;
    struct learned *l;
    assert_null(learned_take(NULL, 1));
    assert_int_equal(learned_new(&l, NULL), 0);
    assert_null(learned_take(l, 1));
    learned_switch(l, version(1), NULL, 0);
    struct learned_version *old = learned_take(l, 1), *also = learned_take(l, 2);
    assert_ptr_equal(old, also);
    learned_switch(l, version(2), version(3), 0.1);
    assert_false(learned_sweep(l)); /* two requests use the first version */
    assert_int_equal(old->night, 1);
    learned_return(l, old);
    assert_false(learned_sweep(l));
    learned_return(l, also);
    assert_true(learned_sweep(l));
    int n_trial = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        struct learned_version *a = learned_take(l, i), *b = learned_take(l, i);
        assert_ptr_equal(a, b); /* a conversation does not change its version */
        n_trial += a->night == 3;
        learned_return(l, a);
        learned_return(l, b);
    }
    assert_in_range(n_trial, 60, 140);
    learned_free(l);
}

/* ---- the owner's own items ---- */

static void own_items_are_kept(void **state) {
    (void)state;
    char dir[256];
    json_t *items = json_array();
    snprintf(dir, sizeof dir, "%s/own", scratch);
    assert_int_equal(own_load(items, dir, NULL), 0);
    assert_int_equal(own_add(dir, "Where is the key?", "under the mat", NULL), 0);
    assert_int_equal(own_add(dir, "Who feeds the cat?", "Ann", NULL), 0);
    assert_int_equal(own_add(dir, "where is the KEY", "in the drawer", NULL), 0); /* replaces */
    assert_int_equal(own_add(dir, "", "x", NULL), CHIMERE_EINVAL);
    assert_int_equal(own_add(dir, "\xff", "x", NULL), CHIMERE_EINVAL);
    assert_int_equal(own_load(items, dir, NULL), 0);
    assert_int_equal(json_array_size(items), 2);
    assert_string_equal(own_answer(json_array_get(items, 0)), "in the drawer");
    assert_true(own_asks(items, "WHERE is the key"));
    assert_false(own_asks(items, "Where is the keyhole?"));
    const char *id = json_string_value(json_object_get(json_array_get(items, 0), "id"));
    assert_int_equal(own_remove(dir, "own-1", NULL), CHIMERE_ENOENT);
    assert_int_equal(own_remove(dir, id, NULL), 0);
    json_array_clear(items);
    assert_int_equal(own_load(items, dir, NULL), 0);
    assert_int_equal(json_array_size(items), 1);
    json_decref(items);
}

/* ---- the schedule ---- */

static int64_t local(int year, int month, int day, int hour, int minute) {
    struct tm tm = {.tm_year = year - 1900,
                    .tm_mon = month - 1,
                    .tm_mday = day,
                    .tm_hour = hour,
                    .tm_min = minute,
                    .tm_isdst = -1};
    return (int64_t)mktime(&tm);
}

static struct schedule_row row_of(const char *time, int64_t ran_s) {
    struct schedule_row r = {.step = "lora", .ran_s = ran_s};
    assert_int_equal(schedule_parse(time, &r.time, NULL), 0);
    return r;
}

static void times_are_due_once(void **state) {
    (void)state;
    struct schedule_row r = row_of("03:00", local(2026, 3, 10, 3, 5)); /* a Tuesday */
    assert_false(schedule_is_due(&r, local(2026, 3, 11, 2, 59)));
    assert_true(schedule_is_due(&r, local(2026, 3, 11, 3, 0)));
    assert_int_equal(schedule_next(&r, local(2026, 3, 10, 12, 0)), local(2026, 3, 11, 3, 0));
    assert_true(schedule_is_due(&r, local(2026, 6, 1, 1, 0))); /* long downtime */
    r.ran_s = local(2026, 6, 1, 1, 0);
    assert_false(schedule_is_due(&r, local(2026, 6, 1, 2, 0)));
    assert_true(schedule_is_due(&r, local(2026, 6, 1, 3, 0)));

    r = row_of("mon 02:00", local(2026, 3, 9, 2, 0));
    assert_false(schedule_is_due(&r, local(2026, 3, 15, 23, 0))); /* Sunday */
    assert_true(schedule_is_due(&r, local(2026, 3, 16, 2, 0)));
    assert_int_equal(schedule_next(&r, local(2026, 3, 10, 0, 0)), local(2026, 3, 16, 2, 0));

    r = row_of("6h", 1000000);
    assert_false(schedule_is_due(&r, 1000000 + 6 * 3600 - 1));
    assert_true(schedule_is_due(&r, 1000000 + 6 * 3600));
    r = row_of("off", 1);
    assert_false(schedule_is_due(&r, local(2026, 3, 16, 2, 0)));
    assert_int_equal(schedule_next(&r, 1000000), 0);
    static const char *const bad[] = {"24:00", "3:00",       "03:60", "mon", "mon 3", "0h", "6",
                                      "6hh",   "mon 03:000", "169h",  "-1h", " 6h",   ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct schedule_time t;
        assert_int_equal(schedule_parse(bad[i], &t, NULL), CHIMERE_EINVAL);
    }
}

static void times_are_stored(void **state) {
    (void)state;
    char dir[256], text[SCHEDULE_MAX_TEXT];
    struct schedule s;
    struct schedule_time t;
    bool changed;
    snprintf(dir, sizeof dir, "%s/stored", scratch);
    assert_int_equal(schedule_load(&s, dir, NULL), 0);
    assert_int_equal(schedule_parse("mon 02:15", &t, NULL), 0);
    assert_int_equal(schedule_set(&s, "lora", &t, NULL), 0);
    assert_int_equal(schedule_set(&s, "sleep", &t, NULL), CHIMERE_ENOENT);
    schedule_settle(&s, 5000, &changed); /* steps that never ran wait for their next time */
    assert_true(changed);
    assert_int_equal(schedule_save(&s, dir, NULL), 0);
    assert_int_equal(schedule_save_ran(&s, dir, NULL), 0);
    assert_int_equal(schedule_load(&s, dir, NULL), 0);
    schedule_settle(&s, 6000, &changed);
    assert_false(changed);
    for (size_t i = 0; i < s.n; i++) {
        assert_int_equal(s.rows[i].ran_s, 5000);
        schedule_text(&s.rows[i].time, text);
        if (!strcmp(s.rows[i].step, "lora")) assert_string_equal(text, "mon 02:15");
    }
    schedule_settle(&s, 4000, &changed); /* the clock was set back */
    assert_true(changed);
    assert_int_equal(s.rows[0].ran_s, 4000);
}

struct sleeper {
    _Atomic int64_t now;
    _Atomic int n_run, n_odd;
    _Atomic bool holds; /* a night lasts until it is stopped */
};
static int64_t sleeper_now(void *ud) { return ((struct sleeper *)ud)->now; }
static int sleeper_run(void *ud, const struct night_clock *c, const char *steps, struct err *e) {
    struct sleeper *s = ud;
    char all[NIGHT_MAX_NAMES];
    night_step_names(all, ",");
    s->n_odd += strcmp(steps, all) != 0; /* all were missed: one night */
    s->n_run++;
    while (s->holds && night_clock_goes_on(c)) usleep(1000);
    return s->holds ? err_set(e, CHIMERE_ECANCELLED, "stopped") : 0;
}

/* A jump of years, there and back, is one night; one that was cut off runs again. */
static void clock_jumps_are_one_night(void **state) {
    (void)state;
    char dir[256];
    struct sleeper s = {.now = local(2026, 3, 10, 12, 0)};
    const struct night_clock_params p = {
        .dir = dir, .run = sleeper_run, .now_s = sleeper_now, .ud = &s};
    struct night_clock *c;
    snprintf(dir, sizeof dir, "%s/clock", scratch);
    struct schedule set;
    bool changed;
    assert_int_equal(schedule_load(&set, dir, NULL), 0);
    schedule_settle(&set, s.now, &changed);
    assert_int_equal(schedule_save_ran(&set, dir, NULL), 0);
    s.holds = true;
    s.now = local(2030, 1, 1, 12, 0);
    assert_int_equal(night_clock_open(&c, &p, NULL), 0);
    while (!s.n_run) usleep(1000);
    night_clock_close(c); /* cut off */
    s.holds = false;
    assert_int_equal(night_clock_open(&c, &p, NULL), 0);
    while (s.n_run < 2) usleep(1000);
    s.now = local(2020, 1, 1, 12, 0); /* back: steps count from there */
    for (;;) {
        assert_int_equal(schedule_load(&set, dir, NULL), 0);
        if (set.rows[0].ran_s && set.rows[0].ran_s <= s.now) break;
        usleep(1000);
    }
    night_clock_close(c);
    assert_int_equal(s.n_run, 2);
    assert_int_equal(s.n_odd, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(secrets_are_masked),
        cmocka_unit_test(ordinary_text_stays),
        cmocka_unit_test(a_day_is_filtered),
        cmocka_unit_test(the_newest_answers_are_read),
        cmocka_unit_test(a_tenth_is_held_out),
        cmocka_unit_test(examples_are_near_the_exam),
        cmocka_unit_test(nights_can_be_undone),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(times_are_due_once),
        cmocka_unit_test(times_are_stored),
        cmocka_unit_test(clock_jumps_are_one_night),
        cmocka_unit_test(shares_are_compared_exactly),
        cmocka_unit_test(the_nearest_examples_are_shown),
        cmocka_unit_test(examples_are_kept_and_forgotten),
        cmocka_unit_test(limits_are_checked),
        cmocka_unit_test(a_trial_ends_by_ratings_or_time),
        cmocka_unit_test(own_items_are_kept),
        cmocka_unit_test(candidates_are_corrected),
        cmocka_unit_test(gains_have_intervals),
        cmocka_unit_test(owners_are_named_by_hash),
        cmocka_unit_test(versions_end_with_their_last_request),
        cmocka_unit_test(users_outvote_the_verifier),
        cmocka_unit_test(hostile_users_lose_their_weight),
        cmocka_unit_test(reversals_are_counted),
        cmocka_unit_test(unrated_answers_are_suspect),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
