/* test_engram_mix.c: the mixture against its definition, bans and thinking, several tables, drafts that change
 * nothing, tables that are replaced under a running engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/ngram_field.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/lm.h"
#include "engine/ngram_memory.h"
#include "engine/draft/spec.h"
#include "engram/build.h"
#include "scratch.h"

enum { VOCAB = 40, EOS = 0 };
static const uint64_t tokenizer = 77;

/* A table of one document of n tokens at NAME.engram in the scratch folder. */
static void write_table(const char *name, const int32_t *text, size_t n, const float *weights) {
    struct err e = {0};
    struct engram_builder *b;
    char path[128];
    uint32_t id;
    snprintf(path, sizeof path, "%s/%s.engram", scratch, name);
    const struct engram_build_params p = {.tok_hash = tokenizer,
                                          .n_vocab = VOCAB,
                                          .weights = weights,
                                          .n_weight = weights ? ENGRAM_N_FEATURE : 0};
    if (engram_builder_new(&b, path, &p, &e) ||
        engram_builder_source(b, (struct slice){name, strlen(name)}, 0, &id, &e) ||
        engram_builder_doc(b, text, n, id, 0, ENGRAM_UNIT, &e) || engram_builder_finish(b, &e))
        fail_msg("%s", e.text);
}

static struct engram_table *open_table(const char *name) {
    struct engram_table *t;
    struct err e = {0};
    char path[128];
    snprintf(path, sizeof path, "%s/%s.engram", scratch, name);
    if (engram_table_open(&t, path, tokenizer, VOCAB, &e)) fail_msg("%s", e.text);
    return t;
}

/* A constant w of one half, whatever the evidence. */
static const float half[ENGRAM_N_FEATURE] = {0};

static struct engram_mixer *new_mixer(const struct engram_use *use, const int32_t *prompt, int n) {
    struct engram_mixer *m;
    struct err e = {0};
    if (engram_mixer_new(&m, use, VOCAB, prompt, n, &e)) fail_msg("%s", e.text);
    return m;
}

static void softmax(const float *x, double *p) {
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < VOCAB; i++) max = x[i] > max ? x[i] : max;
    for (int i = 0; i < VOCAB; i++) sum += p[i] = exp(x[i] - max);
    for (int i = 0; i < VOCAB; i++) p[i] /= sum;
}

static void fill_logits(float *x, uint64_t seed) {
    struct rng r;
    rng_seed(&r, seed);
    for (int i = 0; i < VOCAB; i++) x[i] = (float)(3 * rng_normal(&r));
}

/* 1 2 3 -> 4 twice and 5 once; 2 3 -> 4 twice, 5 once, 6 once. */
static const int32_t text[] = {1, 2, 3, 4, 9, 1, 2, 3, 4, 9, 1, 2, 3, 5, 9, 8, 2, 3, 6, 9};
enum { N_TEXT = sizeof text / sizeof *text };

static void mixture_is_what_it_says(void **state) {
    (void)state;
    write_table("half", text, N_TEXT, half);
    struct engram_table *t = open_table("half");
    const int32_t prompt[] = {7, 1, 2, 3};
    /* order 3: 3 times, 2 continuations, so 3/5 of the mass; order 2: 4 of 7 of the rest; left 2/5 * 3/7 */
    double memory[VOCAB] = {0}, left = 2 / 5. * 3 / 7;
    memory[4] = 3 / 5. * 2 / 3 + 2 / 5. * 4 / 7 * 2 / 4;
    memory[5] = 3 / 5. * 1 / 3 + 2 / 5. * 4 / 7 * 1 / 4;
    memory[6] = 2 / 5. * 4 / 7 * 1 / 4;
    for (uint64_t seed = 1; seed < 20; seed++) {
        float alpha = seed % 3 == 0 ? 1 : seed % 3 == 1 ? 0.25f : 4;
        const struct engram_use use = {.tables = {t}, .n_table = 1, .alpha = alpha};
        struct engram_mixer *m = new_mixer(&use, prompt, 4);
        float x[VOCAB];
        double before[VOCAB], after[VOCAB];
        fill_logits(x, seed);
        x[11] = -INFINITY; /* banned: stays so */
        if (seed % 2) x[5] = -INFINITY;
        softmax(x, before);
        assert_true(engram_mixer_wants(m));
        engram_mixer_apply(m, x);
        softmax(x, after);
        assert_true(after[11] == 0);
        double odds = alpha, sum = 0, want[VOCAB];
        for (int i = 0; i < VOCAB; i++) {
            want[i] = before[i] + odds * (memory[i] + left * before[i]);
            if (before[i] == 0) want[i] = 0;
            sum += want[i];
        }
        for (int i = 0; i < VOCAB; i++)
            if (fabs(after[i] - want[i] / sum) > 2e-6)
                fail_msg("seed %d token %d: %g, expected %g", (int)seed, i, after[i],
                         want[i] / sum);
        engram_mixer_free(m);
    }
    engram_table_close(t);
}

