/* test_spec_policy.c: which drafts are verified: simulated machines on which drafts lose, pay, or change their worth; what
 * text sources propose, and how much of it is chosen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/draft/spec.h"
#include "engine/draft/suffix.h"
#include "engine/lease.h"
#include "engine/lm.h"
#include "scratch.h"

/* ---- a sequence that the model drafter drafts for ---- */

struct world {
    double draft, verify,
        replay; /* of a token asked for, and of one proposed; of one that stays, in the step after */
    double accept;  /* of each token given those before it */
    double propose; /* share of rounds in which the drafter knows something */
    double watch;   /* of a step that is observed: half in this step, half in the next one */
    int32_t
        n_slow; /* the machine is 1.8 times slower in every other stretch of so many steps; 0: never */
};
struct spent {
    double time, plain; /* plain: had nothing been drafted */
    int32_t n_at[4];    /* rounds that asked for so many tokens */
};

static struct spec *new_spec(void) {
    static struct spec s;
    assert_int_equal(spec_init(&s, 100, false, false, NULL), 0);
    return &s;
}

static struct spent spend(struct spec *s, const struct world *w, int32_t n) {
    struct spent sum = {0};
    struct rng rng;
    struct spec_seq q = {.follows = true, .observed = true, .region = SPEC_ANSWER};
    int32_t left = 0;
    double tail = 0;
    rng_seed(&rng, (uint64_t)n);
    for (int32_t i = 0; i < n; i++) {
        struct spec_offer o = {.q = &q, .n_model_max = 3};
        int32_t asked = spec_choose(s, &o, 1), kept = 0;
        struct spec_draft d = {.n_asked = asked};
        assert_true(asked >= 0 && asked <= 3);
        assert_true(!asked || q.observed);
        sum.n_at[asked]++;
        if (asked && rng_uniform(&rng) < w->propose) d.n = asked;
        for (int32_t k = 0; k < d.n; k++) d.source[k] = DRAFT_MODEL, d.grade[k] = (uint8_t)k;
        while (kept < d.n && rng_uniform(&rng) < w->accept) kept++;
        double slow = w->n_slow && i / w->n_slow % 2 ? 1.8 : 1;
        s->observe_ms = s->observes ? slow * w->watch / 2 : 0;
        double ms = slow * (1 + w->draft * asked + w->verify * d.n + w->replay * left + tail) +
                    s->observe_ms;
        left = d.n ? kept + 1 : 0;
        tail = s->observes ? w->watch / 2 : 0;
        q.observed = s->observes;
        if (asked) spec_learn(s, &q, &d, kept, NULL);
        spec_time(s, 1 + d.n, kept + 1, ms, asked, slow * w->draft * asked);
        sum.time += ms;
        sum.plain += slow * (kept + 1);
    }
    return sum;
}

/* Where no draft pays, trying costs at most 2 %, whatever the reason: none is accepted, most are not proposed, tokens that
 * stay are dear in the step after; and where the machine changes its speed. */
static void trying_costs_little_where_it_loses(void **state) {
    (void)state;
    static const struct world worlds[] = {
        {.draft = 0.3, .verify = 0.3, .accept = 0, .propose = 1},
        {.draft = 0.3, .verify = 0.4, .accept = 0.9, .propose = 0.1},
        {.draft = 0.2, .verify = 0.3, .accept = 0.9, .propose = 1, .replay = 0.8},
        {.draft = 0.5, .verify = 0.5, .accept = 0.7, .propose = 0.5},
        {.draft = 0.3, .verify = 0.3, .accept = 0.2, .propose = 1, .n_slow = 500},
        {.draft = 0.6, .verify = 0.6, .accept = 0.8, .propose = 1, .n_slow = 90},
        /* these gain over plain steps that are observed, but not over those that are not */
        {.draft = 0.4, .verify = 0.5, .accept = 0.97, .propose = 1, .watch = 0.12},
        {.draft = 0.3, .verify = 0.6, .accept = 0.9, .propose = 1, .watch = 0.25},
    };
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        struct spec *s = new_spec();
        spend(s, &worlds[i], 200);
        struct spent x = spend(s, &worlds[i], 20000);
        if (x.time > 1.02 * x.plain) fail_msg("world %zu: %.3f times as long", i, x.time / x.plain);
        assert_true(x.n_at[1] + x.n_at[2] + x.n_at[3] > 20); /* and yet it is tried */
    }
}

