/* test_tensor.c: a model in slices on several devices says what it says on one; a device that is lost is an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "draft_rounds.h"
#include "golden_model.h"
#include "lora_file.h"
#include "scratch.h"
#include "base/mem.h"
#include "convert/synth.h"
#include "engine/lm.h"
#include "engine/load.h"
#include "kernels/link.h"
#include "model/slice.h"

enum { MAX_VOCAB = 8192, N_TOK = 90, N_TOK_REF = 10, N_SAID = 24, MAX_CARD = 4 };
#define NANO TEST_DATA "/../../models/chimere-nano-bf16.gguf"

static const char *make(const char *shape, const char *mix, int32_t n_layer, bool is_hollow) {
    static char path[256];
    struct synth_result r;
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s-%s-%d.gguf", scratch, shape, mix, n_layer);
    const struct synth_options o = {shape, mix, path, (uint32_t)n_layer, 0, 512, is_hollow};
    if (synth_write(&o, &r, &e)) fail_msg("%s: %s", shape, e.text);
    return path;
}

/* The scalar reference multiplies quantized weights by floats; the processor's kernels round rows to 8 bits, and where
 * sums differ in their last bit, so does what is rounded. */
static bool use_ref;

static struct dev *open_cpu(void) {
    struct dev *d;
    struct err e = {0};
    if (use_ref ? cpu_open_ref(&d, &e) : cpu_open(&d, 1, CPU_ISA_BEST, &e)) fail_msg("%s", e.text);
    return d;
}

struct sliced {
    int32_t n;
    struct dev *dev[MAX_CARD];
    struct model *m[MAX_CARD];
    struct lora *lora[MAX_CARD]; /* NULL: none */
    struct lm *lm;
};

static const char *adapter; /* file that the runs apply; NULL: none */
static uint32_t cache_type; /* of keys and values */
static bool by_layer;       /* parts of the layers instead of slices */

static int open_one(struct sliced *s, const char *path, int32_t i, int32_t n, struct err *e) {
    static const uint64_t share[MAX_CARD] = {1, 1, 1, 1};
    struct layer_part part[MAX_CARD];
    if (!by_layer || n < 2) return model_open_slice(&s->m[i], path, s->dev[i], i, n, true, e);
    int rc = gpus_cut(path, share, n, part, e);
    return rc ? rc : model_open_part(&s->m[i], path, s->dev[i], NULL, part[i], true, e);
}

static void open_sliced(struct sliced *s, const char *path, int32_t n) {
    struct engine_params p;
    struct err e = {0};
    engine_defaults(&p);
    p.n_seq = 2;
    p.n_ctx = p.n_ctx_seq = 256;
    p.n_batch = N_TOK;
    p.k_type = p.v_type = cache_type;
    p.speculate = p.select = true;
    *s = (struct sliced){.n = n};
    for (int32_t i = 0; i < n; i++) {
        s->dev[i] = open_cpu();
        if (open_one(s, path, i, n, &e)) fail_msg("%s, slice %d of %d: %s", path, i, n, e.text);
        if (adapter && lora_open(&s->lora[i], s->m[i], adapter, &e)) fail_msg("%s", e.text);
        if (adapter && i) lora_join(s->lora[0], s->lora[i]);
    }
    int rc = n > 1 ? lm_open_parts(&s->lm, s->m, n, NULL, &p, &e)
                   : lm_open_model(&s->lm, s->m[0], &p, &e);
    if (rc) fail_msg("%s: %s", path, e.text);
}

static void close_sliced(struct sliced *s) {
    s->lm->ops->close(s->lm);
    for (int32_t i = 0; i < s->n; i++) {
        lora_close(s->lora[i]);
        model_close(s->m[i]);
        s->dev[i]->ops->close(s->dev[i]);
    }
}

static void run(struct sliced *s, struct seq *q, const int32_t *tokens, int32_t n, float *out) {
    const struct lora_use use = {s->lora[0], .7f};
    const struct batch_item r = {.seq = q,
                                 .tokens = tokens,
                                 .n_tok = n,
                                 .want = WANT_LAST,
                                 .loras = &use,
                                 .n_lora = adapter ? 1 : 0};
    const float *logits;
    struct err e = {0};
    if (s->lm->ops->run(s->lm, &r, 1, &logits, &e)) fail_msg("%s", e.text);
    memcpy(out, logits, (size_t)s->lm->n_vocab * sizeof *out);
}