static void nothing_known_changes_nothing(void **state) {
    (void)state;
    write_table("half", text, N_TEXT, half);
    struct engram_table *t = open_table("half");
    const int32_t unknown[] = {20, 21, 22}, known[] = {1, 2, 3};
    struct engram_use use = {.tables = {t}, .n_table = 1, .alpha = 1};
    struct engram_mixer *m = new_mixer(&use, unknown, 3);
    assert_false(engram_mixer_wants(m));
    for (int i = 0; i < 3; i++) engram_mixer_push(m, known[i]);
    assert_true(engram_mixer_wants(m));
    engram_mixer_free(m);
    use.alpha = 0;
    m = new_mixer(&use, known, 3);
    assert_false(engram_mixer_wants(m));
    engram_mixer_free(m);
    engram_table_close(t);
}

/* Two tables of the same evidence weigh as one of twice the odds; a surer one outweighs a doubtful one. */
static void tables_add_up_by_their_odds(void **state) {
    (void)state;
    static const int32_t other[] = {1, 2, 3, 7, 9};
    float sure[ENGRAM_N_FEATURE] = {2}, unsure[ENGRAM_N_FEATURE] = {-2}, x[VOCAB], y[VOCAB];
    const int32_t prompt[] = {1, 2, 3};
    write_table("half", text, N_TEXT, half);
    write_table("sure", other, 5, sure);
    write_table("unsure", other, 5, unsure);
    struct engram_table *t = open_table("half"), *u = open_table("half");
    const struct engram_use two = {.tables = {t, u}, .n_table = 2, .alpha = 1},
                            one = {.tables = {t}, .n_table = 1, .alpha = 2};
    struct engram_mixer *a = new_mixer(&two, prompt, 3), *b = new_mixer(&one, prompt, 3);
    fill_logits(x, 3);
    memcpy(y, x, sizeof x);
    engram_mixer_apply(a, x);
    engram_mixer_apply(b, y);
    for (int i = 0; i < VOCAB; i++) assert_true(fabsf(x[i] - y[i]) < 1e-5f);
    engram_mixer_free(a);
    engram_mixer_free(b);
    struct engram_table *s = open_table("sure"), *d = open_table("unsure");
    const struct engram_use pair = {.tables = {t, s}, .n_table = 2, .alpha = 1},
                            pair2 = {.tables = {t, d}, .n_table = 2, .alpha = 1};
    double p[VOCAB], q[VOCAB];
    a = new_mixer(&pair, prompt, 3);
    b = new_mixer(&pair2, prompt, 3);
    fill_logits(x, 4);
    memcpy(y, x, sizeof x);
    engram_mixer_apply(a, x);
    engram_mixer_apply(b, y);
    softmax(x, p);
    softmax(y, q);
    assert_true(p[7] > 2 * q[7]);
    assert_true(p[4] < q[4]);
    engram_mixer_free(a);
    engram_mixer_free(b);
    engram_table_close(t);
    engram_table_close(u);
    engram_table_close(s);
    engram_table_close(d);
}