/* Where drafts pay, nearly all is gained that the best depth gains, also after a time in which they lost; and the loss
 * is small when they stop to pay. */
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
        {{.draft = 0.1, .verify = 0.2, .accept = 0.9, .propose = 1, .watch = 0.1},
         1.72}, /* three: 3.44 / 2.0 */
    };
    static const struct world bad = {.draft = 0.5, .verify = 0.5, .accept = 0.1, .propose = 1};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
        for (int later = 0; later < 2; later++) {
            struct spec *s = new_spec();
            if (later) spend(s, &bad, 5000);
            spend(s, &worlds[i].w, later ? 8000 : 400);
            struct spent x = spend(s, &worlds[i].w, 10000);
            if (x.plain < 0.97 * worlds[i].gain * x.time)
                fail_msg("world %zu: %.3f", i, x.plain / x.time);
            spend(s, &bad, 500);
            x = spend(s, &bad, 10000);
            if (x.time > 1.02 * x.plain)
                fail_msg("after world %zu: %.3f times as long", i, x.time / x.plain);
        }
}

/* The first steps pay for cold caches: they keep no drafter that loses. */
static void a_wrong_beginning_is_mended(void **state) {
    (void)state;
    struct spec *s = new_spec();
    struct spec_seq q = {.follows = true, .region = SPEC_ANSWER};
    for (int32_t i = 0; i < 40; i++) {
        struct spec_offer o = {.q = &q, .n_model_max = 3};
        int32_t n = spec_choose(s, &o, 1);
        spec_time(s, 1 + n, 1 + n, n ? 1 + 0.8 * n : 4, n, 0.4 * n);
        q.observed = s->observes;
    }
    static const struct world w = {.draft = 0.3, .verify = 0.7, .accept = 0.8, .propose = 1};
    spend(s, &w, 1000);
    struct spent x = spend(s, &w, 10000);
    if (x.time > 1.02 * x.plain) fail_msg("%.3f times as long", x.time / x.plain);
}

/* What is accepted suddenly is not any more: the guard stops after 64 rounds, for longer each time. */
static void the_guard_stops_what_loses(void **state) {
    (void)state;
    struct spec *s = new_spec();
    struct spec_seq q = {.region = SPEC_ANSWER};
    int32_t n_drafted = 0, n_round = 6000, n_told = 0;
    FILE *log = tmpfile();
    int err = dup(STDERR_FILENO);
    assert_true(log && err >= 0 && dup2(fileno(log), STDERR_FILENO) >= 0);
    log_set_level(LOG_INFO);
    for (int32_t i = 0; i < n_round; i++) {
        /* a source that says 0.99 and is never right, and that nothing corrects */
        struct spec_offer o = {.q = &q, .text = {.n = 3, .accept = {0.99f, 0.99f, 0.99f}}};
        spec_choose(s, &o, 1);
        n_drafted += o.n_text > 0;
        spec_time(s, 1 + o.n_text, 1, 1 + 0.3 * o.n_text, 0, 0);
    }
    log_set_level(LOG_WARN);
    dup2(err, STDERR_FILENO);
    close(err);
    rewind(log);
    for (char line[256]; fgets(line, sizeof line, log);)
        n_told += strstr(line, "drafts made decoding slower") != NULL;
    fclose(log);
    assert_int_equal(n_told, 1);
    assert_true(n_drafted >= 64); /* 64 in 320, 64 in 576, ... */
    if (n_drafted > 6 * 64) fail_msg("%d of %d rounds drafted", n_drafted, n_round);
}

/* Looking for drafts that are seldom found costs more than they gain: the guard stops that too, and nothing is observed or
 * looked for while it does. */
