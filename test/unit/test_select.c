/* test_select.c: sampling from what a device selects gives the same tokens as sampling from whole rows:
 * chimere-nano behind every processor and filter of the chain, alone and with company, with drafts and
 * without; and rows made to need more than the selection tells. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/lm.h"
#include "engine/ngram_memory.h"
#include "engine/sampler/sampler_impl.h"
#include "engram/build.h"
#include "kernels/cpu/cpu.h"
#include "model/vocab.h"
#include "scratch.h"
#include "text/grammar/grammar.h"
#include "text/grammar/grammar_mask.h"

#ifdef __SANITIZE_ADDRESS__
enum { N_TOKEN = 6, N_PICK = 40 };
#else
enum { N_TOKEN = 32, N_PICK = 400 };
#endif

static struct dev *dev;
static struct model *model;
static struct tok *tok;
static struct grammar *grammar;
static struct grammar_vocab *vocab;
static struct grammar_matcher *matcher;
static struct engram_table *table;
static int32_t *prompt;
static size_t n_prompt;

static const char text[] =
    "The cat sat on the mat. The dog sat on the rug. The cat sat on the mat. "
    "{\"name\": \"Ada\", \"age\": 36}\n{\"name\": \"Alan\", \"age\": 41}\n";
static const char schema[] = "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},"
                             "\"age\":{\"type\":\"integer\"}},\"required\":[\"name\",\"age\"]}";

static int open_nano(void **state) {
    struct err e = {0};
    struct engram_builder *b;
    char path[128];
    uint32_t id;
    if (scratch_make(state)) return -1;
    snprintf(path, sizeof path, "%s/text.engram", scratch);
    if (cpu_open(&dev, 2, CPU_ISA_BEST, &e) || model_open(&model, TEST_NANO, dev, true, &e) ||
        vocab_load(&tok, model->gguf, &e) ||
        grammar_from_schema(&grammar, schema, sizeof schema - 1, NULL, &e) ||
        grammar_vocab_from_tok(&vocab, tok, NULL, &e) ||
        grammar_matcher_new(&matcher, grammar, vocab, 0, &e) ||
        tok_encode(tok, text, sizeof text - 1, false, false, &prompt, &n_prompt, &e))
        fail_msg("%s", e.text);
    const struct engram_build_params p = {.tok_hash = 1, .n_vocab = model->hp.n_vocab};
    if (engram_builder_new(&b, path, &p, &e) ||
        engram_builder_source(b, (struct slice){"text", 4}, 0, &id, &e) ||
        engram_builder_doc(b, prompt, n_prompt, id, 0, ENGRAM_UNIT, &e) ||
        engram_builder_finish(b, &e) || engram_table_open(&table, path, 1, model->hp.n_vocab, &e))
        fail_msg("%s", e.text);
    return 0;
}

static int close_nano(void **state) {
    engram_table_close(table);
    grammar_matcher_free(matcher);
    grammar_vocab_free(vocab);
    grammar_free(grammar);
    mem_free(prompt);
    tok_free(tok);
    model_close(model);
    dev->ops->close(dev);
    return scratch_drop(state);
}

/* ---- through the engine ---- */

static const struct logit_bias bias[] = {{300, 4}, {301, -INFINITY}, {17, 9}};
static const int32_t think_end[] = {12, 13};

/* Each changes the neutral chain; needs_whole: the selection cannot be enough. */
static const struct chain {
    const char *name;
    struct sampler_params p;
    bool mixes, needs_whole;
} chains[] = {
    {"greedy", {.temperature = 0}, false, false},
    {"top-k", {.temperature = 1.5f, .top_k = 40}, false, false},
    {"top-k, top-p, min-p", {.temperature = 1, .top_k = 50, .top_p = .9f, .min_p = .02f}, 0, 0},
    {"penalties",
     {.temperature = 1,
      .top_k = 20,
      .repeat_penalty = 1.3f,
      .frequency_penalty = .4f,
      .presence_penalty = .3f,
      .penalty_last_n = -1},
     false,
     false},
    {"dry", {.temperature = .5f, .top_k = 20, .dry_multiplier = .8f, .dry_last_n = -1}, 0, 0},
    {"bias and a late end",
     {.temperature = 1, .top_k = 20, .bias = bias, .n_bias = 3, .min_tokens = 9},
     false,
     false},
    {"grammar", {.temperature = 1.5f, .top_k = 40, .grammar = (void *)1}, false, false},
    {"greedy grammar", {.temperature = 0, .grammar = (void *)1, .repeat_penalty = 1.2f}, 0, 0},
    {"probabilities", {.temperature = 1, .top_k = 20, .n_probs = 5}, false, false},
    {"grammar and probabilities",
     {.temperature = 1.5f, .top_k = 40, .n_probs = 3, .grammar = (void *)1},
     false,
     true}, /* of the 1,024 likeliest of all tokens a grammar may leave fewer than 40 */
    {"thinking budget",
     {.temperature = 1,
      .top_k = 20,
      .think_budget = 5,
      .in_think = true,
      .think_end = think_end,
      .n_think_end = 2},
     false,
     false},
    {"typical, xtc",
     {.temperature = 1,
      .top_k = 60,
      .typical_p = .8f,
      .xtc_probability = .5f,
      .xtc_threshold = .05f},
     false,
     false},
    {"mixture", {.temperature = .3f, .top_k = 20}, true, false},
    {"mixture under a grammar",
     {.temperature = .3f, .top_k = 20, .grammar = (void *)1},
     true,
     false},
    {"mixture and bias", {.temperature = .3f, .top_k = 20, .bias = bias, .n_bias = 1}, true, true},
    {"no top-k", {.temperature = 1, .top_p = .9f}, false, true},
    {"mirostat", {.temperature = 1, .mirostat = 2}, false, true},
    {"top-n-sigma", {.temperature = 1, .top_k = 20, .top_n_sigma = 1.5f}, false, true},
};
enum { N_CHAIN = sizeof chains / sizeof *chains };