/* Logits after a prompt, and after six steps of one token. */
static int32_t logits_of(const char *path, int32_t n, float *out) {
    struct sliced s;
    struct seq *q;
    struct err e = {0};
    int32_t tokens[N_TOK], n_tok = use_ref ? N_TOK_REF : N_TOK;
    open_sliced(&s, path, n);
    int32_t n_vocab = s.lm->n_vocab;
    assert_in_range(n_vocab, 1, MAX_VOCAB);
    for (int32_t i = 0; i < n_tok; i++) tokens[i] = i * 31 % (n_vocab < 500 ? n_vocab : 500);
    if (s.lm->ops->seq_new(s.lm, &q, &e)) fail_msg("%s", e.text);
    run(&s, q, tokens, n_tok - 6, out);
    for (int32_t i = n_tok - 6; i < n_tok; i++) run(&s, q, tokens + i, 1, out + n_vocab);
    assert_int_equal(s.lm->ops->seq_pos(s.lm, q), n_tok);
    s.lm->ops->seq_free(s.lm, q);
    close_sliced(&s);
    return n_vocab;
}

/* Largest difference in parts of the range of the logits. */
static double difference(const float *want, const float *got, int32_t n) {
    float low = want[0], high = want[0], most = 0;
    for (int32_t i = 0; i < n; i++) {
        low = fminf(low, want[i]);
        high = fmaxf(high, want[i]);
        most = fmaxf(most, fabsf(want[i] - got[i]));
        if (!isfinite(got[i])) return 1e9;
    }
    return (double)(most / (high - low));
}

static void check(const char *path, int32_t n, double limit) {
    static float want[2 * MAX_VOCAB], got[2 * MAX_VOCAB], again[2 * MAX_VOCAB];
    int32_t n_vocab = logits_of(path, 1, want);
    assert_int_equal(logits_of(path, n, got), n_vocab);
    double d[2] = {difference(want, got, n_vocab),
                   difference(want + n_vocab, got + n_vocab, n_vocab)};
    print_message("%s in %d: %.1e %.1e\n", strrchr(path, '/') + 1, n, d[0], d[1]);
    if (!(d[0] < limit && d[1] < limit)) fail_msg("%s in %d slices differs", path, n);
    if (use_ref) return;
    logits_of(path, n, again);
    if (memcmp(got, again, 2 * (size_t)n_vocab * sizeof *got))
        fail_msg("%s in %d slices: another run, other bits", path, n);
}

static void nano_is_the_same_in_slices(void **state) {
    (void)state;
    for (int32_t n = 2; n <= MAX_CARD; n++) check(NANO, n, 1e-4);
}

static void families_are_the_same_in_slices(void **state) {
    (void)state;
    static const char *const shapes[] = {"qwen35moe-mini", "nemotron-mini", "granite-h-mini",
                                         "falcon-h1-mini", "mamba-mini",    "jamba-mini"};
    use_ref = true;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        check(make(shapes[k], "q8", 4, false), 2, 1e-4);
    check(make("qwen35moe-mini", "q4km", 4, false), 2, 1e-4);
    use_ref = false;
}

static void build_golden(const char *name, char *out, size_t size) {
    char path[400];
    snprintf(path, sizeof path, TEST_DATA "/golden/%s.json", name);
    json_t *spec = json_load_file(path, 0, NULL);
    assert_non_null(spec);
    golden_build(spec, name, scratch, NULL, out, size);
    json_decref(spec);
}