/* The scan's fast exponential against the library's, banned entries and odd lengths included. */
static void rows_are_scanned_right(void **state) {
    (void)state;
    enum {
        LONG = 248320
    }; /* where unlikely tokens are sampled: close enough for what it decides */
    float *wide = mem_alloc(LONG * sizeof *wide);
    for (int spread = 1; spread <= 4; spread++) {
        struct engram_row row;
        struct rng r;
        double sum = 0, entropy = 0;
        rng_seed(&r, (uint64_t)spread);
        for (int i = 0; i < LONG; i++) sum += exp(wide[i] = (float)(spread * rng_normal(&r)));
        for (int i = 0; i < LONG; i++) entropy -= exp(wide[i]) / sum * (wide[i] - log(sum));
        engram_row_scan(wide, LONG, &row);
        assert_true(fabs(row.norm - log(sum)) < 0.02);
        assert_true(fabs(row.entropy - entropy) < 0.1);
    }
    mem_free(wide);
    float x[200];
    for (int n = 1; n <= 200; n += 7) {
        struct rng r;
        rng_seed(&r, (uint64_t)n);
        double sum = 0, entropy = 0, first = -INFINITY, second = -INFINITY;
        for (int i = 0; i < n; i++) {
            x[i] = i % 5 == 3 && i > 5 ? -INFINITY : (float)(8 * rng_normal(&r));
            sum += exp(x[i]);
            if (x[i] > first) second = first, first = x[i];
            else if (x[i] > second) second = x[i];
        }
        for (int i = 0; i < n; i++)
            if (x[i] > -INFINITY) entropy -= exp(x[i]) / sum * (x[i] - log(sum));
        struct engram_row row;
        engram_row_scan(x, n, &row);
        assert_true(fabs(row.norm - log(sum)) < 1e-5 * (1 + fabs(log(sum))));
        assert_true(fabs(row.entropy - entropy) < 1e-4);
        assert_true(fabs(row.p_first - exp(first) / sum) < 1e-5);
        assert_true(n == 1 || fabs(row.p_second - exp(second) / sum) < 1e-5);
        assert_true(x[row.first] == (float)first);
    }
}

/* ---- in the engine ---- */

struct answer_of {
    int32_t tokens[512], n;
};
static bool collect(struct engine_job *j, int32_t token, bool is_end,
                    const struct sampler_probs *probs) {
    (void)is_end, (void)probs;
    struct answer_of *a = j->ud;
    if (a->n < 512) a->tokens[a->n++] = token;
    return true;
}
static void done(struct engine_job *j) { (void)j; }

static struct engine *new_engine(bool speculate, int n_draft) {
    struct engine_params p;
    struct engine *g = NULL;
    struct lm *lm;
    struct err e = {0};
    engine_defaults(&p);
    p.n_ctx = 4096;
    p.speculate = speculate;
    p.n_draft_max = n_draft;
    p.deterministic = true; /* drafts always, whatever the clock says */
    const struct lm_fake_params fake = {
        .n_vocab = VOCAB, .eos = EOS, .n_eos = 100000, .n_ctx = 4096, .n_seq = 1};
    if (lm_open_fake(&lm, &fake, &e) || engine_new_over(&g, lm, NULL, &p, &e))
        fail_msg("%s", e.text);
    return g;
}

static struct engine_stats answer(struct engine *g, const struct engram_use *use,
                                  const struct sampler_params *sp, int n, struct answer_of *out) {
    static const int32_t prompt[] = {5, 6, 7};
    struct err e = {0};
    out->n = 0;
    struct engine_job j = {.p.prompt = prompt,
                           .p.n_prompt = 3,
                           .p.max_tokens = n,
                           .p.sampling = *sp,
                           .p.engram = use,
                           .on_token = collect,
                           .on_done = done,
                           .ud = out};
    if (engine_run(g, &j, &e)) fail_msg("%s", e.text);
    return j.stats;
}

/* What the fake model says, at temperature 0, as a table: all of its drafts hold. Half of the text is
 * spoilt, so that some do not. */
