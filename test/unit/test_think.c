/* Certainty, openers and the control of thinking: numbers worked out by hand, a vocabulary of forty pieces. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/lm.h"
#include "engine/sampler/sampler.h"
#include "engine/think.h"
#include "odo/mode.h"
#include "serve/fields/fields.h"

/* ---- certainty ---- */

static float certainty_of(const float *row, int32_t n) {
    float max = row[0];
    for (int32_t i = 1; i < n; i++) max = row[i] > max ? row[i] : max;
    struct think_look l;
    think_look(row, n, max, &l);
    return l.certainty;
}

static void certainty_is_what_the_paper_says(void **state) {
    (void)state;
    /* even: p = 1/4, H = ln 4 = ln V: 0.625 / 4 */
    const float even[4] = {2, 2, 2, 2};
    assert_float_equal(certainty_of(even, 4), 0.15625, 1e-6);
    /* 3 : 1 : p = 3/4, H = ln 4 - 3/4 ln 3 = 0.562335, ln V = 0.693147:
     * 0.625 * 0.75 + 0.375 * (1 - 0.811278) = 0.539521 */
    const float three[2] = {1.0986123f, 0};
    assert_float_equal(certainty_of(three, 2), 0.539521, 1e-5);
    /* one certain among banned ones */
    const float one[5] = {-INFINITY, 7, -INFINITY, -INFINITY, -INFINITY};
    assert_float_equal(certainty_of(one, 5), 1, 1e-6);
    /* 1/2, 1/4, 1/8, 1/8 : H = 7/4 ln 2, ln V = 2 ln 2 : 0.3125 + 0.375 / 8 = 0.359375 */
    const float halves[4] = {-0.69314718f, -1.38629436f, -2.07944154f, -2.07944154f};
    assert_float_equal(certainty_of(halves, 4), 0.359375, 1e-6);
}

static void a_wide_row_loses_nothing(void **state) {
    (void)state;
    enum { N = 100003 };
    static float row[N];
    double sum = 0, weighted = 0;
    uint32_t x = 1;
    for (int i = 0; i < N; i++) {
        x = x * 1664525u + 1013904223u;
        row[i] = (float)(x >> 8) / (float)(1 << 24) * 40 - 20;
    }
    row[77] = 21;
    for (int i = 0; i < N; i++) {
        double d = (double)row[i] - 21, p = exp(d);
        sum += p;
        weighted += p * d;
    }
    struct think_look l;
    think_look(row, N, 21, &l);
    assert_float_equal(l.best, 1 / sum, 1e-5 / sum);
    assert_float_equal(l.entropy, log(sum) - weighted / sum, 1e-4);
}

/* ---- a vocabulary ---- */

#define B "\xC4\x8A" /* the byte-level spelling of a newline, and of a space */
#define S "\xC4\xA0"
enum {
    T_A,
    T_STEP,
    T_STOP,
    T_LINE,
    T_WAIT,
    T_WAIT_S,
    T_MAIS,
    T_BUTTER,
    T_OPEN,
    T_CLOSE,
    T_WORD,
    T_COMMA,
    T_POINT,
    T_DIGIT,
    T_ATT,
    T_ENDS,
    T_SEMI,
    T_EOS
};
static const char *const pieces[] = {
    [T_A] = "a",          [T_STEP] = S "b",       [T_STOP] = ".",      [T_LINE] = B,
    [T_WAIT] = "Wait",    [T_WAIT_S] = S "Wait,", [T_MAIS] = S "Mais", [T_BUTTER] = S "Butter",
    [T_OPEN] = "<think>", [T_CLOSE] = "</think>", [T_WORD] = "word",   [T_COMMA] = ",",
    [T_POINT] = "!\"",    [T_DIGIT] = "5",        [T_ATT] = "Atte",    [T_ENDS] = "nds",
    [T_SEMI] = ";",       [T_EOS] = "<eos>"};
enum { N_PIECE = sizeof pieces / sizeof *pieces, VOCAB = N_PIECE };