static void the_guard_counts_the_search(void **state) {
    (void)state;
    struct spec *s = new_spec();
    struct spec_seq q = {.region = SPEC_ANSWER};
    int32_t n_rest = 0, n_round = 8000;
    for (int32_t i = 0; i < n_round; i++) {
        bool rests = spec_rests(s), knows = i % 10 == 0 && !rests;
        struct spec_offer o = {.q = &q, .text = {.n = knows, .accept = {0.99f}}};
        spec_choose(s, &o, 1);
        if (rests) assert_false(s->observes || o.n_text);
        n_rest += rests;
        s->text_ms = rests ? 0 : 0.1; /* a draft saves 0.7 in ten steps, and looking takes 1.0 */
        spec_time(s, 1 + o.n_text, 1 + o.n_text, 1 + s->text_ms + 0.2 * o.n_text, 0, 0);
    }
    if (n_rest < n_round / 2) fail_msg("%d of %d rounds rested", n_rest, n_round);
}

/* Where nothing is ever found, looking is all that is lost: the guard stops it too, though no round has a draft. */
static void the_guard_stops_a_vain_search(void **state) {
    (void)state;
    struct spec *s = new_spec();
    struct spec_seq q = {.region = SPEC_RULED};
    double lost = 0;
    int32_t n_round = 4000;
    for (int32_t i = 0; i < n_round; i++) {
        bool rests = spec_rests(s);
        struct spec_offer o = {.q = &q};
        spec_choose(s, &o, 1);
        s->text_ms = rests ? 0 : 0.06;
        spec_time(s, 1, 1, 1 + s->text_ms, 0, 0);
        lost += s->text_ms;
    }
    if (lost > 0.015 * n_round) fail_msg("lost %.3f of the time", lost / n_round);
    /* a cheap search continues */
    s = new_spec();
    for (int32_t i = 0; i < n_round; i++) {
        struct spec_offer o = {.q = &q};
        spec_choose(s, &o, 1);
        s->text_ms = 0.005;
        spec_time(s, 1, 1, 1.005, 0, 0);
        assert_false(spec_rests(s));
    }
}

/* Each number of sequences that decode together has costs of its own. */
static void numbers_of_sequences_are_apart(void **state) {
    (void)state;
    struct spec *s = new_spec();
    struct spec_seq q[2] = {{.follows = true, .region = SPEC_ANSWER},
                            {.follows = true, .region = SPEC_ANSWER}};
    int32_t n_at[2][4] = {{0}};
    for (int32_t i = 0; i < 8000; i++) { /* two together lose, one gains */
        int32_t n_seq = 1 + i / 100 % 2;
        struct spec_offer o[2] = {{.q = &q[0], .n_model_max = 3}, {.q = &q[1], .n_model_max = 3}};
        int32_t n = spec_choose(s, o, n_seq);
        struct spec_draft d = {.n = n, .n_asked = n};
        for (int32_t k = 0; k < n; k++) d.source[k] = DRAFT_MODEL, d.grade[k] = (uint8_t)k;
        n_at[n_seq - 1][n]++;
        for (int32_t k = 0; n && k < n_seq; k++) spec_learn(s, &q[k], &d, n, NULL);
        double verify = n_seq == 1 ? 1 + 0.1 * n : 1 + 1.5 * 2 * n;
        spec_time(s, n_seq * (1 + n), n_seq * (1 + n), verify, n, 0);
        for (int32_t k = 0; k < n_seq; k++) q[k].observed = s->observes;
    }
    assert_true(n_at[0][3] > 3500);
    assert_true(n_at[1][0] > 3500);
}

