/* test_parts.c: a model whose layers lie on several devices says what it says on one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <pthread.h>
#include <string.h>

#include "lora_file.h"
#include "scratch.h"
#include "convert/synth.h"
#include "engine/load.h"
#include "engine/team.h"
#include "model/forward.h"
#include "model/model.h"

enum { MAX_VOCAB = 1024, N_TOK = 90, N_SAID = 24 };

static void make(const char *shape, int32_t n_layer, char *path, size_t size) {
    struct synth_result r;
    struct err e = {0};
    snprintf(path, size, "%s/%s-%d.gguf", scratch, shape, n_layer);
    const struct synth_options o = {shape, "q8", path, n_layer, 0, 512, false};
    if (synth_write(&o, &r, &e)) fail_msg("%s: %s", shape, e.text);
}

static struct dev *open_cpu(void) {
    struct dev *d;
    struct err e = {0};
    if (cpu_open(&d, 1, CPU_ISA_BEST, &e)) fail_msg("%s", e.text);
    return d;
}

/* Logits of the last row, the tokens in two batches: parts [0, cut) and [cut, end), or all in one. */
static int32_t last_logits(const char *path, int32_t cut, float *out) {
    struct model *m[2] = {NULL};
    struct seq_pool *pool[2];
    struct forward *f[2];
    struct seq *s[2];
    struct dev *d[2];
    struct err e = {0};
    static float rows[N_TOK * 8192];
    static int32_t tokens[N_TOK];
    int32_t n = cut ? 2 : 1, n_vocab = 0;
    for (int32_t i = 0; i < N_TOK; i++) tokens[i] = i * 31 % 500;
    for (int32_t i = 0; i < n; i++) {
        struct layer_part part = {0, 0};
        if (cut)
            part = i ? (struct layer_part){cut, m[0]->hp.n_layer} : (struct layer_part){0, cut};
        const struct seq_pool_params pp = {.n_slot = 1, .n_ctx = 128, .k_type = 1, .v_type = 1};
        d[i] = open_cpu();
        if (model_open_part(&m[i], path, d[i], NULL, part, true, &e) ||
            seq_pool_new(&pool[i], m[i], &pp, &e) ||
            forward_new(&f[i], m[i], pool[i], N_TOK, 1, &e) || seq_new(&s[i], pool[i], &e))
            fail_msg("%s: %s", path, e.text);
        assert_true(m[i]->hp.n_embd <= 8192);
    }
    for (int32_t at = 0, n_tok; at < N_TOK; at += n_tok) {
        n_tok = at ? 1 : N_TOK - 6;
        for (int32_t i = 0; i < n; i++) {
            const struct batch_item run = {
                .seq = s[i], .tokens = tokens + at, .n_tok = n_tok, .want = WANT_LAST};
            const float *logits;
            if (forward_run_part(f[i], &run, 1, i ? rows : NULL, i < n - 1 ? rows : NULL, &logits,
                                 &e))
                fail_msg("%s: %s", path, e.text);
            n_vocab = m[i]->hp.n_vocab;
            if (i == n - 1) memcpy(out, logits, (size_t)n_vocab * sizeof *out);
        }
    }
    for (int32_t i = 0; i < n; i++) {
        seq_free(s[i]);
        forward_free(f[i]);
        seq_pool_free(pool[i]);
        model_close(m[i]);
        d[i]->ops->close(d[i]);
    }
    return n_vocab;
}

static void every_cut_gives_the_same_bits(void **state) {
    (void)state;
    static const char *const shapes[] = {"qwen35moe-mini", "nemotron-mini",  "mamba-mini",
                                         "falcon-h1-mini", "granite-h-mini", "jamba-mini"};
    static float want[MAX_VOCAB], got[MAX_VOCAB];
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        char path[256];
        make(shapes[k], 4, path, sizeof path);
        int32_t n = last_logits(path, 0, want);
        assert_in_range(n, 1, MAX_VOCAB);
        for (int32_t cut = 1; cut<4; cut += TEST_SLOWNESS> 1 ? 2 : 1) {
            assert_int_equal(last_logits(path, cut, got), n);
            if (memcmp(want, got, (size_t)n * sizeof *want))
                fail_msg("%s cut at %d: bits differ", shapes[k], cut);
        }
    }
}

/* ---- engines ---- */

struct said {
    int32_t tokens[N_SAID], n;
};
static bool hear(struct engine_job *j, int32_t token, bool is_end,
                 const struct sampler_probs *probs) {
    struct said *s = j->ud;
    (void)is_end, (void)probs;
    if (s->n < N_SAID) s->tokens[s->n++] = token;
    return true;
}
static void ended(struct engine_job *j) { (void)j; }

static struct lora_use used; /* by topics from 2 on */

static void say(struct engine *g, int32_t topic, struct said *s) {
    int32_t prompt[70];
    struct err e = {0};
    for (int32_t i = 0; i < 70; i++) prompt[i] = (i * 7 + topic * 13) % 500;
    *s = (struct said){.n = 0};
    struct engine_job j = {.p.prompt = prompt,
                           .p.n_prompt = 40 + topic,
                           .p.max_tokens = N_SAID,
                           .p.loras = &used,
                           .p.n_lora = topic >= 2,
                           .on_token = hear,
                           .on_done = ended,
                           .ud = s};
    sampler_defaults(&j.p.sampling);
    j.p.sampling.seed = (uint64_t)topic;
    j.p.sampling.ignore_eos = true;
    if (topic % 2) j.p.sampling.temperature = 0;
    if (engine_run(g, &j, &e)) fail_msg("%s", e.text);
}