static struct tok *vocabulary(void) {
    struct slice s[N_PIECE];
    uint8_t kinds[N_PIECE];
    for (int i = 0; i < N_PIECE; i++) {
        s[i] = (struct slice){pieces[i], strlen(pieces[i])};
        kinds[i] = i == T_OPEN || i == T_CLOSE ? TOK_USER_DEFINED
                   : i == T_EOS                ? TOK_CONTROL
                                               : TOK_NORMAL;
    }
    const struct tok_spec spec = {.model = TOK_BPE,
                                  .pre = "qwen35",
                                  .n_vocab = N_PIECE,
                                  .pieces = s,
                                  .kinds = kinds,
                                  .bos = -1,
                                  .eos = T_EOS,
                                  .unk = -1,
                                  .sep = -1,
                                  .pad = -1,
                                  .cls = -1,
                                  .mask = -1,
                                  .eot = -1,
                                  .add_bos = 0,
                                  .add_eos = 0};
    struct tok *t;
    struct err e = {0};
    if (tok_new(&t, &spec, &e)) fail_msg("%s", e.text);
    return t;
}

static void classes_come_from_the_pieces(void **state) {
    (void)state;
    struct tok *t = vocabulary();
    struct think_vocab *v;
    struct err e = {0};
    assert_int_equal(think_vocab_new(&v, t, &e), 0);
    assert_int_equal(v->classes[T_WAIT], THINK_OPENS_EN);
    assert_int_equal(v->classes[T_WAIT_S], THINK_OPENS_EN | THINK_BLANK);
    assert_int_equal(v->classes[T_MAIS], THINK_OPENS_FR | THINK_BLANK);
    assert_int_equal(v->classes[T_BUTTER], THINK_BLANK);
    assert_int_equal(v->classes[T_STOP], THINK_ENDS_STEP);
    assert_int_equal(v->classes[T_POINT], THINK_ENDS_STEP);
    assert_int_equal(v->classes[T_LINE], THINK_ENDS_STEP | THINK_ENDS_LINE | THINK_BLANK);
    assert_int_equal(v->classes[T_SEMI], THINK_ENDS_STEP); /* "3 + 4 = 7; 7 - 2 = 5" */
    assert_int_equal(v->classes[T_COMMA], 0);
    assert_int_equal(v->classes[T_OPEN], 0);
    assert_int_equal(think_n_openers(v, THINK_EN), 2);
    think_vocab_free(v);
    tok_free(t);
}

/* ---- control ---- */

static struct tok *g_tok;
static struct think_vocab *g_vocab;
static const int32_t checkpoint_open[] = {T_OPEN}, checkpoint_close[] = {T_CLOSE};

static void thinking(struct sampler_params *p) {
    sampler_defaults(p);
    p->temperature = 0;
    p->in_think = true;
    p->think_start = checkpoint_open;
    p->think_end = checkpoint_close;
    p->n_think_start = p->n_think_end = 1;
    p->think.vocab = g_vocab;
    p->think.window = 4;
    p->think.min_tokens = 2;
}

static struct sampler *make(const struct sampler_params *p) {
    struct sampler *s;
    struct err e = {0};
    if (sampler_new(&s, p, VOCAB, g_tok, &e)) fail_msg("%s", e.text);
    return s;
}

/* Picks and takes a token of a row where `want` is likeliest, by a wide margin or hardly. */
static int32_t next(struct sampler *s, int32_t want, bool sure) {
    float row[VOCAB] = {0};
    row[want] = sure ? 30 : 0.01f;
    int32_t t = sampler_pick(s, row, NULL);
    sampler_accept(s, t);
    return t;
}

