/* test_keep.c: experts kept by the entropy of the token before: chimere-nano in windows and in the engine computes what
 * a loop over single tokens computes, which works out the mass of each token by itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/lm.h"
#include "eval/windows.h"
#include "kernels/cpu/cpu.h"
#include "model/vocab.h"

enum { N_TOKEN = 24, N_WINDOW = 3, N_CTX = 24 };
static const struct moe_keep keep = {.mass = .6f, .n_min = 1, .all_at = 3};
static const char text[] = "The cat sat on the mat. The dog sat on the rug. The cat sat on the "
                           "mat. It was a quiet day in the house, and "
                           "nobody came to the door. One, two, three, four, five, six, seven, "
                           "eight, nine. The cat sat on the rug.";

static struct dev *dev;
static struct model *model;
static struct tok *tok;
static int32_t *ids;
static size_t n_ids;

static int open_nano(void **state) {
    (void)state;
    struct err e = {0};
    if (cpu_open(&dev, 2, CPU_ISA_BEST, &e) || model_open(&model, TEST_NANO, dev, true, &e) ||
        vocab_load(&tok, model->gguf, &e) ||
        tok_encode(tok, text, sizeof text - 1, false, false, &ids, &n_ids, &e))
        fail_msg("%s", e.text);
    return 0;
}

static int close_nano(void **state) {
    (void)state;
    mem_free(ids);
    tok_free(tok);
    model_close(model);
    dev->ops->close(dev);
    return 0;
}

/* ---- the loop ---- */

struct loop {
    struct seq_pool *pool;
    struct seq *seq;
    struct forward *f;
};

static void loop_open(struct loop *l) {
    struct err e = {0};
    const struct seq_pool_params p = {.n_slot = 1, .n_ctx = 256, .k_type = 1, .v_type = 1};
    if (seq_pool_new(&l->pool, model, &p, &e) || seq_new(&l->seq, l->pool, &e) ||
        forward_new(&l->f, model, l->pool, 128, 1, &e))
        fail_msg("%s", e.text);
}

static void loop_close(struct loop *l) {
    forward_free(l->f);
    seq_free(l->seq);
    seq_pool_free(l->pool);
}

static const float *loop_run(struct loop *l, const int32_t *tokens, int32_t n, float mass) {
    struct err e = {0};
    const float *row;
    const struct batch_item run = {
        .seq = l->seq, .tokens = tokens, .n_tok = n, .keep = {mass, 1, 0}, .want = WANT_LAST};
    if (forward_run(l->f, &run, 1, &row, &e)) fail_msg("%s", e.text);
    return row;
}

static double entropy_of(const float *row) {
    int32_t n = model->hp.n_vocab;
    double sum = 0, h = 0;
    for (int32_t i = 0; i < n; i++) sum += exp((double)row[i]);
    for (int32_t i = 0; i < n; i++) {
        double p = exp((double)row[i]) / sum;
        if (p > 0) h -= p * log(p);
    }
    return h;
}

static float mass_after(const float *row) {
    double h = entropy_of(row);
    return h >= 3 ? 1 : (float)(.6 + .4 * h / 3);
}

static int32_t best_of(const float *row) {
    int32_t best = 0;
    for (int32_t i = 1; i < model->hp.n_vocab; i++) best = row[i] > row[best] ? i : best;
    return best;
}

/* ---- against it ---- */