/* Every family that can be cut, in floats: biases, sinks, gates, norms and fused tensors of each. */
static void golden_families_are_the_same_in_slices(void **state) {
    (void)state;
    static const char *const names[] = {
        "qwen35moe", "qwen35",     "qwen3next", "llama",  "qwen2",          "qwen3",     "qwen3moe",
        "mamba",     "mamba2",     "granite_h", "jamba",  "nemotron_h_moe", "falcon-h1", "bamba",
        "granite",   "granitemoe", "lfm2_moe",  "gemma3", "gpt_oss",        "mixtral"};
    int n_cut = 0;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        char out[400];
        struct err e = {0};
        struct model *m;
        build_golden(names[k], out, sizeof out);
        struct dev *d = open_cpu();
        int rc = model_open_slice(&m, out, d, 0, 2, true, &e);
        if (rc) print_message("%s: %s\n", names[k], e.text);
        else check(out, 2, 1e-4);
        assert_true(!rc || rc == CHIMERE_ELIMIT || rc == CHIMERE_EUNSUPPORTED);
        n_cut += !rc;
        model_close(m);
        d->ops->close(d);
    }
    assert_true(n_cut >= 16);
}

static void check_adapter(const char *name, int n_least) {
    static float want[2 * MAX_VOCAB], got[2 * MAX_VOCAB];
    char path[64], model[400];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/adapter.gguf", scratch);
    build_golden(name, model, sizeof model);
    int32_t n_vocab = logits_of(model, 1, want);
    if (lora_file_write(model, path, &e) < n_least) fail_msg("%s: %s", name, e.text);
    adapter = path;
    logits_of(model, 1, got);
    if (difference(want, got, n_vocab) < 1e-3) fail_msg("%s: no change", name);
    check(model, 2, 1e-4);
    adapter = NULL;
}

/* An adapter of every matrix is divided as its matrices are, and changes the logits. */
static void adapters_are_the_same_in_slices(void **state) {
    (void)state;
    static const char *const names[] = {"qwen35moe", "qwen35", "llama",     "mamba2",
                                        "falcon-h1", "bamba",  "granite_h", "gpt_oss"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) check_adapter(names[k], 3);
    /* a fused matrix that is multiplied through views */
    lora_file_only = "shortconv.in_proj.weight";
    check_adapter("lfm2_moe", 1);
    lora_file_only = NULL;
}

/* ---- drafts ---- */

static void drafts_of(const char *path, int32_t n, struct drafted *out) {
    struct sliced s;
    open_sliced(&s, path, n);
    draft_rounds(s.lm, 40, DRAFT_ROUNDS, out);
    close_sliced(&s);
}

