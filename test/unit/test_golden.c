/* test_golden.c: every family against logits of transformers (test/golden/make.py), through the whole
 * chain: Hugging Face folder -> convert -> GGUF -> load -> forward. And what holds for each of them:
 * any way of cutting the tokens gives the same logits; marks, forks, files and dropped drafts leave no
 * trace; every tensor matters; a neighbour's NaN is the neighbour's alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "kernels/cpu/cpu.h"
#ifdef GOLDEN_CUDA
#include "kernels/cuda/cuda.h"
#endif
#include "model/draft_head.h"
#include "model/forward.h"
#include "model/seq/checkpoint.h"
#include "model/seq/seq_file.h"
#include "format/quant.h"
#include "golden_model.h"

/* clang-format off */
#ifdef CHIMERE_EMULATE /* a few that use every op: a step takes seconds there */
static const char *const families[] = {
    "qwen35moe",
    "qwen2",
    "mamba",
    "nemotron_h_latent",
    "hymba",
    "gpt_oss",
    "gemma4",
    "gemma4_moe",
    "deepseek_v3",
};
#else
static const char *const families[] = {
    "qwen35moe", "qwen35", "qwen3next", "llama", "qwen2", "qwen3", "qwen3moe",
    "mamba", "falcon_mamba", "mamba2", "nemotron_h", "nemotron_h_moe", "nemotron_h_latent", "granite_h", "granite_h_moe",
    "bamba", "falcon-h1", "jamba", "zamba2", "hymba", "granite", "granitemoe", "ministral3", "lfm2", "lfm2_moe", "gemma3", "gpt_oss",
    "gemma4", "gemma4_moe", "olmo_hybrid", "olmo2", "olmo3", "deepseek_v3", "glm4_moe_lite",
};
#endif
/* The same families with other values of fields that change what they compute: logits alone. */
static const char *const variants[] = {"mistral",      "mixtral",    "qwen2_windows",
                                       "qwen3moe_raw", "llama_yarn", "mamba2_limit",
                                       "granite4",     "granite4_moe", "nemotron_h_groups", "deepseek_v3_plain",
                                       "olmo_hybrid_rope"};
/* clang-format on */
#ifdef CHIMERE_EMULATE
enum { N_VARIANT = 0 };
#else
enum { N_VARIANT = sizeof variants / sizeof *variants };
#endif
enum { N_FAMILY = sizeof families / sizeof *families, MAX_TOK = 256 };

struct golden {
    const char *name;
    json_t *spec; /* owned */
    int32_t tokens[MAX_TOK];
    int32_t n_tok, n_vocab;
    float *want; /* owned [n_tok, n_vocab] */
    float range;
    struct dev *dev;
    struct model *m;
};

static char scratch[64]; /* folder of this process */

/* The device under test. GOLDEN_CUDA: a GPU, or its emulator, which adds up in float. */
#ifdef GOLDEN_CUDA
static const double tolerance = 2e-3;
static int open_device(struct dev **d, enum cpu_isa isa, struct err *e) {
    const struct cuda_params p = {.precise = true};
    (void)isa;
    return cuda_open(d, &p, e);
}
#else
static const double tolerance = 1e-4;
static int open_device(struct dev **d, enum cpu_isa isa, struct err *e) {
    return cpu_open(d, 2, isa, e);
}
#endif

enum { NAN_TOKEN = 1, HUGE_TOKEN = 2 };

static struct model *open_model(struct dev *dev, const char *path) {
    struct model *m;
    struct err e = {0};
    if (model_open(&m, path, dev, true, &e)) fail_msg("%s", e.text);
    return m;
}

static void golden_open(struct golden *g, const char *name, enum cpu_isa isa) {
    *g = (struct golden){.name = name};
    char path[512];
    json_error_t je;
    struct err e = {0};
    snprintf(path, sizeof path, "%s/golden/%s.json", TEST_DATA, name);
    g->spec = json_load_file(path, 0, &je);
    assert_non_null(g->spec);
    size_t i, n;
    json_t *t;
    json_array_foreach(json_object_get(g->spec, "tokens"), i, t) g->tokens[i] =
        (int32_t)json_integer_value(t);
    g->n_tok = (int32_t)i;
    g->n_vocab = (int32_t)json_integer_value(
        json_object_get(json_object_get(g->spec, "config"), "vocab_size"));
    g->want = golden_floats(name, ".logits", &n);
    float high = -INFINITY, low = INFINITY;
    for (size_t k = 0; k < n; k++) {
        if (g->want[k] > high) high = g->want[k];
        if (g->want[k] < low) low = g->want[k];
    }
    g->range = high - low;
    assert_int_equal(open_device(&g->dev, isa, &e), 0);
    char file[400];
    golden_build(g->spec, name, scratch, NULL, file, sizeof file);
    g->m = open_model(g->dev, file);
}

static void golden_close(struct golden *g) {
    model_close(g->m);
    g->dev->ops->close(g->dev);
    json_decref(g->spec);
    mem_free(g->want);
}

/* A pool, a sequence and a forward over one model. */
struct rig {
    struct seq_pool *pool;
    struct seq *seq;
    struct forward *f;
    float *logits; /* owned [MAX_TOK, n_vocab]: what run_tokens collected, by position */
    int32_t n_vocab;
};

static void rig_open_types(struct rig *r, struct model *m, uint32_t type, int32_t n_slot) {
    struct err e = {0};
    const struct seq_pool_params p = {
        .n_slot = n_slot, .n_ctx = 1024, .k_type = type, .v_type = type, .log = true};
    if (seq_pool_new(&r->pool, m, &p, &e)) fail_msg("%s", e.text);
    assert_int_equal(seq_new(&r->seq, r->pool, &e), 0);
    if (forward_new(&r->f, m, r->pool, MAX_TOK, MAX_TOK, &e)) fail_msg("%s", e.text);
    r->n_vocab = m->hp.n_vocab;
    r->logits = mem_alloc_array((size_t)MAX_TOK * (size_t)r->n_vocab, sizeof(float));
}
static void rig_open(struct rig *r, struct model *m) { rig_open_types(r, m, QUANT_F32, 4); }