static void drafts_change_no_text(void **state) {
    (void)state;
    struct sampler_params sp;
    struct answer_of plain, drafted, said;
    sampler_defaults(&sp);
    sp.temperature = 0;
    struct engine *slow = new_engine(false, 3), *quick = new_engine(true, 6);
    answer(slow, NULL, &sp, 300, &said);
    for (int i = 150; i < 300; i += 7) said.tokens[i] = 1 + said.tokens[i] % (VOCAB - 1);
    static const float never[ENGRAM_N_FEATURE] = {-30}; /* the table drafts and mixes nothing in */
    write_table("said", said.tokens, 300, never);
    struct engram_table *t = open_table("said");
    const struct engram_use use = {.tables = {t}, .n_table = 1, .alpha = 1};
    answer(slow, NULL, &sp, 300, &plain);
    struct engine_stats st = answer(quick, &use, &sp, 300, &drafted);
    assert_int_equal(plain.n, drafted.n);
    assert_memory_equal(plain.tokens, drafted.tokens, (size_t)plain.n * sizeof(int32_t));
    assert_true(st.n_accepted > 50);
    /* and with the mixture at work, the same with drafts as without */
    write_table("half", said.tokens, 300, half);
    struct engram_table *u = open_table("half");
    const struct engram_use mix = {.tables = {u}, .n_table = 1, .alpha = 1};
    answer(slow, &mix, &sp, 300, &plain);
    answer(quick, &mix, &sp, 300, &drafted);
    assert_memory_equal(plain.tokens, drafted.tokens, (size_t)plain.n * sizeof(int32_t));
    sp.temperature = 1; /* and sampled, by the same seed */
    sp.seed = 5;
    answer(slow, &mix, &sp, 300, &plain);
    answer(quick, &mix, &sp, 300, &drafted);
    assert_memory_equal(plain.tokens, drafted.tokens, (size_t)plain.n * sizeof(int32_t));
    engine_free(slow);
    engine_free(quick);
    engram_table_close(t);
    engram_table_close(u);
}

/* 10,000 samples with drafts against as many without, of other seeds: the same distribution of the fourth
 * and fifth token (chi-square of two samples, p = 0.0001). */
static void drafts_change_no_distribution(void **state) {
    (void)state;
    enum { N = 10000, AT = 5 };
    static uint32_t count[2][VOCAB * VOCAB];
    struct sampler_params sp;
    struct answer_of a;
    sampler_defaults(&sp);
    sp.temperature = 3; /* the fake model's favourite is then drawn three times of four */
    sp.top_k = 4;
    sp.top_p = 1;
    memset(count, 0, sizeof count);
    struct engine *g[2] = {new_engine(false, 3), new_engine(true, 3)};
    static int32_t said[1200];
    for (int i = 0; i < 1200; i += 8) { /* a table of what it may well say behind the prompt */
        sp.seed = 1000 + (uint64_t)i;
        answer(g[0], NULL, &sp, 5, &a);
        for (int k = 0; k < 8; k++) said[i + k] = k < 3 ? 5 + k : k - 3 < a.n ? a.tokens[k - 3] : 1;
    }
    write_table("half", said, 1200, half);
    struct engram_table *t = open_table("half");
    const struct engram_use use = {.tables = {t}, .n_table = 1, .alpha = 1};
    struct engine_totals totals;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < N; i++) {
            sp.seed = (uint64_t)(k * N + i) * 7919 + 1;
            answer(g[k], &use, &sp, AT, &a);
            count[k][a.n >= AT ? a.tokens[AT - 2] * VOCAB + a.tokens[AT - 1] : 0]++;
        }
    engine_totals(g[1], &totals);
    assert_true(totals.n_drafted > N && totals.n_accepted < totals.n_drafted - N / 4);
    double chi = 0;
    uint32_t rest[2] = {0};
    int df = 0;
    for (int i = 0; i < VOCAB * VOCAB; i++) {
        double x = count[0][i], y = count[1][i];
        if (x + y < 16) {
            rest[0] += count[0][i];
            rest[1] += count[1][i];
            continue;
        }
        chi += (x - y) * (x - y) / (x + y);
        df++;
    }
    if (rest[0] + rest[1] >= 16) {
        double d = (double)rest[0] - rest[1];
        chi += d * d / (rest[0] + rest[1]);
        df++;
    }
    df--;
    assert_true(df >= 5);
    double limit = df * pow(1 - 2.0 / (9 * df) + 3.72 * sqrt(2.0 / (9 * df)), 3);
    if (chi > limit) fail_msg("chi-square %.1f with %d degrees of freedom", chi, df);
    for (int k = 0; k < 2; k++) engine_free(g[k]);
    engram_table_close(t);
}