/* The model drafter follows while nothing is known and where it pays; where it loses, one sequence in four. */
static void following_stops_where_drafting_loses(void **state) {
    (void)state;
    for (int pays = 0; pays < 2; pays++) {
        struct spec *s = new_spec();
        int n_follow = 0;
        struct spec_seq off = {.off = true};
        assert_false(spec_begin(s, &off));
        for (int i = 0; i < 64; i++) {
            struct spec_seq q = {.region = SPEC_ANSWER};
            q.follows = spec_begin(s, &q);
            if (!i) assert_true(q.follows);
            n_follow += q.follows;
            for (int k = 0; k < 200; k++) {
                struct spec_offer o = {.q = &q, .n_model_max = 3};
                int32_t n = spec_choose(s, &o, 1);
                struct spec_draft d = {.n = n, .n_asked = n};
                for (int32_t j = 0; j < n; j++) d.source[j] = DRAFT_MODEL, d.grade[j] = (uint8_t)j;
                if (n) spec_learn(s, &q, &d, pays ? n : 0, NULL);
                spec_time(s, 1 + n, 1 + (pays ? n : 0), pays ? 1 + 0.1 * n : 1 + 0.5 * n, n, 0);
                q.observed = s->observes;
            }
        }
        if (pays) assert_int_equal(n_follow, 64);
        else if (n_follow < 16 || n_follow > 20) fail_msg("%d of 64", n_follow);
    }
}

/* ---- drafts from text ---- */

static void begin(struct spec *s, struct spec_seq *q, const int32_t *text, int32_t n,
                  uint64_t salt) {
    assert_int_equal(spec_seq_init(q, text, n, 64), 0);
    q->salt = salt;
    spec_begin(s, q);
}

/* Rates in a block of code are apart from those of the text around it, however the tokenizer cuts the fence. */
static void code_is_a_region_of_its_own(void **state) {
    (void)state;
    static const char *const pieces[] = {"So",  "``",    "`c\n", "int",      "`",
                                         " x;", "\n```", "\n",   "Then `a` "};
    static const enum spec_region after[] = {SPEC_ANSWER, SPEC_ANSWER, SPEC_CODE,
                                             SPEC_CODE,   SPEC_CODE,   SPEC_CODE,
                                             SPEC_ANSWER, SPEC_ANSWER, SPEC_ANSWER};
    struct spec *s = new_spec();
    struct spec_seq q = {.region = SPEC_ANSWER};
    struct spec_draft d;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        spec_seq_read(&q, (struct slice){pieces[i], strlen(pieces[i])});
        spec_draft_text(s, &q, NULL, 1, &d);
        assert_int_equal(q.region, after[i]);
        d = (struct spec_draft){.n = 1, .source = {DRAFT_LOOKUP}};
        spec_learn(s, &q, &d, q.region == SPEC_CODE, NULL);
    }
    const struct spec_rate *code = &s->rates.of[DRAFT_LOOKUP][SPEC_CODE][0];
    const struct spec_rate *other = &s->rates.of[DRAFT_LOOKUP][SPEC_ANSWER][0];
    assert_true(code->n > 3 && code->n_hit > 3 && other->n > 4 && other->n_hit == 0.0f);
}

/* Words that stood earlier in the text, or in another text of the same scope, are proposed; not those of another scope. */
static void words_of_texts_are_proposed(void **state) {
    (void)state;
    static const int32_t first[] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    static const int32_t second[] = {40, 41, 42, 43, 5, 6, 7, 8};
    static struct spec s;
    struct spec_seq q;
    struct spec_draft d;
    assert_int_equal(spec_init(&s, 100, false, true, NULL), 0);
    begin(&s, &q, first, 12, 1);
    spec_draft_text(&s, &q, NULL, 7, &d);
    assert_int_equal(d.n, 0); /* it was never seen before */
    spec_seq_fini(&q);
    begin(&s, &q, second, 8, 2);
    spec_draft_text(&s, &q, NULL, 7, &d);
    assert_int_equal(d.n, 0); /* another's text */
    spec_seq_fini(&q);
    begin(&s, &q, second, 8, 1);
    spec_draft_text(&s, &q, NULL, 7, &d);
    assert_true(d.n >= 3);
    for (int32_t i = 0; i < d.n; i++) {
        assert_int_equal(d.tokens[i], 9 + i);
        assert_int_equal(d.source[i], DRAFT_SUFFIX);
    }
    spec_draft_text(&s, &q, NULL, 2, &d);
    assert_int_equal(d.n, 2); /* never more than asked for */
    assert_int_equal(q.n_history, 8);
    spec_seq_fini(&q);
    spec_fini(&s);
    /* without a store, its own text */
    static const int32_t own[] = {5, 6, 7, 8, 9, 10, 50, 51, 5, 6, 7, 8};
    assert_int_equal(spec_init(&s, 100, false, false, NULL), 0);
    begin(&s, &q, own, 12, 1);
    spec_draft_text(&s, &q, NULL, 4, &d);
    assert_int_equal(d.n, 4);
    static const int32_t want[] = {9, 10, 50, 51};
    assert_memory_equal(d.tokens, want, sizeof want);
    assert_int_equal(d.source[0], DRAFT_LOOKUP);
    spec_seq_fini(&q);
    spec_fini(&s);
}