static void rig_close(struct rig *r) {
    seq_free(r->seq);
    forward_free(r->f);
    seq_pool_free(r->pool);
    mem_free(r->logits);
}

/* Runs tokens[from..from+n) of s in one forward, keeping the logits under their positions. */
static void run_tokens(struct rig *r, struct seq *s, const int32_t *tokens, int32_t n, bool defer) {
    const struct batch_item run = {
        .seq = s, .tokens = tokens, .n_tok = n, .defer = defer, .want = WANT_ALL};
    const float *logits;
    struct err e = {0};
    int64_t at = seq_pos(s);
    if (forward_run(r->f, &run, 1, &logits, &e)) fail_msg("%s", e.text);
    memcpy(r->logits + at * r->n_vocab, logits, (size_t)n * (size_t)r->n_vocab * sizeof *logits);
}

static double worst(const float *a, const float *b, size_t n) {
    double w = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - b[i]);
        if (!(d <= w)) w = d;
    }
    return w;
}

static int32_t best(const float *x, int32_t n) {
    int32_t b = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[b]) b = i;
    return b;
}

static void compare(const struct golden *g, const float *got, const char *how) {
    double d = worst(got, g->want, (size_t)g->n_tok * (size_t)g->n_vocab) / g->range;
    if (!(d <= tolerance)) fail_msg("%s, %s: off by %.2e of the range", g->name, how, d);
    for (int32_t t = 0; t < g->n_tok; t++) { /* the same best token, but for ties */
        const float *want = g->want + t * g->n_vocab;
        float lead = want[best(want, g->n_vocab)] - want[best(got + t * g->n_vocab, g->n_vocab)];
        assert_true(lead <= (tolerance > 1e-4 ? 2 * tolerance * g->range : 0));
    }
}

static void logits_are_those_of_transformers(void **state) {
    (void)state;
    static const enum cpu_isa isas[] = {CPU_ISA_BEST, CPU_ISA_SCALAR};
    for (int i = 0; i < N_FAMILY + N_VARIANT; i++) {
        const char *name = i < N_FAMILY ? families[i] : variants[i - N_FAMILY];
        for (int k = 0; k < 2; k++) {
            struct golden g;
            struct rig r;
            golden_open(&g, name, isas[k]);
            rig_open(&r, g.m);
            run_tokens(&r, r.seq, g.tokens, g.n_tok, false);
            compare(&g, r.logits, k ? "scalar, at once" : "at once");
            seq_reset(r.seq);
            for (int32_t t = 0; t < g.n_tok; t++) run_tokens(&r, r.seq, g.tokens + t, 1, false);
            compare(&g, r.logits, k ? "scalar, one by one" : "one by one");
            rig_close(&r);
            golden_close(&g);
        }
    }
}

#ifdef GOLDEN_CUDA
/* Replaces r by a rig over m that goes on where r stood, through a file. */
static void move_rig(struct rig *r, struct model *m) {
    char path[128];
    struct rig to;
    struct err e = {0};
    void *extra;
    size_t n_extra;
    snprintf(path, sizeof path, "%s/moved", scratch);
    if (seq_save(r->seq, path, NULL, 0, &e)) fail_msg("%s", e.text);
    rig_open(&to, m);
    seq_free(to.seq);
    if (seq_load(to.pool, path, &to.seq, &extra, &n_extra, &e)) fail_msg("%s", e.text);
    mem_free(extra);
    assert_int_equal(seq_pos(to.seq), seq_pos(r->seq));
    memcpy(to.logits, r->logits, (size_t)MAX_TOK * (size_t)to.n_vocab * sizeof(float));
    rig_close(r);
    *r = to;
}
#ifdef CHIMERE_EMULATE
/* Most of the text at once, a file, then steps, drafts and a rewind: what the other tests ask, in one run. */
static void logits_at_once_and_behind_a_file(void **state) {
    (void)state;
    for (int i = 0; i < N_FAMILY; i++) {
        struct golden g;
        struct rig r;
        struct err e = {0};
        struct checkpoint *mark;
        golden_open(&g, families[i], CPU_ISA_BEST);
        rig_open(&r, g.m);
        int32_t cut = g.n_tok - 24;
        run_tokens(&r, r.seq, g.tokens, cut, false);
        move_rig(&r, g.m);
        run_tokens(&r, r.seq, g.tokens + cut, 9, true);
        seq_drop(r.seq, 4);
        if (seq_mark(r.seq, &mark, &e)) fail_msg("%s", e.text);
        run_tokens(&r, r.seq, g.tokens + 3, 2, false); /* other tokens, taken back */
        if (seq_rewind(r.seq, mark, &e)) fail_msg("%s", e.text);
        checkpoint_free(mark);
        run_tokens(&r, r.seq, g.tokens + cut + 5, 7, true);
        for (int32_t t = cut + 12; t < g.n_tok; t++) run_tokens(&r, r.seq, g.tokens + t, 1, false);
        compare(&g, r.logits, "emulated");
        rig_close(&r);
        golden_close(&g);
    }
}
#endif

/* A state made by the processor goes on on the device, the last of its tokens deferred, and from there on the processor:
 * the logits stay those of transformers. */