static void sure_thinking_stops_at_a_steps_end(void **state) {
    (void)state;
    struct sampler_params p;
    struct think_stats st;
    thinking(&p);
    p.think.stop = 0.9f;
    struct sampler *s = make(&p);
    static const int32_t go[] = {T_A, T_WORD, T_WORD, T_STOP};
    for (int i = 0; i < 4; i++) assert_int_equal(next(s, go[i], true), go[i]);
    assert_int_equal(next(s, T_DIGIT, true), T_DIGIT); /* "word.5": the step goes on */
    assert_int_equal(next(s, T_STOP, true), T_STOP);
    assert_int_equal(next(s, T_STEP, true),
                     T_LINE); /* " b" would follow: closed, on a line of its own */
    assert_int_equal(next(s, T_STEP, true), T_CLOSE);
    assert_int_equal(next(s, T_STEP, true), T_STEP); /* the answer is nobody's business */
    assert_int_equal(next(s, T_STOP, true), T_STOP);
    assert_int_equal(next(s, T_STEP, true), T_STEP);
    sampler_think_stats(s, &st);
    assert_int_equal(st.end, THINK_SURE);
    sampler_free(s);

    s = make(&p); /* a calculation is a step too */
    static const int32_t sum[] = {T_DIGIT, T_DIGIT, T_SEMI};
    for (int i = 0; i < 3; i++) assert_int_equal(next(s, sum[i], true), sum[i]);
    assert_int_equal(next(s, T_STEP, true), T_LINE);
    assert_int_equal(next(s, T_STEP, true), T_CLOSE);
    sampler_free(s);

    s = make(&p); /* one doubtful token among three: certainty (2 + 0.04) / 3 */
    assert_int_equal(next(s, T_A, true), T_A);
    assert_int_equal(next(s, T_WORD, false), T_WORD);
    assert_int_equal(next(s, T_LINE, true), T_LINE);
    assert_int_equal(next(s, T_STEP, true), T_STEP);
    assert_int_equal(next(s, T_WORD, true), T_WORD);
    assert_int_equal(next(s, T_LINE, true), T_LINE); /* the doubt has left the window of four */
    assert_int_equal(next(s, T_STEP, true), T_CLOSE);
    sampler_free(s);
}

/* A vocabulary with ".\n" in one token: the block ends as the model would have written it. */
static void a_line_ends_in_one_token_where_there_is_one(void **state) {
    (void)state;
    struct sampler_params p;
    struct think_vocab v = *g_vocab;
    thinking(&p);
    p.think.stop = 0.9f;
    p.think.vocab = &v;
    v.pairs[0].stop = T_STOP;
    v.pairs[0].line = T_ENDS;
    v.n_pair = 1;
    for (int could = 0; could < 2; could++) {
        struct sampler *s = make(&p);
        float row[VOCAB] = {0};
        assert_int_equal(next(s, T_A, true), T_A);
        assert_int_equal(next(s, T_WORD, true), T_WORD);
        row[T_STOP] =
            could ? 12 : 30; /* the pair is 12 nats away, or out of reach as within a number */
        int32_t t = sampler_pick(s, row, NULL);
        assert_int_equal(t, could ? T_ENDS : T_STOP);
        sampler_accept(s, t);
        assert_int_equal(next(s, T_A, true), could ? T_CLOSE : T_A);
        sampler_free(s);
    }
}

static void unsure_ends_are_put_off_so_often(void **state) {
    (void)state;
    struct sampler_params p;
    struct think_stats st;
    thinking(&p);
    p.think.unsure = 0.5f;
    p.think.extend = 1;
    p.think.langs = THINK_EN;
    struct sampler *s = make(&p);
    assert_int_equal(next(s, T_A, false), T_A);
    assert_int_equal(next(s, T_STOP, false), T_STOP);
    assert_int_equal(next(s, T_CLOSE, true), T_LINE); /* its own end, after doubtful tokens */
    assert_int_equal(next(s, T_CLOSE, true), T_WAIT);
    assert_int_equal(next(s, T_CLOSE, true), T_COMMA);
    assert_int_equal(next(s, T_A, false), T_A);
    assert_int_equal(next(s, T_CLOSE, true), T_CLOSE); /* once was the limit */
    assert_int_equal(next(s, T_A, true), T_A);
    sampler_think_stats(s, &st);
    assert_int_equal(st.n_extended, 1);
    assert_int_equal(st.end, THINK_NATURAL);
    sampler_free(s);

    s = make(&p); /* sure: no word is put in */
    assert_int_equal(next(s, T_A, true), T_A);
    assert_int_equal(next(s, T_CLOSE, true), T_CLOSE);
    sampler_free(s);

    p.think_budget = 5; /* no room for three tokens and two of use */
    s = make(&p);
    assert_int_equal(next(s, T_A, false), T_A);
    assert_int_equal(next(s, T_CLOSE, true), T_CLOSE);
    sampler_free(s);
}