/* A table whose tokens miss is left alone, and is tried now and then. */
static void a_poor_drafter_sits_out(void **state) {
    (void)state;
    int32_t n_asked = 0;
    static struct spec all;
    struct spec_seq q;
    write_table("half", text, N_TEXT, half);
    struct engram_table *t = open_table("half");
    const struct engram_use use = {.tables = {t}, .n_table = 1, .alpha = 1};
    const int32_t prompt[] = {8, 1, 2, 3};
    struct engram_mixer *m = new_mixer(&use, prompt, 4);
    assert_int_equal(spec_init(&all, VOCAB, false, false, NULL), 0);
    assert_int_equal(spec_seq_init(&q, prompt, 4, 10), 0);
    q.engram = m;
    for (int i = 0; i < 400; i++) {
        struct spec_offer o = {.q = &q};
        spec_draft_text(&all, &q, NULL, 2, &o.text);
        if (o.text.n) {
            assert_int_equal(o.text.tokens[0], 4);
            assert_int_equal(o.text.source[0], DRAFT_ENGRAM);
        }
        assert_int_equal(spec_choose(&all, &o, 1), 0);
        o.text.n = o.n_text;
        n_asked += o.n_text > 0;
        if (o.n_text) spec_learn(&all, &q, &o.text, 0, NULL);
        spec_time(&all, 1 + o.n_text, 1, 1 + 0.4 * o.n_text, 0, 0);
    }
    if (n_asked < 4 || n_asked > 30) fail_msg("%d of 400 rounds", n_asked);
    spec_seq_fini(&q);
    engram_mixer_free(m);
    engram_table_close(t);
}

/* In a thinking block neither the mixture nor its memory of the text is touched. */
static void thinking_is_left_alone(void **state) {
    (void)state;
    static const int32_t open[] = {30}, close[] = {31};
    float one_way[ENGRAM_N_FEATURE] = {30};
    write_table("half", text, N_TEXT, one_way);
    struct engram_table *t = open_table("half");
    const struct engram_use use = {.tables = {t}, .n_table = 1, .alpha = 1};
    struct sampler_params sp;
    struct sampler *s;
    struct err e = {0};
    sampler_defaults(&sp);
    sp.temperature = 0;
    sp.in_think = true;
    sp.think_start = open, sp.n_think_start = 1;
    sp.think_end = close, sp.n_think_end = 1;
    assert_int_equal(sampler_new(&s, &sp, VOCAB, NULL, &e), 0);
    struct engram_mixer *m = new_mixer(&use, NULL, 0);
    const struct sampler_hook hook = ngram_memory_hook(m);
    assert_int_equal(sampler_add_hook(s, &hook), 0);
    float x[VOCAB] = {0};
    x[20] = 1;
    const int32_t context[] = {1, 2, 3};
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < 3; i++) sampler_accept(s, context[i]);
        assert_int_equal(sampler_pick(s, x, NULL), pass ? 4 : 20);
        sampler_accept(s, close[0]);
    }
    sampler_free(s);
    engram_mixer_free(m);
    engram_table_close(t);
}

/* ---- tables that are replaced ---- */