static struct sampler_params params_of(const struct chain *c, uint64_t seed) {
    struct sampler_params p = c->p, d;
    sampler_defaults(&d);
    p.seed = seed;
    if (p.top_p == 0) p.top_p = 1;
    if (p.typical_p == 0) p.typical_p = 1;
    if (p.repeat_penalty == 0) p.repeat_penalty = 1;
    if (!p.think_end) p.think_budget = -1;
    if (p.grammar) p.grammar = matcher;
    p.dynatemp_exponent = 1;
    p.penalty_last_n = p.penalty_last_n ? p.penalty_last_n : d.penalty_last_n;
    p.mirostat_tau = d.mirostat_tau;
    p.mirostat_eta = d.mirostat_eta;
    p.dry_base = d.dry_base;
    p.dry_allowed_length = d.dry_allowed_length;
    p.min_keep = 1;
    p.think = d.think;
    return p;
}

struct said {
    int32_t tokens[N_TOKEN], n;
    struct sampler_probs probs[N_TOKEN];
};

static bool hear(struct engine_job *j, int32_t token, bool is_end,
                 const struct sampler_probs *probs) {
    struct said *t = j->ud;
    (void)is_end;
    if (probs) t->probs[t->n] = *probs;
    t->tokens[t->n++] = token;
    return true;
}
static void ended(struct engine_job *j) { (void)j; }

static void say(struct engine *g, const struct chain *c, struct said *out) {
    struct err e = {0};
    const struct engram_use use = {.tables = {table}, .n_table = 1, .alpha = 1};
    struct engine_job j = {.p.prompt = prompt,
                           .p.n_prompt =
                               (int32_t)n_prompt - 12, /* the table knows how it goes on */
                           .p.max_tokens = N_TOKEN,
                           .p.sampling = params_of(c, 7),
                           .p.engram = c->mixes ? &use : NULL,
                           .p.no_cache = true,
                           .on_token = hear,
                           .on_done = ended,
                           .ud = out};
    *out = (struct said){.n = 0};
    if (engine_run(g, &j, &e)) fail_msg("%s: %s", c->name, e.text);
}

static void same_probs(const struct chain *c, const struct said *a, const struct said *b) {
    for (int i = 0; c->p.n_probs && i < a->n; i++) {
        const struct sampler_probs *x = &a->probs[i], *y = &b->probs[i];
        assert_int_equal(x->n, y->n);
        assert_memory_equal(x->ids, y->ids, (size_t)x->n * sizeof *x->ids);
        assert_true(fabsf(x->chosen - y->chosen) < 1e-5f && fabsf(x->entropy - y->entropy) < 1e-4f);
        for (int k = 0; k < x->n; k++) assert_true(fabsf(x->logprobs[k] - y->logprobs[k]) < 1e-5f);
    }
}

/* The totals are copied after the step in which the job ended. */
static struct engine_totals totals_after(struct engine *g, int n_job) {
    struct engine_totals t;
    const struct timespec ms = {.tv_nsec = 1000000};
    engine_totals(g, &t);
    while (t.n_job < n_job) {
        nanosleep(&ms, NULL);
        engine_totals(g, &t);
    }
    return t;
}