static void the_mass_grows_with_the_entropy(void **state) {
    (void)state;
    const struct {
        struct moe_keep keep;
        float entropy, mass;
    } rows[] = {{{.5f, 2, 2}, 0, .5f}, {{.5f, 2, 2}, 1, .75f}, {{.5f, 2, 2}, 2, 1},
                {{.5f, 2, 2}, 9, 1},   {{.5f, 2, 0}, 9, .5f},  {{0, 1, 2}, 1, 0},
                {{1, 1, 2}, 1, 1},     {{.5f, 2, 2}, -1, .5f}, {{.5f, 2, 2}, NAN, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct moe_keep k = experts_keep_after(rows[i].keep, rows[i].entropy);
        assert_true(fabsf(k.mass - rows[i].mass) < 1e-6f);
        assert_int_equal(k.n_min, rows[i].keep.n_min);
    }
}

static float *rows; /* [N_WINDOW, N_CTX, n_vocab] */

static int store(void *ud, size_t i, int32_t pos, int32_t n_row, const float *from, struct err *e) {
    (void)ud, (void)e;
    size_t n = (size_t)model->hp.n_vocab;
    memcpy(rows + (i * N_CTX + (size_t)pos) * n, from, (size_t)n_row * n * sizeof *rows);
    return 0;
}

static void windows_follow_each_row(void **state) {
    (void)state;
    struct err e = {0};
    struct loop l;
    size_t n = (size_t)model->hp.n_vocab;
    struct experts_kept kept = {0};
    assert_true(n_ids > N_WINDOW * N_CTX / 2);
    rows = mem_zalloc(N_WINDOW * N_CTX * n * sizeof *rows);
    assert_non_null(rows);
    struct window w[N_WINDOW];
    for (int i = 0; i < N_WINDOW; i++)
        w[i] = (struct window){.tokens = ids + i * 5, .n_tok = N_CTX, .first = 4 * i};
    const struct windows_params p = {
        .n_seq = 2, .n_batch = 64, .k_type = 1, .v_type = 1, .keep = keep, .kept = &kept};
    if (windows_run(model, w, N_WINDOW, &p, store, NULL, &e)) fail_msg("%s", e.text);
    assert_true(kept.n_stayed < kept.n_chosen && kept.n_stayed > kept.n_chosen / 2);
    loop_open(&l);
    float least = 1;
    for (int i = 0; i < N_WINDOW; i++) {
        float mass = 1;
        seq_reset(l.seq);
        for (int32_t t = 0; t + 1 < N_CTX; t++) {
            const float *row = loop_run(&l, w[i].tokens + t, 1, mass);
            mass = mass_after(row);
            least = mass < least ? mass : least;
            const float *got = rows + (size_t)(i * N_CTX + t) * n;
            if (t < w[i].first) assert_true(got[0] == 0 && got[n - 1] == 0); /* not wanted */
            for (size_t k = 0; t >= w[i].first && k < n; k++)
                assert_true(fabsf(row[k] - got[k]) < 1e-3f);
        }
    }
    assert_true(least < .9f);
    loop_close(&l);
    mem_free(rows);
}

struct said {
    int32_t tokens[N_TOKEN], n;
};
static bool hear(struct engine_job *j, int32_t token, bool is_end,
                 const struct sampler_probs *probs) {
    struct said *s = j->ud;
    (void)is_end;
    assert_null(probs); /* none were requested */
    s->tokens[s->n++] = token;
    return true;
}
static void ended(struct engine_job *j) { (void)j; }

/* With whole rows and with what a device selects from them; drafts are left out. */
static void answers_follow_each_token(void **state) {
    (void)state;
    struct err e = {0};
    struct loop l;
    struct said want = {.n = 0};
    loop_open(&l);
    bool differs = false;
    const float *row = loop_run(&l, ids, 20, keep.mass);
    for (;;) {
        int32_t token = best_of(row);
        float mass = mass_after(row);
        differs |= mass < .9f;
        want.tokens[want.n++] = token;
        if (want.n == N_TOKEN) break;
        row = loop_run(&l, &token, 1, mass);
    }
    assert_true(differs);
    loop_close(&l);
    for (int k = 0; k < 2; k++) {
        struct engine *g;
        struct said got = {.n = 0};
        struct engine_params p;
        engine_defaults(&p);
        p.n_ctx = 512;
        p.select = k;
        p.speculate = true;
        if (engine_new(&g, model, tok, &p, &e)) fail_msg("%s", e.text);
        struct engine_job j = {.p.prompt = ids,
                               .p.n_prompt = 20,
                               .p.max_tokens = N_TOKEN,
                               .p.no_cache = true,
                               .p.keep = keep,
                               .on_token = hear,
                               .on_done = ended,
                               .ud = &got};
        sampler_defaults(&j.p.sampling);
        j.p.sampling.temperature = 0;
        j.p.sampling.ignore_eos = true;
        if (engine_run(g, &j, &e)) fail_msg("%s", e.text);
        assert_int_equal(got.n, N_TOKEN);
        assert_int_equal(j.stats.n_drafted, 0);
        assert_memory_equal(got.tokens, want.tokens, sizeof want.tokens);
        engine_free(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mass_grows_with_the_entropy),
        cmocka_unit_test(windows_follow_each_row),
        cmocka_unit_test(answers_follow_each_token),
    };
    return cmocka_run_group_tests(tests, open_nano, close_nano);
}