static void openers_are_suppressed_where_it_is_sure(void **state) {
    (void)state;
    struct sampler_params p;
    struct think_stats st;
    thinking(&p);
    p.think.suppress = 0.9f;
    struct sampler *s = make(&p);
    assert_int_equal(next(s, T_A, true), T_A);
    assert_int_equal(next(s, T_WAIT, true), T_WAIT); /* in the middle of a step it is a word */
    assert_int_equal(next(s, T_STOP, true), T_STOP);
    assert_int_equal(next(s, T_WAIT_S, true), T_A); /* all others are equal: the lowest id */
    assert_int_equal(next(s, T_LINE, true), T_LINE);
    assert_int_equal(next(s, T_MAIS, true), T_A);
    sampler_think_stats(s, &st);
    assert_int_equal(st.n_suppressed, 2);
    sampler_free(s);

    p.think.langs = THINK_EN;
    s = make(&p);
    assert_int_equal(next(s, T_LINE, true), T_LINE);
    assert_int_equal(next(s, T_MAIS, true), T_MAIS);
    sampler_free(s);

    s = make(&p); /* unsure: let it reflect */
    assert_int_equal(next(s, T_A, false), T_A);
    assert_int_equal(next(s, T_LINE, true), T_LINE);
    assert_int_equal(next(s, T_WAIT, true), T_WAIT);
    sampler_free(s);
}

static void numbers_out_of_range_are_refused_by_name(void **state) {
    (void)state;
    struct sampler_params p;
    struct err e = {0};
    thinking(&p);
    p.think.window = 0;
    assert_int_equal(sampler_check(&p, VOCAB, &e), CHIMERE_EINVAL);
    assert_non_null(strstr(e.text, "think.window"));
    thinking(&p);
    p.think.extend = 99;
    assert_int_equal(sampler_check(&p, VOCAB, &e), CHIMERE_EINVAL);
    assert_non_null(strstr(e.text, "think.extend"));
}

/* ---- how much to think ---- */

static void modes_follow_text_and_probe(void **state) {
    (void)state;
    const struct difficulty low = {.class = DIFFICULTY_LOW, .mode = DIFFICULTY_FAST},
                            medium = {.class = DIFFICULTY_MEDIUM, .mode = DIFFICULTY_QUALITY},
                            high = {.class = DIFFICULTY_HIGH, .mode = DIFFICULTY_ULTRA};
    const struct mode_probe sure = {.mean = 0.01, .n_token = 8},
                            middling = {.mean = 0.6, .n_token = 8},
                            lost = {.mean = 2, .n_token = 8}, none = {.n_token = 0};
    assert_int_equal(mode_choose(&medium, NULL, NULL), DIFFICULTY_QUALITY);
    assert_int_equal(mode_choose(&low, &none, NULL), DIFFICULTY_FAST);
    assert_int_equal(mode_choose(&medium, &sure, NULL), DIFFICULTY_FAST);
    assert_int_equal(mode_choose(&high, &sure, NULL), DIFFICULTY_QUALITY);
    assert_int_equal(mode_choose(&low, &middling, NULL), DIFFICULTY_QUALITY);
    assert_int_equal(mode_choose(&high, &middling, NULL), DIFFICULTY_ULTRA);
    assert_int_equal(mode_choose(&low, &lost, NULL), DIFFICULTY_ULTRA);
    struct request a;
    request_init(&a);
    mode_apply(DIFFICULTY_FAST, &a);
    assert_false(a.think);
    mode_apply(DIFFICULTY_ULTRA, &a);
    assert_true(a.think && a.sampling.think.extend > 0 && a.sampling.think.suppress < 1);
    request_fini(&a);
}