static void states_cross_between_devices(void **state) {
    (void)state;
    for (int i = 0; i < N_FAMILY; i++) {
        struct golden g;
        struct rig r;
        struct dev *host;
        struct err e;
        char file[400];
        golden_open(&g, families[i], CPU_ISA_BEST);
        assert_int_equal(cpu_open(&host, 2, CPU_ISA_BEST, &e), 0);
        golden_build(g.spec, g.name, scratch, NULL, file, sizeof file);
        struct model *m = open_model(host, file);
        int32_t at = g.n_tok - 20;
        rig_open(&r, m);
        run_tokens(&r, r.seq, g.tokens, at, false);
        run_tokens(&r, r.seq, g.tokens + at, 3, true);
        move_rig(&r, g.m);
        run_tokens(&r, r.seq, g.tokens + at + 3, 5, false);
        run_tokens(&r, r.seq, g.tokens + at + 8, 2, true);
        move_rig(&r, m);
        run_tokens(&r, r.seq, g.tokens + at + 10, 10, false);
        compare(&g, r.logits, "through two devices");
        rig_close(&r);
        model_close(m);
        host->ops->close(host);
        golden_close(&g);
    }
}
#endif

/* Up to STEP_MAX_TOK tokens together, or deferred, dropped and run again: the same bits. */
static void short_runs_give_the_bits_of_single_steps(void **state) {
    (void)state;
    for (int i = 0; i < N_FAMILY; i++) {
        struct golden g;
        struct rig one, many;
        golden_open(&g, families[i], CPU_ISA_BEST);
        rig_open(&one, g.m);
        rig_open(&many, g.m);
        for (int32_t t = 0; t < 96; t++) run_tokens(&one, one.seq, g.tokens + t, 1, false);
        struct rng rng;
        rng_seed(&rng, (uint64_t)i);
        for (int32_t t = 0; t < 96;) {
            int32_t n = 1 + (int32_t)rng_below(&rng, STEP_MAX_TOK);
            if (n > 96 - t) n = 96 - t;
            bool defer = rng_below(&rng, 2);
            run_tokens(&many, many.seq, g.tokens + t, n, defer);
            if (defer) {
                int32_t drop = (int32_t)rng_below(&rng, (uint64_t)n);
                seq_drop(many.seq, drop);
                n -= drop;
            }
            t += n;
        }
        assert_memory_equal(one.logits, many.logits, 96 * (size_t)g.n_vocab * sizeof(float));
        rig_close(&one);
        rig_close(&many);
        golden_close(&g);
    }
}

/* Marks, forks and files in the middle of a text leave the rest as had they never been made. */
static void snapshots_leave_no_trace(void **state) {
    (void)state;
    for (int i = 0; i < N_FAMILY; i++) {
        struct golden g;
        struct rig plain, r;
        struct err e = {0};
        golden_open(&g, families[i], CPU_ISA_BEST);
        uint32_t type = i % 2 ? QUANT_F16 : QUANT_F32;
        rig_open_types(&plain, g.m, type, 4);
        rig_open_types(&r, g.m, type, 4);
        static const int32_t cuts[] = {100, 7, 1, 3, 50, 9, 30};
        int32_t at = 0;
        for (int k = 0; k < 7; k++) {
            run_tokens(&plain, plain.seq, g.tokens + at, cuts[k], cuts[k] == 7);
            at += cuts[k];
        }
        at = 0;
        struct checkpoint *mark, *older = NULL;
        struct seq *fork, *loaded;
        char path[400];
        void *extra;
        size_t n_extra;
        for (int k = 0; k < 7; k++) {
            run_tokens(&r, r.seq, g.tokens + at, cuts[k], cuts[k] == 7);
            at += cuts[k];
            assert_int_equal(seq_mark(r.seq, &mark, &e), 0);
            assert_int_equal(seq_fork(r.seq, &fork, &e), 0);
            snprintf(path, sizeof path, "%s/%s.seq", scratch, g.name);
            if (seq_save(r.seq, path, "hello", 5, &e)) fail_msg("%s", e.text);
            /* wander off, in the original and in the fork */
            const float *logits;
            const struct batch_item astray[2] = {
                {.seq = r.seq, .tokens = g.tokens + 5, .n_tok = 20, .want = WANT_LAST},
                {.seq = fork, .tokens = g.tokens + 60, .n_tok = 70, .want = WANT_LAST}};
            if (forward_run(r.f, astray, 2, &logits, &e)) fail_msg("%s", e.text);
            seq_free(fork);
            /* pages of both marks to the host, some or all: what they share is copied once */
            if (older) {
                int32_t n_old = checkpoint_n_pooled(older), n_all = checkpoint_n_pooled(mark);
                uint64_t bytes = checkpoint_host_bytes(r.pool);
                assert_int_equal(checkpoint_page_out(mark, k, &e), k < n_all ? k : n_all);
                assert_int_equal(checkpoint_page_out(older, 100, &e), n_old);
                assert_int_equal(checkpoint_n_pooled(older), 0);
                assert_true(checkpoint_host_bytes(r.pool) >= bytes);
            }
            if (k % 2) checkpoint_page_out(mark, 100, &e);
            if (k == 3) { /* page by page, others running meanwhile */
                int32_t n_call = 0, rc;
                struct batch_item other = {.tokens = g.tokens + 7, .n_tok = 3, .want = WANT_LAST};
                assert_int_equal(seq_new(&other.seq, r.pool, &e), 0);
                while (!(rc = checkpoint_restore(r.seq, mark, n_call++ == 0, 1, &e)))
                    if (forward_run(r.f, &other, 1, &logits, &e)) fail_msg("%s", e.text);
                assert_int_equal(rc, 1);
                assert_int_equal(n_call, (at + g.m->hp.n_meta + KV_PAGE - 1) / KV_PAGE);
                seq_free(other.seq);
            } else if (k % 3 == 0) {
                assert_int_equal(seq_rewind(r.seq, mark, &e), 0);
            } else if (k % 3 == 1) {
                seq_free(r.seq);
                assert_int_equal(seq_from_checkpoint(r.pool, mark, &r.seq, &e), 0);
            } else {
                if (seq_load(r.pool, path, &loaded, &extra, &n_extra, &e)) fail_msg("%s", e.text);
                assert_int_equal(n_extra, 5);
                assert_memory_equal(extra, "hello", 5);
                mem_free(extra);
                seq_free(r.seq);
                r.seq = loaded;
            }
            checkpoint_free(older);
            older = mark;
            assert_int_equal(seq_pos(r.seq), at);
        }
        checkpoint_free(older);
        assert_int_equal(checkpoint_host_bytes(r.pool), 0);
        assert_memory_equal(plain.logits, r.logits,
                            (size_t)g.n_tok * (size_t)g.n_vocab * sizeof(float));
        /* nothing leaked: as much is free as beside the sequence that was left alone, but for rows in
         * front of it, of which a loaded sequence has a copy of its own */
        int64_t copied = seq_pool_free_ctx(plain.pool) - seq_pool_free_ctx(r.pool);
        assert_true(copied >= 0 && copied <= g.m->hp.n_meta / KV_PAGE * KV_PAGE);
        rig_close(&plain);
        rig_close(&r);
        golden_close(&g);
    }
}