/* Of several drafts the likeliest tokens are verified, as many as pay. */
static void the_likeliest_tokens_of_all_are_chosen(void **state) {
    (void)state;
    struct spec *s = new_spec();
    struct spec_seq q[2] = {{.region = SPEC_ANSWER}, {.region = SPEC_ANSWER}};
    int32_t n_good = 0, n_poor = 0, n_round = 600;
    for (int32_t i = 0; i < n_round; i++) {
        struct spec_offer o[2] = {{.q = &q[0], .text = {.n = 3, .accept = {0.95f, 0.9f, 0.9f}}},
                                  {.q = &q[1], .text = {.n = 3, .accept = {0.2f, 0.2f, 0.2f}}}};
        assert_int_equal(spec_choose(s, o, 2), 0);
        n_good += o[0].n_text == 3;
        n_poor += o[1].n_text > 0;
        int32_t n_row = 2 + o[0].n_text + o[1].n_text;
        spec_time(s, n_row, 2 + o[0].n_text, 1 + 0.25 * (n_row - 2), 0, 0);
    }
    assert_true(n_good > n_round * 9 / 10);
    assert_true(n_poor < n_round / 10);
}

/* ---- an engine that was told the same before ---- */

static bool take(struct engine_job *j, int32_t token, bool is_end,
                 const struct sampler_probs *probs) {
    (void)j, (void)token, (void)is_end, (void)probs;
    return true;
}
static void ended(struct engine_job *j) { (void)j; }

/* An engine that answers with tokens 1, 2, .. 39 and saves what it learned in dir, unless that is NULL; suffix drafts that its
 * first answer was given. learned: contexts of a night, owned; or NULL. */
static int32_t suffix_drafts(const char *dir, struct suffix *learned, int32_t first_of_prompt,
                             uint64_t scope) {
    static const int32_t prompts[2][3] = {{50, 51, 52}, {60, 61, 62}};
    int32_t script[39], n = 0;
    struct engine_params p;
    struct engine *g;
    struct lm *lm;
    struct err e = {0};
    for (int32_t i = 0; i < 39; i++) script[i] = i + 1;
    const struct lm_fake_params fake = {.n_vocab = 70,
                                        .eos = 0,
                                        .n_ctx = 256,
                                        .n_seq = 1,
                                        .delay_us = 1000,
                                        .script = script,
                                        .n_script = 39};
    engine_defaults(&p);
    p.n_ctx = 256;
    p.cache = (struct cache_params){.dir = dir, .disk_bytes = (uint64_t)1 << 30};
    if (lm_open_fake(&lm, &fake, &e) || engine_new_over(&g, lm, NULL, &p, &e))
        fail_msg("%s", e.text);
    if (learned) {
        while (!engine_borrow(g)) usleep(1000);
        engine_draft_from(g, learned);
        engine_give_back(g);
    }
    struct engine_job j = {.p.prompt = prompts[first_of_prompt == 60],
                           .p.n_prompt = 3,
                           .p.max_tokens = 39,
                           .p.scope = scope,
                           .on_token = take,
                           .on_done = ended};
    sampler_defaults(&j.p.sampling);
    j.p.sampling.temperature = 0;
    if (engine_run(g, &j, &e)) fail_msg("%s", e.text);
    assert_int_equal(j.stats.n_generated, 39);
    for (int k = 0; k < DRAFT_N_SLOT; k++) n += j.stats.drafts.n_drafted[DRAFT_SUFFIX][k];
    engine_free(g);
    return n;
}