static void the_selection_gives_the_same_tokens(void **state) {
    (void)state;
    struct err e = {0};
    for (int speculate = 0; speculate < 2; speculate++) {
        struct engine *g[2];
        struct engine_params p;
        engine_defaults(&p);
        p.n_ctx = 512;
        p.deterministic = true;
        p.speculate = speculate;
        for (int k = 0; k < 2; k++) {
            p.select = k;
            if (engine_new(&g[k], model, tok, &p, &e)) fail_msg("%s", e.text);
        }
        struct engine_totals before = {0}, after;
        for (int i = 0; i < N_CHAIN; i++, before = after) {
            const struct chain *c = &chains[i];
            struct said whole, few;
            say(g[0], c, &whole);
            say(g[1], c, &few);
            after = totals_after(g[1], i + 1);
            if (whole.n != few.n || memcmp(whole.tokens, few.tokens, sizeof whole.tokens))
                fail_msg("%s, drafts %d: the texts differ", c->name, speculate);
            same_probs(c, &whole, &few);
            int64_t n_whole = after.n_row_whole - before.n_row_whole;
            bool drafts = speculate && c->p.grammar; /* no mask is known behind a draft */
            if (!c->needs_whole && n_whole && !drafts)
                fail_msg("%s, drafts %d: %d rows crossed", c->name, speculate, (int)n_whole);
            assert_true(after.n_row > before.n_row);
            if (c->needs_whole && !n_whole) fail_msg("%s: the selection was enough", c->name);
        }
        if (speculate) assert_true(before.n_accepted > 0);
        engine_free(g[0]);
        engine_free(g[1]);
    }
}

/* ---- hard rows ---- */

/* The token that both ways pick from one row, of two samplers alike; how the few went to *way. */
static int32_t pick_both(struct sampler *a, struct sampler *b, struct dev *d, const float *row,
                         int32_t n, int32_t *way) {
    static int32_t ids[SELECT_MAX_IDS];
    static float id_logits[SELECT_MAX_IDS];
    static struct select_row r;
    struct sampler_need need;
    sampler_needs(b, NULL, 0, ids, &need);
    int32_t at[2] = {0, need.n_id};
    const uint64_t *mask = need.mask;
    const struct select_args args = {.n_row = 1,
                                     .n_vocab = n,
                                     .logits = row,
                                     .masks = &mask,
                                     .ids = ids,
                                     .id_at = at,
                                     .rows = &r,
                                     .id_logits = id_logits};
    d->ops->select(d, &args);
    const struct sampler_few few = {&r, mask != NULL, ids, id_logits, need.n_id};
    int32_t x = sampler_pick(a, row, NULL);
    *way = need.whole ? SAMPLER_WHOLE : sampler_pick_few(b, &few, NULL);
    int32_t y = *way == SAMPLER_WHOLE ? sampler_pick(b, row, NULL) : *way;
    assert_int_equal(x, y);
    if (x >= 0) {
        sampler_accept(a, x);
        sampler_accept(b, x);
    }
    return x;
}

static void hard_rows_are_left_to_the_whole(void **state) {
    (void)state;
    enum { N = 6000 };
    struct err e = {0};
    struct rng rng;
    static float row[N];
    int n_few = 0, n_whole = 0;
    int32_t way;
    rng_seed(&rng, 3);
    for (int k = 0; k < N_PICK; k++) {
        struct sampler *s[2];
        struct logit_bias strong[1500];
        struct sampler_params p;
        sampler_defaults(&p);
        p.seed = (uint64_t)k;
        p.temperature = k % 3 ? 1 : 0;
        p.top_k = k % 5 == 0 ? 0 : 1 << rng_below(&rng, 11);
        p.top_p = 1;
        p.repeat_penalty = k % 2 ? 5 : 1;
        p.penalty_last_n = -1;
        p.n_bias = rng_below(&rng, 4) ? rng_below(&rng, 1500) : 0; /* bans most of the candidates */
        p.bias = strong;
        for (size_t i = 0; i < p.n_bias; i++)
            strong[i] = (struct logit_bias){(int32_t)i, i % 7 ? -INFINITY : -20};
        for (int i = 0; i < N; i++)
            row[i] = (float)((k % 4 + .01) * rng_normal(&rng)) + (i < 1300 ? 10 : 0);
        if (k % 11 == 0) /* rows of few values, all equal at times */
            for (int i = 0; i < N; i++) row[i] = (float)(int)(row[i] * (float)(k % 2));
        if (k % 13 == 1) row[k % N] = NAN;
        for (int i = 0; i < 2; i++)
            if (sampler_new(&s[i], &p, N, NULL, &e)) fail_msg("%s", e.text);
        int32_t history[200];
        for (int i = 0; i < 200; i++) history[i] = (int32_t)rng_below(&rng, 1400);
        for (int i = 0; i < 2; i++) assert_int_equal(sampler_prime(s[i], history, 200, &e), 0);
        for (int i = 0; i < 4; i++) {
            int32_t got = pick_both(s[0], s[1], dev, row, N, &way);
            if (k % 13 == 1) assert_int_equal(got, CHIMERE_ENUMERIC);
            n_whole += way == SAMPLER_WHOLE;
            n_few += way >= 0;
        }
        sampler_free(s[0]);
        sampler_free(s[1]);
    }
    assert_true(n_few > N_PICK / 2 && n_whole > N_PICK / 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_selection_gives_the_same_tokens),
        cmocka_unit_test(hard_rows_are_left_to_the_whole),
    };
    mem_guard_arm(true);
    return cmocka_run_group_tests(tests, open_nano, close_nano);
}