static void drafts_are_the_same_on_several_devices(void **state) {
    (void)state;
    struct drafted want, got;
    drafts_of(NANO, 1, &want);
    for (int32_t layer = 0; layer < 2; layer++)
        for (int32_t n = 2; n <= 4 - layer; n++) {
            by_layer = layer;
            drafts_of(NANO, n, &got);
            by_layer = false;
            if (memcmp(&want, &got, sizeof want))
                fail_msg("%d devices, %s: other drafts", n, layer ? "layers" : "slices");
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

static void say(struct engine *g, int32_t topic, struct said *s) {
    int32_t prompt[70];
    struct err e = {0};
    for (int32_t i = 0; i < 70; i++) prompt[i] = (i * 7 + topic * 13) % 500;
    *s = (struct said){.n = 0};
    struct engine_job j = {.p.prompt = prompt,
                           .p.n_prompt = 40 + topic,
                           .p.max_tokens = N_SAID,
                           .on_token = hear,
                           .on_done = ended,
                           .ud = s};
    sampler_defaults(&j.p.sampling);
    j.p.sampling.seed = (uint64_t)topic;
    j.p.sampling.ignore_eos = true;
    if (topic % 2) j.p.sampling.temperature = 0;
    if (engine_run(g, &j, &e)) fail_msg("%s", e.text);
}

static int open_loaded(struct loaded *l, const char *path, int32_t n, bool speculate,
                       const char *lora, struct err *e) {
    struct load_params p;
    struct dev *more[GPUS_MAX];
    load_defaults(&p);
    p.path = path;
    p.quiet = true;
    p.plan.n_ctx = 256;
    p.plan.n_seq = 2;
    p.plan.engine.speculate = speculate;
    p.opened = open_cpu();
    p.split = SPLIT_TENSOR;
    p.more = more;
    p.n_more = n - 1;
    p.loras = &lora;
    p.n_lora = lora != NULL;
    for (int32_t i = 0; i < n - 1; i++) more[i] = open_cpu();
    return load_open(l, &p, e);
}

/* Sampled with and without drafts, on 1 to 4 devices; what a slice takes is its share of the whole. */
static void engines_say_the_same(void **state) {
    (void)state;
    enum { N_TOPIC = 6 };
    static struct said want[N_TOPIC];
    uint64_t whole = 0;
    for (int32_t n = 1; n <= MAX_CARD; n++)
        for (int32_t speculate = 0; speculate < 2; speculate++) {
            struct loaded l;
            struct err e = {0};
            if (open_loaded(&l, NANO, n, speculate, NULL, &e)) fail_msg("%s", e.text);
            assert_int_equal(l.n_replica, n - 1);
            if (n == 1) whole = l.plan.weight_bytes;
            /* the table of embeddings is on each: 4 of 14 MB */
            if (n > 1) assert_true(l.plan.weight_bytes < whole * 3 / 4);
            if (n > 1) assert_true(l.plan.weight_bytes > whole / (uint64_t)n / 2);
            if (n > 1) assert_true(l.plan.state_bytes > 0);
            for (int32_t k = 0; k < N_TOPIC; k++) {
                struct said s;
                say(l.engine, k, &s);
                assert_int_equal(s.n, N_SAID);
                if (n == 1 && !speculate) want[k] = s;
                if (memcmp(&want[k], &s, sizeof s))
                    fail_msg("%d devices, topic %d: other tokens", n, k);
            }
            load_close(&l);
        }
}

static int refused(const char *path, int32_t n, const char *lora, struct err *e) {
    struct loaded l;
    *e = (struct err){0};
    int rc = open_loaded(&l, path, n, false, lora, e);
    if (!rc) load_close(&l);
    return rc;
}

static void what_cannot_be_cut_says_so(void **state) {
    (void)state;
    struct err e;
    assert_int_equal(refused(NANO, 5, NULL, &e), CHIMERE_ELIMIT);
    assert_non_null(strstr(e.text, "5 cards, but layer 3 of the model has 4 heads"));
    assert_true(refused(NANO, 2, "x.gguf", &e) < 0);
    assert_non_null(strstr(e.text, "x.gguf"));
    assert_int_equal(refused(make("zamba2-mini", "q8", 0, true), 2, NULL, &e),
                     CHIMERE_EUNSUPPORTED);
    assert_non_null(strstr(e.text, "cannot be cut into slices"));
}

/* What stays whole where blocks of 256 do not divide it. */
static void slices_end_where_blocks_do(void **state) {
    (void)state;
    static struct hparams hp;
    struct gguf *g;
    struct model_slice *s;
    struct err e = {0};
    char text[128];
    static const struct {
        const char *shape, *mix, *whole;
        int32_t n;
    } cases[] = {{"qwen35moe-mini", "q8", "", 2},
                 {"qwen35moe-mini", "q4km", "experts", 2},
                 {"granite-h-mini", "q8", "Mamba-2 heads", 2},
                 {"nemotron-mini", "q4km", "", 4},
                 {"falcon-h1-mini", "q8", "Mamba-2 heads", 2},
                 {"jamba-mini", "q4km", "Mamba-1", 2}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        if (gguf_open(&g, make(cases[k].shape, cases[k].mix, 12, true), &e) ||
            hparams_read(&hp, g, &e) || slice_new(&s, &hp, g, 1, cases[k].n, &e))
            fail_msg("%s", e.text);
        slice_whole_kinds(s, text, sizeof text);
        assert_string_equal(text, cases[k].whole);
        slice_free(s);
        gguf_close(g);
    }
}

/* ---- kept states ---- */

/* Part-way through a text: mark, go on, restore and go on again, on the sequence and on another; by a file too. The
 * bits are those of the first time. */
static void states_are_kept_in_slices(void **state) {
    (void)state;
    static float want[MAX_VOCAB], got[MAX_VOCAB];
    const char extra[] = "tokens";
    char path[64];
    struct sliced s;
    struct seq *q, *fork;
    struct checkpoint *m, *loaded;
    struct err e = {0};
    int32_t tokens[N_TOK];
    void *read = NULL;
    size_t n_read = 0;
    for (int32_t i = 0; i < N_TOK; i++) tokens[i] = i * 31 % 500;
    snprintf(path, sizeof path, "%s/state", scratch);
    open_sliced(&s, NANO, 2);
    const struct lm_mark_ops *ops = s.lm->ops->marks;
    size_t n_bytes = (size_t)s.lm->n_vocab * sizeof *want;
    if (s.lm->ops->seq_new(s.lm, &q, &e)) fail_msg("%s", e.text);
    run(&s, q, tokens, 70, want);
    if (ops->mark(s.lm, q, 0, &m, &e)) fail_msg("%s", e.text);
    run(&s, q, tokens + 70, 9, want);
    /* rewound, and forked */
    assert_int_equal(ops->restore(s.lm, q, m, true, 100, &e), 1);
    assert_int_equal(s.lm->ops->seq_pos(s.lm, q), 70);
    run(&s, q, tokens + 70, 9, got);
    assert_memory_equal(want, got, n_bytes);
    if (s.lm->ops->seq_new(s.lm, &fork, &e)) fail_msg("%s", e.text);
    assert_int_equal(ops->restore(s.lm, fork, m, true, 100, &e), 1);
    run(&s, fork, tokens + 70, 9, got);
    assert_memory_equal(want, got, n_bytes);
    s.lm->ops->seq_free(s.lm, fork);
    s.lm->ops->seq_free(s.lm, q);
    /* through a file */
    assert_int_equal(ops->page_out(s.lm, m, 100, &e), 2);
    assert_true(ops->host_bytes(s.lm) >= 2 * s.lm->page_bytes);
    if (ops->save(s.lm, m, path, extra, sizeof extra, &e)) fail_msg("%s", e.text);
    ops->checkpoint_free(s.lm, m);
    if (ops->load(s.lm, path, &loaded, &read, &n_read, &e)) fail_msg("%s", e.text);
    assert_int_equal(n_read, sizeof extra);
    assert_string_equal(read, extra);
    mem_free(read);
    if (s.lm->ops->seq_new(s.lm, &q, &e)) fail_msg("%s", e.text);
    assert_int_equal(ops->restore(s.lm, q, loaded, true, 1, &e), 0);
    assert_int_equal(ops->restore(s.lm, q, loaded, false, 1, &e), 1);
    run(&s, q, tokens + 70, 9, got);
    assert_memory_equal(want, got, n_bytes);
    s.lm->ops->seq_free(s.lm, q);
    ops->checkpoint_free(s.lm, loaded);
    close_sliced(&s);
}

enum { N_STATE = 60, N_DEFER = 4, N_MORE = 9 };

/* Loads the state of `from`, or computes it if from is NULL: a prompt, and deferred tokens. Saves it, and continues. */
static int32_t pass_state(const char *model, int32_t n, const char *from, const char *to,
                          float *out) {
    struct sliced s;
    struct seq *q;
    struct checkpoint *m = NULL;
    struct err e = {0};
    const char extra[] = "tokens";
    int32_t tokens[N_STATE + N_DEFER + N_MORE];
    void *read = NULL;
    size_t n_read;
    open_sliced(&s, model, n);
    const struct lm_ops *ops = s.lm->ops;
    int32_t n_vocab = s.lm->n_vocab;
    for (int32_t i = 0; i < N_STATE + N_DEFER + N_MORE; i++)
        tokens[i] = i * 31 % (n_vocab < 500 ? n_vocab : 500);
    if (ops->seq_new(s.lm, &q, &e)) fail_msg("%s", e.text);
    if (from) {
        if (ops->marks->load(s.lm, from, &m, &read, &n_read, &e))
            fail_msg("%s in %d: %s", model, n, e.text);
        assert_int_equal(n_read, sizeof extra);
        mem_free(read);
    } else {
        const struct batch_item tail = {
            .seq = q, .tokens = tokens + N_STATE, .n_tok = N_DEFER, .defer = true};
        run(&s, q, tokens, N_STATE, out);
        if (ops->run(s.lm, &tail, 1, NULL, &e) || ops->marks->mark(s.lm, q, 0, &m, &e))
            fail_msg("%s", e.text);
        assert_true(ops->marks->page_out(s.lm, m, 100, &e) >= 0);
    }
    if (ops->marks->save(s.lm, m, to, extra, sizeof extra, &e)) fail_msg("%s", e.text);
    if (ops->marks->restore(s.lm, q, m, true, 100, &e) != 1) fail_msg("%s", e.text);
    run(&s, q, tokens + N_STATE + N_DEFER, N_MORE, out);
    ops->marks->checkpoint_free(s.lm, m);
    ops->seq_free(s.lm, q);
    close_sliced(&s);
    return n_vocab;
}

static void assert_same_files(const char *a, const char *b) {
    char *x, *y = NULL;
    size_t n_x, n_y = 0;
    struct err e = {0};
    if (file_read(a, 1 << 28, &x, &n_x, &e) || file_read(b, 1 << 28, &y, &n_y, &e))
        fail_msg("%s", e.text);
    assert_int_equal(n_x, n_y);
    assert_memory_equal(x, y, n_x);
    mem_free(x);
    mem_free(y);
}

/* A state of one device passes through each split and back: the same bytes in each file, and the same logits. */
static void pass_through(const char *model, int32_t n_most) {
    static float want[MAX_VOCAB], got[MAX_VOCAB];
    char first[64], next[64];
    snprintf(first, sizeof first, "%s/first", scratch);
    snprintf(next, sizeof next, "%s/next", scratch);
    int32_t n_vocab = pass_state(model, 1, NULL, first, want);
    for (int32_t n = 2; n <= n_most; n++)
        for (int32_t layer = 0; layer < 2; layer++) {
            by_layer = layer && n == 2;
            pass_state(model, n, first, next, got);
            assert_same_files(first, next);
            if (difference(want, got, n_vocab) > 1e-4) fail_msg("%s in %d: other logits", model, n);
            pass_state(model, n, NULL, next, got); /* computed by the split, continued by one */
            by_layer = false;
            pass_state(model, 1, next, first, got);
            assert_same_files(first, next);
            if (difference(want, got, n_vocab) > 1e-4)
                fail_msg("%s from %d: other logits", model, n);
            if (n > 2) break;
        }
}

static void states_pass_from_split_to_split(void **state) {
    (void)state;
    static const char *const names[] = {"qwen35moe", "qwen3next", "mamba",   "mamba2",
                                        "falcon-h1", "bamba",     "lfm2_moe"};
    pass_through(NANO, 4);
    cache_type = 8; /* q8_0 */
    pass_through(NANO, 2);
    cache_type = 0;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        char model[400];
        build_golden(names[k], model, sizeof model);
        pass_through(model, 2);
    }
}

/* A file whose bytes are cut or changed is refused, by whatever is wrong with it. */
static void damaged_states_are_refused(void **state) {
    (void)state;
    struct sliced s;
    struct checkpoint *m;
    struct err e = {0};
    char path[64], *bytes;
    void *read;
    size_t n, n_read;
    snprintf(path, sizeof path, "%s/state", scratch);
    if (file_read(path, 1 << 28, &bytes, &n, &e)) fail_msg("%s", e.text);
    open_sliced(&s, NANO, 2);
    const struct lm_mark_ops *ops = s.lm->ops->marks;
    const size_t at[] = {0, 8, 12, 16, 24, 32, 50, 72, 95, 120, 600, n / 2, n - 1};
    for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
        bytes[at[k]] ^= 1;
        if (file_write(path, bytes, n, &e)) fail_msg("%s", e.text);
        bytes[at[k]] ^= 1;
        int rc = ops->load(s.lm, path, &m, &read, &n_read, &e);
        assert_true(rc < 0);
        assert_null(m);
        assert_null(read);
    }
    const size_t lengths[] = {0, 8, 79, 80, 300, n / 2, n - 1};
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        if (file_write(path, bytes, lengths[k], &e)) fail_msg("%s", e.text);
        assert_true(ops->load(s.lm, path, &m, &read, &n_read, &e) < 0);
    }
    mem_free(bytes);
    close_sliced(&s);
}