/* ---- hostile files ---- */

static int32_t item_bytes(const struct gguf_kv *kv) {
    enum gguf_type t = kv->type == GGUF_ARR ? kv->item_type : kv->type;
    return t == GGUF_BOOL ? 1 : t == GGUF_U32 || t == GGUF_I32 || t == GGUF_F32 ? 4 : 0;
}

/* Opens the file and, if that is possible, runs a few tokens. Whatever it is, it ends in a sentence or in
 * logits; a device that has failed stays so and is replaced. Returns true if it was refused. */
static bool try_file(struct golden *g, const char *path) {
    struct model *m;
    struct seq_pool *pool = NULL;
    struct seq *s = NULL;
    struct forward *f = NULL;
    struct err e = {0};
    const struct seq_pool_params p = {
        .n_slot = 1, .n_ctx = 128, .k_type = QUANT_F32, .v_type = QUANT_F32};
    int rc = model_open(&m, path, g->dev, true, &e);
    bool refused = rc != 0;
    if (!rc) rc = seq_pool_new(&pool, m, &p, &e);
    if (!rc) rc = seq_new(&s, pool, &e);
    if (!rc) rc = forward_new(&f, m, pool, 24, 1, &e);
    const struct batch_item run = {.seq = s, .tokens = g->tokens, .n_tok = 20, .want = WANT_LAST};
    const float *logits;
    if (!rc) rc = forward_run(f, &run, 1, &logits, &e);
    if (rc) assert_true(strlen(e.text) > 10);
    seq_free(s);
    forward_free(f);
    seq_pool_free(pool);
    if (!refused) model_close(m);
    if (rc && !refused) {
        g->dev->ops->close(g->dev);
        assert_int_equal(cpu_open(&g->dev, 1, CPU_ISA_BEST, &e), 0);
    }
    return refused;
}

/* Every key of the family, one after the other, says something else. */
static void strange_keys_are_refused_or_run(void **state) {
    (void)state;
    static const uint32_t values[] = {0, 1, 3, 0x7fffffff, 0xffffffff};
    for (int i = 0; i < N_FAMILY; i++) {
        struct golden g;
        struct gguf *gguf;
        struct err e = {0};
        char path[400], prefix[80], *text;
        size_t n, n_refused = 0, n_tried = 0;
        golden_open(&g, families[i], CPU_ISA_BEST);
        golden_build(g.spec, g.name, scratch, NULL, path, sizeof path);
        model_close(g.m);
        assert_int_equal(file_read(path, 1 << 26, &text, &n, &e), 0);
        assert_int_equal(gguf_open_memory(&gguf, text, n, path, &e), 0);
        uint64_t cursor = 0;
        struct slice arch;
        assert_true(gguf_next_str(gguf_find(gguf, "general.architecture"), &cursor, &arch));
        snprintf(prefix, sizeof prefix, "%.*s.", (int)arch.n, arch.p);
        for (size_t k = 0; k < gguf_n_kv(gguf); k++) {
            const struct gguf_kv *kv = gguf_kv_at(gguf, k);
            size_t width = (size_t)item_bytes(kv);
            if (!width || kv->key.n < strlen(prefix) ||
                memcmp(kv->key.p, prefix, strlen(prefix)) != 0)
                continue;
            char *item = text + ((const char *)kv->data - text) + (kv->n - 1) * width;
            char kept[4];
            memcpy(kept, item, width);
            for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
                memcpy(item, &values[v], width);
                if (memcmp(item, kept, width) == 0) continue;
                FILE *f = fopen(path, "wb");
                assert_non_null(f);
                assert_int_equal(fwrite(text, 1, n, f), n);
                assert_int_equal(fclose(f), 0);
                n_tried++;
                n_refused += try_file(&g, path);
            }
            memcpy(item, kept, width);
        }
        assert_true(n_tried > 20 && n_refused * 2 > n_tried);
        gguf_close(gguf);
        mem_free(text);
        g.dev->ops->close(g.dev);
        json_decref(g.spec);
        mem_free(g.want);
    }
}

/* ---- through the engine ---- */

enum { N_TEXT = 48 };
struct text {
    int32_t tokens[N_TEXT];
    int32_t n;
};

static bool keep_token(struct engine_job *j, int32_t token, bool is_end,
                       const struct sampler_probs *probs) {
    (void)is_end, (void)probs;
    struct text *t = j->ud;
    if (t->n < N_TEXT) t->tokens[t->n++] = token;
    return true;
}
static void no_more(struct engine_job *j) { (void)j; }