struct talk {
    struct engine *g;
    int32_t topic;
    struct said said;
    pthread_t thread;
};
static void *talk(void *arg) {
    struct talk *t = arg;
    say(t->g, t->topic, &t->said);
    return NULL;
}

/* All topics at once: engines that take turns on the devices say what one says. */
static void talk_at_once(struct engine *g, const struct said *want, int32_t n) {
    static struct talk t[8];
    for (int32_t k = 0; k < n; k++) {
        t[k] = (struct talk){.g = g, .topic = k};
        assert_int_equal(pthread_create(&t[k].thread, NULL, talk, &t[k]), 0);
    }
    for (int32_t k = 0; k < n; k++) pthread_join(t[k].thread, NULL);
    for (int32_t k = 0; k < n; k++)
        if (memcmp(&want[k], &t[k].said, sizeof *want)) fail_msg("at once, topic %d", k);
}

/* Sampled with and without drafts and adapters, on 1 to 3 devices; what the parts take is what the whole takes. */
static void engines_say_the_same(void **state) {
    (void)state;
    enum { N_TOPIC = TEST_SLOWNESS > 1 ? 3 : 4, N_DEV = TEST_SLOWNESS > 1 ? 2 : 3 };
    static struct said want[N_TOPIC];
    uint64_t whole = 0;
    char path[256], adapter[64];
    const char *const loras[] = {adapter};
    struct err e = {0};
    make("qwen35moe-mini", 4, path, sizeof path);
    snprintf(adapter, sizeof adapter, "%s/adapter.gguf", scratch);
    if (lora_file_write(path, adapter, &e) < 4) fail_msg("%s", e.text);
    for (int32_t n = 1; n <= N_DEV; n++)
        for (int32_t speculate = 0; speculate < 2; speculate++) {
            struct load_params p;
            struct loaded l;
            struct dev *more[2];
            load_defaults(&p);
            p.path = path;
            p.quiet = true;
            p.plan.n_ctx = 256;
            p.plan.n_seq = 2;
            p.plan.engine.speculate = speculate;
            p.opened = open_cpu();
            p.split = SPLIT_LAYER;
            p.more = more;
            p.n_more = n - 1;
            p.loras = loras;
            p.n_lora = 1;
            for (int32_t i = 0; i < n - 1; i++) more[i] = open_cpu();
            if (load_open(&l, &p, &e)) fail_msg("%s", e.text);
            assert_int_equal(l.n_replica, n - 1);
            used = l.loras[0];
            uint64_t bytes = l.plan.weight_bytes;
            for (int32_t i = 0; i < n - 1; i++) bytes += l.replicas[i].plan.weight_bytes;
            if (n == 1) whole = bytes;
            assert_in_range(bytes * 100 / whole, 99, 101);
            if (n > 1) assert_true(l.plan.weight_bytes < whole * 2 / 3);
            for (int32_t k = 0; k < N_TOPIC; k++) {
                struct said s;
                say(l.engine, k, &s);
                assert_int_equal(s.n, N_SAID);
                if (n == 1 && !speculate) want[k] = s;
                if (memcmp(&want[k], &s, sizeof s))
                    fail_msg("%d devices, topic %d: other tokens", n, k);
            }
            if (n == 1 && !speculate) { /* the adapter changes the text */
                struct said plain;
                used.scale = 0;
                say(l.engine, 2, &plain);
                used.scale = l.loras[0].scale;
                assert_true(memcmp(&want[2], &plain, sizeof plain) != 0);
            }
            assert_int_equal(team_size(l.engine), n > 1 ? 2 : 1); /* as many as sequences */
            if (n > 1) talk_at_once(l.engine, want, N_TOPIC);
            load_close(&l);
        }
}

static int refused(const char *path, int32_t n, const char *lora, struct err *e) {
    struct load_params p;
    struct loaded l;
    struct dev *more[7];
    load_defaults(&p);
    p.path = path;
    p.quiet = true;
    p.plan.n_ctx = 256;
    p.opened = open_cpu();
    p.split = SPLIT_LAYER;
    p.more = more;
    p.n_more = n - 1;
    p.loras = &lora;
    p.n_lora = lora != NULL;
    for (int32_t i = 0; i < n - 1; i++) more[i] = open_cpu();
    int rc = load_open(&l, &p, e);
    if (!rc) load_close(&l);
    return rc;
}

static void what_cannot_be_cut_says_so(void **state) {
    (void)state;
    char path[256];
    struct err e = {0};
    make("qwen35moe-mini", 4, path, sizeof path);
    assert_int_equal(refused(path, 4, NULL, &e), 0);
    assert_int_equal(refused(path, 5, NULL, &e), CHIMERE_ELIMIT);
    assert_non_null(strstr(e.text, "5 cards, but the model has 4 layers"));
    e = (struct err){0};
    assert_true(refused(path, 2, "x.gguf", &e) < 0);
    assert_non_null(strstr(e.text, "x.gguf"));
    make("zamba2-mini", 0, path, sizeof path);
    e = (struct err){0};
    assert_int_equal(refused(path, 2, NULL, &e), CHIMERE_EUNSUPPORTED);
    assert_non_null(strstr(e.text, "cannot be on different cards"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cut_gives_the_same_bits),
        cmocka_unit_test(engines_say_the_same),
        cmocka_unit_test(what_cannot_be_cut_says_so),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