/* ---- as a request says it ---- */

static int read_request(struct request *a, const char *think, enum fields_api api, struct err *e) {
    char text[512];
    snprintf(text, sizeof text,
             api == FIELDS_RESPONSES ? "{\"input\": \"x\", \"think\": %s}"
                                     : "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}],"
                                       " \"max_tokens\": 9, \"think\": %s}",
             think);
    json_t *q = json_loads(text, 0, NULL);
    assert_non_null(q);
    request_init(a);
    struct fields f = {.request = a, .n_probs = -1};
    int rc = fields_read(&f, q, api, e);
    json_decref(q);
    return rc;
}

static void requests_say_it_on_every_api(void **state) {
    (void)state;
    static const enum fields_api apis[] = {FIELDS_CHAT, FIELDS_MESSAGES, FIELDS_RESPONSES};
    for (int i = 0; i < 3; i++) {
        struct request a;
        struct err e = {0};
        struct think_control *c = &a.sampling.think;
        if (read_request(
                &a,
                "{\"window\": 16, \"certainty\": 0.5, \"stop_when_sure\": true,"
                " \"extend\": 3, \"suppress\": 0.8, \"budget_tokens\": 77, \"language\": \"fr\"}",
                apis[i], &e))
            fail_msg("%s", e.text);
        assert_true(a.think);
        assert_int_equal(c->window, 16);
        assert_float_equal(c->stop, 0.5, 1e-6);
        assert_int_equal(c->extend, 3);
        assert_true(c->unsure > 0);
        assert_float_equal(c->suppress, 0.8, 1e-6);
        assert_int_equal(c->langs, THINK_FR);
        assert_int_equal(a.sampling.think_budget, 77);
        request_fini(&a);
        assert_int_equal(read_request(&a, "\"fast\"", apis[i], &e), 0);
        assert_false(a.think);
        request_fini(&a);
        assert_int_equal(read_request(&a, "\"quality\"", apis[i], &e), 0);
        assert_true(a.think && c->stop <= 1 && c->suppress < 1 && c->extend == 0);
        request_fini(&a);
    }
}

static void wrong_requests_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *think, *name;
    } cases[] = {{"3", "think: "},
                 {"\"deep\"", "think: "},
                 {"{\"windows\": 3}", "think.windows: "},
                 {"{\"window\": 0}", "think.window: "},
                 {"{\"window\": 1.5}", "think.window: "},
                 {"{\"certainty\": 1.5}", "think.certainty: "},
                 {"{\"stop_when_sure\": \"yes\"}", "think.stop_when_sure: "},
                 {"{\"extend\": 17}", "think.extend: "},
                 {"{\"unsure\": -0.1}", "think.unsure: "},
                 {"{\"suppress\": []}", "think.suppress: "},
                 {"{\"budget_tokens\": -5}", "think.budget_tokens: "},
                 {"{\"min_tokens\": -1}", "think.min_tokens: "},
                 {"{\"language\": \"de\"}", "think.language: "},
                 {"{\"mode\": \"slow\"}", "think.mode: "}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct request a;
        struct err e = {0};
        assert_int_not_equal(read_request(&a, cases[i].think, FIELDS_CHAT, &e), 0);
        if (strncmp(e.text, cases[i].name, strlen(cases[i].name)) != 0)
            fail_msg("expected %s..., got %s", cases[i].name, e.text);
        request_fini(&a);
    }
}

/* ---- through the engine, with drafts ---- */

struct text {
    int32_t ids[128];
    int n;
};

static bool keep(struct engine_job *j, int32_t token, bool is_end,
                 const struct sampler_probs *probs) {
    struct text *t = j->ud;
    (void)is_end, (void)probs;
    if (t->n < 128) t->ids[t->n++] = token;
    return true;
}
static void done(struct engine_job *j) { (void)j; }