/* Drafts from the text itself, verified together and in part rejected, change no greedy token. Three tokens
 * far above all others make texts that repeat themselves, but not always in the same way. */
static void speculation_changes_no_greedy_text(void **state) {
    (void)state;
    static const struct logit_bias bias[3] = {{5, 100}, {9, 100}, {17, 100}};
    int32_t n_accepted = 0, n_rejected = 0;
    for (int i = 0; i < N_FAMILY; i++) {
        struct golden g;
        struct engine *engine;
        struct engine_params p;
        struct err e = {0};
        golden_open(&g, families[i], CPU_ISA_BEST);
        engine_defaults(&p);
        p.n_seq = 1;
        p.n_ctx = 512;
        p.k_type = p.v_type = QUANT_F32;
        p.deterministic = p.speculate = true;
        if (engine_new(&engine, g.m, NULL, &p, &e)) fail_msg("%s: %s", families[i], e.text);
        int32_t prompt[120];
        for (int32_t t = 0; t < 120; t++) prompt[t] = g.tokens[t % 24];
        struct text texts[2] = {{.n = 0}, {.n = 0}};
        for (int k = 0; k < 2; k++) {
            struct engine_job j = {.p.prompt = prompt,
                                   .p.n_prompt = 120,
                                   .p.max_tokens = N_TEXT,
                                   .p.no_speculation = k,
                                   .p.no_cache = true,
                                   .on_token = keep_token,
                                   .on_done = no_more,
                                   .ud = &texts[k]};
            sampler_defaults(&j.p.sampling);
            j.p.sampling.temperature = 0;
            j.p.sampling.bias = bias;
            j.p.sampling.n_bias = 3;
            if (engine_run(engine, &j, &e)) fail_msg("%s: %s", families[i], e.text);
            assert_int_equal(texts[k].n, N_TEXT);
            if (k ? j.stats.n_drafted : !j.stats.n_accepted)
                fail_msg("%s: %d drafted, %d accepted", families[i], j.stats.n_drafted,
                         j.stats.n_accepted);
            n_accepted += j.stats.n_accepted;
            n_rejected += j.stats.n_drafted - j.stats.n_accepted;
        }
        if (memcmp(texts[0].tokens, texts[1].tokens, sizeof texts[0].tokens))
            fail_msg("%s: speculation changes the text", families[i]);
        engine_free(engine);
        golden_close(&g);
    }
    assert_true(n_accepted > N_FAMILY && n_rejected > N_FAMILY);
}

static void damaged_and_foreign_files_are_refused(void **state) {
    (void)state;
    struct golden a, b;
    struct rig r, s;
    struct err e = {0};
    golden_open(&a, "qwen35moe", CPU_ISA_BEST);
    golden_open(&b, "qwen35", CPU_ISA_BEST);
    rig_open(&r, a.m);
    rig_open(&s, b.m);
    run_tokens(&r, r.seq, a.tokens, 70, false);
    char path[400], *text;
    snprintf(path, sizeof path, "%s/x.seq", scratch);
    assert_int_equal(seq_save(r.seq, path, NULL, 0, &e), 0);
    struct seq *q;
    void *extra;
    size_t n, n_extra;
    assert_int_equal(seq_load(s.pool, path, &q, &extra, &n_extra, &e), CHIMERE_EMISMATCH);
    assert_int_equal(file_read(path, 1 << 26, &text, &n, &e), 0);
    for (size_t at = 0; at < n; at += 1 + n / 97) {
        FILE *f = fopen(path, "wb");
        text[at] ^= 0x40;
        fwrite(text, 1, n, f);
        fclose(f);
        text[at] ^= 0x40;
        assert_true(seq_load(r.pool, path, &q, &extra, &n_extra, &e) < 0);
        assert_null(q);
    }
    for (size_t cut = 0; cut < n; cut += 1 + n / 31) {
        FILE *f = fopen(path, "wb");
        fwrite(text, 1, cut, f);
        fclose(f);
        assert_true(seq_load(r.pool, path, &q, &extra, &n_extra, &e) < 0);
    }
    mem_free(text);
    rig_close(&r);
    rig_close(&s);
    golden_close(&a);
    golden_close(&b);
}

/* Sequences of one batch, one of them fed with tokens whose embedding is NaN or 1e30: the others' bits do
 * not move, and the sick one's own logits say so. */
/* Gives two tokens a NaN and a huge embedding, in a copy that is returned: no file with a NaN would open. */
static float *poison(struct weight *embd) {
    size_t width = (size_t)embd->n_in, n = width * (size_t)embd->n_out;
    assert_int_equal(embd->type, QUANT_F32);
    float *x = mem_alloc_array(n, sizeof *x);
    assert_non_null(x);
    memcpy(x, embd->data, n * sizeof *x);
    for (size_t c = 0; c < width; c++) {
        x[NAN_TOKEN * width + c] = NAN;
        x[HUGE_TOKEN * width + c] = 1e30f;
    }
    embd->data = x;
    return x;
}