/* ---- the link ---- */

enum { N_SUM = 200, MAX_SUM = 3000 };
struct summer {
    struct link *l;
    int32_t rank, n_sum, n_wrong;
    float x[MAX_SUM];
};

static float part_of(int32_t rank, int32_t sum, int32_t i) {
    return (float)((rank + 1) * 37 % 11) * 0.1f + (float)(i % 101) * 1e-3f + (float)sum;
}

static void *sum_up(void *arg) {
    struct summer *s = arg;
    for (int32_t k = 0; k < s->n_sum; k++) {
        int32_t n = 1 + k * 53 % MAX_SUM;
        for (int32_t i = 0; i < n; i++) s->x[i] = part_of(s->rank, k, i);
        link_sum(s->l, s->rank, s->x, n, NULL, 1);
        for (int32_t i = 0; i < n; i++) {
            float want = part_of(0, k, i);
            want += part_of(1, k, i);
            want += part_of(2, k, i);
            if (memcmp(&want, &s->x[i], sizeof want)) s->n_wrong++;
        }
    }
    return NULL;
}

static void sums_are_added_in_the_order_of_ranks(void **state) {
    (void)state;
    static struct summer s[3];
    struct dev *dev[3];
    pthread_t t[3];
    struct link *l;
    struct link_stats stats;
    struct err e = {0};
    for (int32_t i = 0; i < 3; i++) dev[i] = open_cpu();
    if (link_new(&l, dev, 3, MAX_SUM, LINK_AUTO, LINK_DEADLINE_MS, &e)) fail_msg("%s", e.text);
    link_begin(l);
    for (int32_t i = 0; i < 3; i++) {
        s[i] = (struct summer){.l = l, .rank = i, .n_sum = N_SUM};
        assert_int_equal(pthread_create(&t[i], NULL, sum_up, &s[i]), 0);
    }
    for (int32_t i = 0; i < 3; i++) pthread_join(t[i], NULL);
    assert_int_equal(link_status(l, &e), 0);
    for (int32_t i = 0; i < 3; i++) assert_int_equal(s[i].n_wrong, 0);
    link_stats(l, 1, &stats);
    assert_int_equal(stats.n_sum, N_SUM);
    /* one that leaves: the others end at once, and the next step is a new one */
    link_begin(l);
    s[0].n_sum = 1;
    assert_int_equal(pthread_create(&t[0], NULL, sum_up, &s[0]), 0);
    link_leave(l, 2);
    pthread_join(t[0], NULL);
    assert_int_equal(link_status(l, &e), CHIMERE_EDEVICE);
    assert_non_null(strstr(e.text, "card 3 of 3 has failed"));
    link_free(l);
    /* one that never comes */
    if (link_new(&l, dev, 2, MAX_SUM, LINK_AUTO, 50, &e)) fail_msg("%s", e.text);
    link_begin(l);
    link_sum(l, 1, s[0].x, 4, NULL, 1);
    assert_int_equal(link_status(l, &e), CHIMERE_ETIMEOUT);
    assert_non_null(strstr(e.text, "card 1 of 2 did not answer within 1 s"));
    link_begin(l);
    assert_int_equal(link_status(l, &e), 0);
    link_free(l);
    /* the processor's devices share its memory: no kernels for it */
    assert_int_equal(link_new(&l, dev, 2, MAX_SUM, LINK_PEER, 50, &e), CHIMERE_EUNSUPPORTED);
    assert_non_null(strstr(e.text, "do not access each other's memory"));
    assert_int_equal(link_new(&l, dev, 9, 1, LINK_AUTO, 1, &e), CHIMERE_EINVAL);
    for (int32_t i = 0; i < 3; i++) dev[i]->ops->close(dev[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nano_is_the_same_in_slices),
        cmocka_unit_test(families_are_the_same_in_slices),
        cmocka_unit_test(golden_families_are_the_same_in_slices),
        cmocka_unit_test(adapters_are_the_same_in_slices),
        cmocka_unit_test(drafts_are_the_same_on_several_devices),
        cmocka_unit_test(engines_say_the_same),
        cmocka_unit_test(states_are_kept_in_slices),
        cmocka_unit_test(states_pass_from_split_to_split),
        cmocka_unit_test(damaged_states_are_refused),
        cmocka_unit_test(what_cannot_be_cut_says_so),
        cmocka_unit_test(slices_end_where_blocks_do),
        cmocka_unit_test(sums_are_added_in_the_order_of_ranks),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