static void replaced_tables_are_picked_up(void **state) {
    (void)state;
    static const int32_t other[] = {1, 2, 3, 7, 9};
    const int32_t ctx[] = {1, 2, 3};
    struct engram_store *s;
    struct engram_lease *a, *b, *c;
    struct engram_hit hits[ENGRAM_N_ORDER];
    struct err e = {0};
    char path[128];
    snprintf(path, sizeof path, "%s/live.engram", scratch);
    write_table("live", text, N_TEXT, NULL);
    assert_int_equal(engram_store_new(&s, scratch, tokenizer, VOCAB, &e), 0);
    assert_int_equal(engram_store_take(s, NULL, "live", &a, &e), 0);
    assert_int_equal(engram_store_take(s, NULL, "live", &b, &e), 0);
    assert_ptr_equal(a, b); /* the same file is open once */
    engram_lease_return(b);
    write_table("live", other, 5, NULL);
    assert_int_equal(engram_store_take(s, NULL, "live", &b, &e), 0);
    assert_ptr_not_equal(a, b);
    assert_true(engram_lookup(engram_lease_table(a), ctx, 3, hits) > 0);
    assert_int_equal(engram_hit_next(&hits[0])[0].token, 4); /* the old one still answers */
    assert_true(engram_lookup(engram_lease_table(b), ctx, 3, hits) > 0);
    assert_int_equal(engram_hit_next(&hits[0])[0].token, 7);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(engram_store_take(s, NULL, "live", &c, &e), CHIMERE_ENOENT);
    assert_non_null(strstr(e.text, "no table named 'live'"));
    assert_true(engram_lookup(engram_lease_table(b), ctx, 3, hits) > 0); /* deleted, still mapped */
    FILE *f = fopen(path, "w");
    fputs("not a table", f);
    fclose(f);
    assert_int_equal(engram_store_take(s, NULL, "live", &c, &e), CHIMERE_EFORMAT);
    /* written over in place, cut in place: leases answer as before, new ones see what there is now */
    write_table("live", text, N_TEXT, NULL);
    assert_int_equal(engram_store_take(s, NULL, "live", &c, &e), 0);
    f = fopen(path, "r+");
    for (int i = 0; i < 3000; i++) fputc(0x5a, f);
    fclose(f);
    assert_true(engram_lookup(engram_lease_table(c), ctx, 3, hits) > 0);
    assert_int_equal(engram_hit_next(&hits[0])[0].token, 4);
    assert_int_equal(truncate(path, 100), 0);
    assert_true(engram_lookup(engram_lease_table(c), ctx, 3, hits) > 0);
    assert_int_equal(engram_hit_next(&hits[0])[0].token, 4);
    struct engram_lease *d;
    assert_int_equal(engram_store_take(s, NULL, "live", &d, &e), CHIMERE_EFORMAT);
    engram_lease_return(c);
    engram_lease_return(a);
    engram_lease_return(b);
    static const char *const names[] = {"../live", ".live", "", "a/b", "live engram"};
    for (int i = 0; i < 5; i++)
        assert_int_equal(engram_store_take(s, NULL, names[i], &c, &e), CHIMERE_EINVAL);
    /* one caller's own table: nobody else sees it, and it comes before the common one */
    struct engram_lease *mine;
    char from[128];
    write_table("live", text, N_TEXT, NULL);
    assert_int_equal(engram_store_take(s, "key-1", "live", &a, &e), 0);
    snprintf(from, sizeof from, "%s/key-1", scratch);
    assert_int_equal(mkdir(from, 0700), 0);
    snprintf(from, sizeof from, "%s/key-1/live.engram", scratch);
    assert_int_equal(rename(path, from), 0);
    assert_int_equal(engram_store_take(s, "key-1", "live", &mine, &e), 0);
    assert_int_equal(engram_store_take(s, "key-2", "live", &c, &e), CHIMERE_ENOENT);
    assert_int_equal(engram_store_take(s, NULL, "live", &c, &e), CHIMERE_ENOENT);
    assert_int_equal(engram_store_take(s, "../key-1", "live", &c, &e), CHIMERE_ENOENT);
    engram_lease_return(mine);
    engram_lease_return(a);
    engram_store_free(s);
}

struct rewriting {
    _Atomic bool stop;
};
static void *rewrite(void *arg) {
    struct rewriting *w = arg;
    static const int32_t other[] = {1, 2, 3, 7, 9};
    for (int i = 0; !w->stop; i++)
        if (i % 2) write_table("live", text, N_TEXT, NULL);
        else write_table("live", other, 5, NULL);
    return NULL;
}