static void a_neighbours_nan_stays_the_neighbours(void **state) {
    (void)state;
    for (int i = 0; i < N_FAMILY; i++) {
        struct golden g;
        struct rig alone, r;
        struct err e = {0};
        golden_open(&g, families[i], CPU_ISA_BEST);
        const void *clean = g.m->weights.global.token_embd.data;
        float *poisoned = poison(&g.m->weights.global.token_embd);
        rig_open(&alone, g.m);
        rig_open(&r, g.m);
        for (int32_t t = 0; t < 80; t++)
            if (g.tokens[t] == NAN_TOKEN || g.tokens[t] == HUGE_TOKEN) g.tokens[t] = 5;
        for (int32_t t = 0; t < 40; t++) run_tokens(&alone, alone.seq, g.tokens + t, 1, false);
        struct seq *sick;
        assert_int_equal(seq_new(&sick, r.pool, &e), 0);
        const float *logits = NULL;
        for (int32_t t = 0; t < 40; t++) {
            const int32_t bad[3] = {t % 2 ? NAN_TOKEN : HUGE_TOKEN, 7, HUGE_TOKEN};
            const struct batch_item both[2] = {
                {.seq = sick, .tokens = bad, .n_tok = 1 + t % 3, .want = WANT_LAST},
                {.seq = r.seq, .tokens = g.tokens + t, .n_tok = 1, .want = WANT_LAST}};
            if (forward_run(r.f, both, 2, &logits, &e)) fail_msg("%s", e.text);
            const float *row = logits + g.n_vocab, *want = alone.logits + t * g.n_vocab;
            for (int32_t k = 0; k < g.n_vocab;
                 k++) /* a tied head multiplies with the bad rows themselves */
                if (k != NAN_TOKEN && k != HUGE_TOKEN)
                    assert_memory_equal(row + k, want + k, sizeof(float));
        }
        assert_true(isnan(logits[0]));
        seq_free(sick);
        rig_close(&alone);
        rig_close(&r);
        g.m->weights.global.token_embd.data = clean;
        mem_free(poisoned);
        golden_close(&g);
    }
}

/* The factor of the last layer's result: the norm after it divides by the same factor. */
static bool scales_all(const struct golden *g, const char *name) {
    char last[64];
    snprintf(last, sizeof last, "model.layers.%d.layer_scalar", g->m->hp.n_layer - 1);
    return strcmp(name, last) == 0;
}

static void every_tensor_matters(void **state) {
    (void)state;
    if (TEST_SLOWNESS > 1) skip(); /* of a model's arithmetic, not of its memory */
    for (int i = 0; i < N_FAMILY; i++) {
        struct golden g;
        golden_open(&g, families[i], CPU_ISA_BEST);
        size_t k;
        json_t *t;
        json_array_foreach(json_object_get(g.spec, "tensors"), k, t) {
            const char *name = json_string_value(json_object_get(t, "name"));
            if (strncmp(name, "mtp.", 4) == 0) continue;
            if (scales_all(&g, name)) continue;
            char path[400];
            struct rig r;
            golden_build(g.spec, g.name, scratch, name, path, sizeof path);
            struct model *m = open_model(g.dev, path);
            rig_open(&r, m);
            run_tokens(&r, r.seq, g.tokens, g.n_tok, false);
            double d = worst(r.logits, g.want, (size_t)g.n_tok * (size_t)g.n_vocab) / g.range;
            if (!(d > 1e-2))
                fail_msg("%s: %s moves the logits by only %.1e of the range", g.name, name, d);
            rig_close(&r);
            model_close(m);
        }
        golden_close(&g);
    }
}

static void the_prediction_block_agrees(void **state) {
    (void)state;
    struct golden g;
    struct rig r;
    struct err e = {0};
    golden_open(&g, "qwen35moe", CPU_ISA_BEST);
    assert_int_equal(g.m->hp.n_nextn, 1);
    rig_open(&r, g.m);
    size_t n;
    float *want = golden_floats("qwen35moe", ".mtp", &n);
    run_tokens(&r, r.seq, g.tokens, g.n_tok, false);
    float *hidden =
        g.dev->ops->alloc(g.dev, (size_t)g.n_tok * (size_t)g.m->hp.n_embd * sizeof(float));
    g.dev->ops->copy(g.dev, hidden, forward_hidden(r.f),
                     (size_t)g.n_tok * (size_t)g.m->hp.n_embd * sizeof(float));
    /* in uneven pieces: each call tells the logits of its last pair */
    for (int32_t at = 0, step = 1; at < g.n_tok - 1; at += step, step = step % 23 + 3) {
        if (step > g.n_tok - 1 - at) step = g.n_tok - 1 - at;
        const struct mtp_item run = {.seq = r.seq,
                                     .tokens = g.tokens + at + 1,
                                     .n_tok = step,
                                     .pos = at,
                                     .hidden = hidden + (int64_t)at * g.m->hp.n_embd,
                                     .want = true};
        const float *logits, *next;
        if (forward_mtp(r.f, &run, 1, &logits, &next, &e)) fail_msg("%s", e.text);
        const float *row = want + (int64_t)(at + step - 1) * g.n_vocab;
        if (!(worst(logits, row, (size_t)g.n_vocab) / g.range <= 1e-4))
            fail_msg("pair %d is off", at + step - 1);
        assert_int_equal(best(logits, g.n_vocab), best(row, g.n_vocab));
    }
    g.dev->ops->free(g.dev, hidden);
    mem_free(want);
    rig_close(&r);
    golden_close(&g);
}

/* The head's first rows, from the file, as 4 bits can hold them, times `hidden`. */
static void short_logits(const struct model *m, const float *hidden, int32_t n_id, float *out) {
    const struct gguf_tensor *t = gguf_find_tensor(m->gguf, "output.weight");
    size_t n = (size_t)m->hp.n_embd;
    float *row = mem_alloc_array(n, sizeof *row);
    unsigned char *code = mem_alloc(4 * n);
    assert_int_equal(t->type, QUANT_F32);
    for (int32_t i = 0; i < n_id; i++) {
        double sum = 0;
        memcpy(row, t->data + (size_t)i * n * sizeof *row, n * sizeof *row);
        assert_true(quant_traits(QUANT_Q4_0)->encode(row, code, n, NULL));
        quant_traits(QUANT_Q4_0)->decode(code, row, n);
        for (size_t k = 0; k < n; k++) sum += (double)row[k] * hidden[k];
        out[i] = (float)sum;
    }
    mem_free(code);
    mem_free(row);
}