static void answer(struct text *out, const struct sampler_params *p, bool speculate,
                   struct engine_stats *st) {
    /* a step over and over, so that prompt lookup drafts across the place where thinking is closed */
    static const int32_t script[] = {
        T_A,    T_WORD, T_STOP, T_STEP, T_WORD,  T_STOP, T_STEP, T_WORD, T_STOP, T_STEP, T_WORD,
        T_STOP, T_STEP, T_WORD, T_LINE, T_CLOSE, T_A,    T_WORD, T_STOP, T_STEP, T_WORD, T_STOP};
    static const int32_t prompt[] = {T_STEP, T_WORD, T_STOP, T_STEP,
                                     T_WORD, T_STOP, T_STEP, T_WORD};
    struct lm *lm;
    struct engine *g;
    struct err e = {0};
    const struct lm_fake_params f = {.n_vocab = VOCAB,
                                     .eos = T_EOS,
                                     .n_ctx = 512,
                                     .n_seq = 1,
                                     .script = script,
                                     .n_script = sizeof script / sizeof *script};
    struct engine_params ep;
    engine_defaults(&ep);
    ep.n_seq = 1;
    ep.n_ctx = 512;
    ep.speculate = speculate;
    ep.deterministic = true;
    assert_int_equal(lm_open_fake(&lm, &f, &e), 0);
    assert_int_equal(engine_new_over(&g, lm, g_tok, &ep, &e), 0);
    *out = (struct text){.n = 0};
    struct engine_job j = {.p.prompt = prompt,
                           .p.n_prompt = 8,
                           .p.max_tokens = 60,
                           .p.sampling = *p,
                           .on_token = keep,
                           .on_done = done,
                           .ud = out};
    assert_int_equal(engine_run(g, &j, &e), 0);
    *st = j.stats;
    engine_free(g);
}

static void drafts_change_nothing(void **state) {
    (void)state;
    struct sampler_params p;
    struct text plain, drafted;
    struct engine_stats a, b;
    for (int stop = 0; stop < 2; stop++) {
        thinking(&p);
        p.think.stop = stop ? 0.5f : 2;
        p.think.min_tokens = 5;
        p.think.suppress = 0.5f;
        p.think_budget = stop ? -1 : 7;
        answer(&plain, &p, false, &a);
        answer(&drafted, &p, true, &b);
        assert_true(b.n_drafted > 0);
        assert_int_equal(plain.n, drafted.n);
        assert_memory_equal(plain.ids, drafted.ids, (size_t)plain.n * sizeof *plain.ids);
        assert_int_equal(a.think.end, stop ? THINK_SURE : THINK_BUDGET);
        assert_int_equal(b.think.end, a.think.end);
    }
}

static int set_up(void **state) {
    struct err e = {0};
    (void)state;
    g_tok = vocabulary();
    if (think_vocab_new(&g_vocab, g_tok, &e)) return -1;
    /* forty pieces spell no words: what a whole vocabulary would give */
    g_vocab->newline = (struct think_seq){{T_LINE}, 1};
    g_vocab->wait[0] = (struct think_seq){{T_WAIT, T_COMMA}, 2};
    return 0;
}
static int tear_down(void **state) {
    (void)state;
    think_vocab_free(g_vocab);
    tok_free(g_tok);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(certainty_is_what_the_paper_says),
        cmocka_unit_test(a_wide_row_loses_nothing),
        cmocka_unit_test(classes_come_from_the_pieces),
        cmocka_unit_test(sure_thinking_stops_at_a_steps_end),
        cmocka_unit_test(a_line_ends_in_one_token_where_there_is_one),
        cmocka_unit_test(unsure_ends_are_put_off_so_often),
        cmocka_unit_test(openers_are_suppressed_where_it_is_sure),
        cmocka_unit_test(numbers_out_of_range_are_refused_by_name),
        cmocka_unit_test(modes_follow_text_and_probe),
        cmocka_unit_test(requests_say_it_on_every_api),
        cmocka_unit_test(wrong_requests_are_refused_by_name),
        cmocka_unit_test(drafts_change_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