/* A running engine while its table is rewritten all the time: every answer is one of the two tables'. */
static void a_running_engine_sees_no_seam(void **state) {
    (void)state;
    struct rewriting w = {false};
    struct engram_store *s;
    struct err e = {0};
    struct answer_of a, want[2];
    struct sampler_params sp;
    pthread_t thread;
    sampler_defaults(&sp);
    sp.temperature = 0;
    struct engine *g = new_engine(true, 3);
    assert_int_equal(engram_store_new(&s, scratch, tokenizer, VOCAB, &e), 0);
    static const char *const names[] = {"live"};
    const struct ngram_memory_params p = {.store = s, .tables = names, .n_table = 1, .alpha = 50};
    static const int32_t other[] = {1, 2, 3, 7, 9};
    for (int k = 0; k < 2; k++) {
        struct ngram_memory *m;
        write_table("live", k ? text : other, k ? N_TEXT : 5, NULL);
        assert_int_equal(ngram_memory_open(&m, &p, &e), 0);
        answer(g, ngram_memory_use(m), &sp, 60, &want[k]);
        ngram_memory_close(m);
    }
    assert_int_equal(pthread_create(&thread, NULL, rewrite, &w), 0);
    int64_t start = clock_ns();
    for (int i = 0; i < 50 || clock_ns() - start < 300000000; i++) {
        struct ngram_memory *m;
        if (ngram_memory_open(&m, &p, &e)) fail_msg("%s", e.text);
        answer(g, ngram_memory_use(m), &sp, 60, &a);
        ngram_memory_close(m);
        bool one = memcmp(a.tokens, want[0].tokens, sizeof(int32_t) * 60) == 0;
        bool two = memcmp(a.tokens, want[1].tokens, sizeof(int32_t) * 60) == 0;
        assert_true(one || two);
    }
    w.stop = true;
    pthread_join(thread, NULL);
    engine_free(g);
    engram_store_free(s);
}

static int open_field(struct ngram_memory **m, struct engram_store *s, json_t *field,
                      struct err *e) {
    struct request a = {.extra = json_pack("{s:O}", "engram", field)};
    int rc = ngram_field_open(m, s, &a, NULL, NULL, e);
    json_decref(a.extra);
    return rc;
}

static void requests_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *field, *says;
    } bad[] = {
        {"[]", "engram: expected an object"},
        {"{\"tables\": \"live\"}", "engram.tables: expected a list"},
        {"{\"tables\": [3]}", "engram.tables: expected names"},
        {"{\"tables\": [\"live\"], \"alpha\": -1}", "engram.alpha: expected"},
        {"{\"tables\": [\"live\"], \"alpha\": \"x\"}", "engram.alpha: expected"},
        {"{\"tables\": [\"live\"], \"recall\": 1}", "engram.recall: expected"},
        {"{\"tables\": [\"live\"], \"beta\": 1}", "engram.beta: unknown field"},
        {"{\"tables\": [\"../../etc/passwd\"]}", "expected the name of a table"},
        {"{\"tables\": [\"nothing\"]}", "no table named 'nothing'"},
        {"{\"tables\": [\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\"]}", "at most 8"},
    };
    struct engram_store *s;
    struct ngram_memory *m;
    struct err e = {0};
    write_table("live", text, N_TEXT, NULL);
    assert_int_equal(engram_store_new(&s, scratch, tokenizer, VOCAB, &e), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *field = json_loads(bad[i].field, 0, NULL);
        assert_non_null(field);
        assert_true(open_field(&m, s, field, &e) < 0);
        if (!strstr(e.text, bad[i].says)) fail_msg("%s: got '%s'", bad[i].field, e.text);
        assert_null(m);
        json_decref(field);
    }
    json_t *field = json_loads("{\"tables\": [\"live\"], \"alpha\": 0.5}", 0, NULL);
    assert_int_equal(open_field(&m, s, field, &e), 0);
    assert_int_equal(ngram_memory_use(m)->n_table, 1);
    assert_true(ngram_memory_use(m)->alpha == 0.5f);
    ngram_memory_close(m);
    json_decref(field);
    assert_int_equal(ngram_field_open(&m, s, &(struct request){.extra = NULL}, NULL, NULL, &e), 0);
    assert_null(ngram_memory_use(m));
    engram_store_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixture_is_what_it_says),
        cmocka_unit_test(nothing_known_changes_nothing),
        cmocka_unit_test(tables_add_up_by_their_odds),
        cmocka_unit_test(rows_are_scanned_right),
        cmocka_unit_test(drafts_change_no_text),
        cmocka_unit_test(drafts_change_no_distribution),
        cmocka_unit_test(a_poor_drafter_sits_out),
        cmocka_unit_test(thinking_is_left_alone),
        cmocka_unit_test(replaced_tables_are_picked_up),
        cmocka_unit_test(a_running_engine_sees_no_seam),
        cmocka_unit_test(requests_are_checked),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