/* Both places read the short head: logits against a product of our own, and never an id beyond it. */
static void drafts_read_the_first_rows_in_four_bits(void **state) {
    (void)state;
    enum { ASKED = 40, N_ID = 64 };
    struct golden g;
    struct rig r;
    struct err e = {0};
    golden_open(&g, "qwen35moe", CPU_ISA_BEST);
    size_t n = (size_t)g.m->hp.n_embd;
    float want[N_ID], *row = mem_alloc_array(n, sizeof *row);
    uint64_t bytes = draft_head_bytes(&g.m->hp, NULL, ASKED);
    assert_int_equal(draft_head_rows(&g.m->hp, ASKED), N_ID); /* whole units of 32 */
    assert_int_equal(bytes, N_ID * n / 32 * 18);
    assert_int_equal(draft_head_rows(&g.m->hp, 0), 0); /* a small vocabulary needs none */
    if (draft_head_add(g.m, ASKED, true, &e)) fail_msg("%s", e.text);
    assert_int_equal(draft_head_n_id(g.m), N_ID);
    rig_open(&r, g.m);
    run_tokens(&r, r.seq, g.tokens, 12, false);
    const struct mtp_item run = {.seq = r.seq,
                                 .tokens = g.tokens + 1,
                                 .n_tok = 11,
                                 .hidden = forward_hidden(r.f),
                                 .want = true};
    const float *logits, *next;
    if (forward_mtp(r.f, &run, 1, &logits, &next, &e)) fail_msg("%s", e.text);
    g.dev->ops->download(g.dev, row, next, n * sizeof *row);
    short_logits(g.m, row, N_ID, want);
    double off =
        worst(logits, want, N_ID) / g.range; /* devices round the rows that they multiply */
    if (!(off <= 1e-2)) fail_msg("logits are off by %.1e of the range", off);
    rig_close(&r);
    mem_free(row);
    golden_close(&g);
}

static void large_vocabularies_get_a_short_head(void **state) {
    (void)state;
    struct hparams hp = {.n_embd = 2048, .n_vocab = 248320, .n_logit = 248320};
    assert_int_equal(draft_head_rows(&hp, 0), DRAFT_HEAD_ROWS);
    assert_int_equal(draft_head_bytes(&hp, NULL, 0), (uint64_t)DRAFT_HEAD_ROWS * 2048 / 32 * 18);
    assert_int_equal(draft_head_rows(&hp, 32768), 32768);
    assert_int_equal(draft_head_rows(&hp, 248320), 0);
    assert_int_equal(draft_head_rows(&hp, INT32_MAX), 0);
    hp.n_logit = hp.n_vocab / 2; /* a slice */
    assert_int_equal(draft_head_rows(&hp, 0), 0);
    hp.n_logit = hp.n_vocab;
    hp.n_embd = 2000; /* no whole blocks */
    assert_int_equal(draft_head_rows(&hp, 0), 0);
}

static void encoders_agree(void **state) {
    (void)state;
    static const char *const names[] = {"bert",
                                        "bert_roberta",
                                        "bert_distil",
                                        "bertrank",
                                        "bertrank_roberta",
                                        "bert_mpnet",
                                        "bert_nomic",
                                        "bert_modern",
                                        "bert_gemma",
                                        "bert_jina2",
                                        "bert_jina3",
                                        "bertrank_distil",
                                        "bertrank_modern",
                                        "bertrank_modern_cls"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct golden g;
        golden_open(&g, names[i], CPU_ISA_BEST);
        int32_t d = g.m->hp.n_embd, types[3][MAX_TOK];
        struct encode_text texts[3];
        json_t *cuts = json_object_get(g.spec, "texts");
        for (size_t k = 0; k < 3; k++) {
            json_t *c = json_array_get(cuts, k);
            int32_t from = (int32_t)json_integer_value(json_array_get(c, 0));
            int32_t n = (int32_t)json_integer_value(json_array_get(c, 1)) - from;
            for (int32_t t = 0; t < n; t++) types[k][t] = t > n / 2;
            texts[k] = (struct encode_text){g.tokens + from,
                                            g.m->hp.n_token_type > 1 ? types[k] : NULL, n};
        }
        struct forward *f;
        struct err e = {0};
        if (forward_new(&f, g.m, NULL, MAX_TOK, 8, &e)) fail_msg("%s", e.text);
        float out[3 * 64];
        if (forward_encode(f, texts, 3, out, &e)) fail_msg("%s", e.text);
        for (int k = 0; k < 3; k++) {
            double w = g.m->hp.pooling == POOL_RANK ? fabs(out[k * d] - g.want[k])
                                                    : worst(out + k * d, g.want + k * d, (size_t)d);
            double most = tolerance > 1e-4 ? tolerance * g.range : 1e-5 * g.range + 1e-6;
            if (!(w <= most)) fail_msg("%s, text %d: off by %.2e", names[i], k, w);
        }
        forward_free(f);
        golden_close(&g);
    }
}

/* An adapter of a matrix that multiplies in parts (Mamba's x_proj): the logits are those of a model with the
 * product added to its weights. */