static void engines_start_warm_from_files(void **state) {
    (void)state;
    assert_int_equal(suffix_drafts(NULL, NULL, 50, 1), 0);
    assert_int_equal(suffix_drafts(scratch, NULL, 50, 1),
                     0); /* the first knows nothing, and leaves a file */
    assert_int_equal(suffix_drafts(NULL, NULL, 60, 1), 0);
    assert_int_equal(suffix_drafts(scratch, NULL, 60, 2), 0); /* another caller's texts */
    assert_true(suffix_drafts(scratch, NULL, 60, 1) > 10);
}

/* What a night learned drafts for every caller, also in an engine that knows no texts. */
static void engines_draft_from_a_night(void **state) {
    (void)state;
    int32_t text[39];
    struct suffix *x;
    assert_int_equal(suffix_new(&x, NULL), 0);
    for (int32_t i = 0; i < 39; i++) text[i] = i + 1;
    for (int32_t n = 2; n <= 39; n++) suffix_learn(x, SUFFIX_ALL, text, n);
    assert_true(suffix_drafts(NULL, x, 60, 3) > 10);
}

/* Of the texts of a scope and those of a night, the longer context is used. */
static void the_longer_context_is_drafted(void **state) {
    (void)state;
    static const int32_t own[] = {5, 6, 7, 8, 20, 21}, night[] = {6, 7, 30, 31},
                         both[] = {4, 5, 6, 7, 8, 30, 31}, asked[] = {9, 5, 6, 7};
    struct spec s;
    struct spec_seq q;
    struct spec_draft d;
    assert_int_equal(spec_init(&s, 100, false, true, NULL), 0);
    assert_int_equal(suffix_new(&s.learned, NULL), 0);
    begin(&s, &q, own, 6, 1);
    spec_seq_fini(&q);
    for (int32_t n = 2; n <= 4; n++) suffix_learn(s.learned, SUFFIX_ALL, night, n);
    begin(&s, &q, asked, 4, 1);
    spec_draft_text(&s, &q, NULL, 1, &d); /* 5 6 7, not 6 7 */
    assert_int_equal(d.tokens[0], 8);
    spec_seq_fini(&q);
    begin(&s, &q, asked, 4, 2);
    spec_draft_text(&s, &q, NULL, 1, &d); /* this scope knows nothing */
    assert_int_equal(d.tokens[0], 30);
    spec_seq_fini(&q);
    for (int32_t n = 2; n <= 7; n++) suffix_learn(s.learned, SUFFIX_ALL, both, n);
    static const int32_t longer[] = {4, 5, 6, 7, 8};
    begin(&s, &q, longer, 5, 1);
    spec_draft_text(&s, &q, NULL, 1, &d); /* 4 5 6 7 8, not 6 7 8 */
    assert_int_equal(d.tokens[0], 30);
    spec_seq_fini(&q);
    spec_fini(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trying_costs_little_where_it_loses),
        cmocka_unit_test(drafts_that_pay_are_found),
        cmocka_unit_test(a_wrong_beginning_is_mended),
        cmocka_unit_test(the_guard_stops_what_loses),
        cmocka_unit_test(the_guard_counts_the_search),
        cmocka_unit_test(the_guard_stops_a_vain_search),
        cmocka_unit_test(numbers_of_sequences_are_apart),
        cmocka_unit_test(following_stops_where_drafting_loses),
        cmocka_unit_test(code_is_a_region_of_its_own),
        cmocka_unit_test(words_of_texts_are_proposed),
        cmocka_unit_test(the_likeliest_tokens_of_all_are_chosen),
        cmocka_unit_test(engines_start_warm_from_files),
        cmocka_unit_test(engines_draft_from_a_night),
        cmocka_unit_test(the_longer_context_is_drafted),
    };
    mem_guard_arm(true);
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