static void adapters_reach_every_part_of_a_fused_matrix(void **state) {
    (void)state;
    struct golden g;
    struct err e = {0};
    golden_open(&g, "mamba", CPU_ISA_BEST);
    struct ssm_part {
        struct weight *w;
    } parts[3] = {{&g.m->weights.layer[1].ssm.x_dt},
                  {&g.m->weights.layer[1].ssm.x_b},
                  {&g.m->weights.layer[1].ssm.x_c}};
    uint64_t n_in = (uint64_t)parts[0].w->n_in, n_out = 0;
    for (int i = 0; i < 3; i++) n_out += (uint64_t)parts[i].w->n_out;
    float *a = make_values("a", n_in * 2, 0, .3, false),
          *b = make_values("b", n_out * 2, 0, .3, false);
    char path[400];
    snprintf(path, sizeof path, "%s/x.lora", scratch);
    struct gguf_writer *w;
    assert_int_equal(gguf_writer_new(&w, path, 0, 0, &e), 0);
    gguf_put_str(w, "general.type", "adapter", 7);
    gguf_put_str(w, "adapter.type", "lora", 4);
    gguf_put_str(w, "general.architecture", "mamba", 5);
    gguf_put_f32(w, "adapter.lora.alpha", 3);
    gguf_add_tensor(w, "blk.1.ssm_x.weight.lora_a", QUANT_F32, 2, (uint64_t[]){n_in, 2});
    gguf_add_tensor(w, "blk.1.ssm_x.weight.lora_b", QUANT_F32, 2, (uint64_t[]){2, n_out});
    assert_int_equal(gguf_write_data(w, a, n_in * 2 * 4, &e), 0);
    assert_int_equal(gguf_write_data(w, b, n_out * 2 * 4, &e), 0);
    assert_int_equal(gguf_writer_close(w, &e), 0);
    struct lora *l;
    if (lora_open(&l, g.m, path, &e)) fail_msg("%s", e.text);
    struct rig with, merged;
    rig_open(&with, g.m);
    const struct lora_use use = {l, 0.5f};
    const struct batch_item run = {.seq = with.seq,
                                   .tokens = g.tokens,
                                   .n_tok = 40,
                                   .want = WANT_ALL,
                                   .loras = &use,
                                   .n_lora = 1};
    const float *logits;
    if (forward_run(with.f, &run, 1, &logits, &e)) fail_msg("%s", e.text);
    memcpy(with.logits, logits, 40 * (size_t)g.n_vocab * sizeof *logits);
    struct dev *dev = g.m->dev;
    void *merged_at[3];
    for (uint64_t i = 0, row = 0; i < 3; i++) {
        uint64_t n = (uint64_t)parts[i].w->n_out;
        float *sum = mem_alloc_array(n * n_in, sizeof(float));
        dev->ops->download(dev, sum, parts[i].w->data, n * n_in * sizeof(float));
        for (uint64_t r = 0; r < n; r++, row++)
            for (uint64_t c = 0; c < n_in; c++)
                sum[r * n_in + c] +=
                    0.5f * 3 / 2 * (b[row * 2] * a[c] + b[row * 2 + 1] * a[n_in + c]);
        merged_at[i] = dev->ops->alloc(dev, n * n_in * sizeof(float));
        assert_non_null(merged_at[i]);
        dev->ops->upload(dev, merged_at[i], sum, n * n_in * sizeof(float));
        parts[i].w->data = merged_at[i];
        mem_free(sum);
    }
    rig_open(&merged, g.m);
    run_tokens(&merged, merged.seq, g.tokens, 40, false);
    size_t n = 40 * (size_t)g.n_vocab;
    assert_true(worst(with.logits, merged.logits, n) / g.range <= 1e-4);
    assert_true(worst(with.logits, g.want, n) / g.range > 1e-2);
    rig_close(&with);
    rig_close(&merged);
    for (int i = 0; i < 3; i++) dev->ops->free(dev, merged_at[i]);
    mem_free(a);
    mem_free(b);
    lora_close(l);
    golden_close(&g);
}

/* Heads of 16 cannot hold the blocks of a quantised cache: refused in a sentence. */
static void caches_that_cannot_be_are_refused(void **state) {
    (void)state;
    struct golden g;
    struct seq_pool *pool;
    struct err e = {0};
    golden_open(&g, "qwen3", CPU_ISA_BEST);
    const struct seq_pool_params bad = {
        .n_slot = 1, .n_ctx = 64, .k_type = QUANT_Q8_0, .v_type = QUANT_Q8_0};
    assert_int_equal(seq_pool_new(&pool, g.m, &bad, &e), CHIMERE_EUNSUPPORTED);
    assert_non_null(strstr(e.text, "16"));
    golden_close(&g);
}

static int make_scratch(void **state) {
    (void)state;
    snprintf(scratch, sizeof scratch, "golden-%ld", (long)getpid());
    return mkdir(scratch, 0700);
}

static int drop_scratch(void **state) {
    (void)state;
    char cmd[100];
    snprintf(cmd, sizeof cmd, "rm -rf %s", scratch);
    return system(cmd);
}

int main(void) {
#ifdef CHIMERE_EMULATE
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_at_once_and_behind_a_file),
        cmocka_unit_test(states_cross_between_devices),
        cmocka_unit_test(drafts_read_the_first_rows_in_four_bits),
        cmocka_unit_test(encoders_agree),
        cmocka_unit_test(adapters_reach_every_part_of_a_fused_matrix),
    };
#else
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_transformers),
        cmocka_unit_test(short_runs_give_the_bits_of_single_steps),
        cmocka_unit_test(snapshots_leave_no_trace),
        cmocka_unit_test(speculation_changes_no_greedy_text),
        cmocka_unit_test(strange_keys_are_refused_or_run),
        cmocka_unit_test(damaged_and_foreign_files_are_refused),
        cmocka_unit_test(a_neighbours_nan_stays_the_neighbours),
        cmocka_unit_test(the_prediction_block_agrees),
        cmocka_unit_test(drafts_read_the_first_rows_in_four_bits),
        cmocka_unit_test(large_vocabularies_get_a_short_head),
        cmocka_unit_test(encoders_agree),
        cmocka_unit_test(adapters_reach_every_part_of_a_fused_matrix),
        cmocka_unit_test(caches_that_cannot_be_are_refused),
        cmocka_unit_test(every_tensor_matters),
#ifdef GOLDEN_CUDA
        cmocka_unit_test(states_cross_between_devices),
#endif
    };
#endif
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
