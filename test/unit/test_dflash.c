/* test_dflash.c: drafters that read hidden states: logits of blocks against PyTorch (test/golden/make_dflash.py), in both
 * dialects of their files; the text of an engine is the same with and without; what is not this model's is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/plan.h"
#include "format/gguf.h"
#include "format/quant.h"
#include "golden_model.h"
#include "kernels/cpu/cpu.h"
#include "model/dflash.h"

enum { WIDTH = 32, N_LAYER = 2, N_HEAD = 4, N_KV = 2, HEAD_WIDTH = 16, N_FF = 48, N_TAP = 3 };
enum { N_DRAFT = 7, N_VOCAB = 96, MASK = 95 };

static char scratch[64]; /* folder of this process */
static int32_t tokens[256], n_tok;
static struct dev *dev;
static struct model *target;

/* ---- files of drafters ---- */

/* What is changed in a file; all zero: nothing. */
struct fault {
    int32_t width, n_tap, tap, mask, n_vocab; /* in place of the right ones; tap: the last one */
    bool is_nan, is_nano; /* is_nano: for the shipped model, with heads that q8_0 divides */
    const char *more;     /* a tensor that no drafter here has */
};

struct part {
    const char *mainline, *other; /* its name in both dialects, after that of the layer */
    int64_t rows, cols;           /* rows 0: a norm */
};

static void add_part(struct gguf_writer *w, const struct part *p, int il, bool is_other, int pass,
                     const struct fault *f) {
    char name[100], key[120], layer[20] = "";
    if (il >= 0) snprintf(layer, sizeof layer, "blk.%d.", il);
    snprintf(name, sizeof name, "%s%s", layer, is_other ? p->other : p->mainline);
    snprintf(key, sizeof key, "dflash.%s%s", layer, p->mainline);
    size_t n = (size_t)(p->rows ? p->rows * p->cols : p->cols);
    if (pass == 0) {
        uint64_t ne[2] = {(uint64_t)p->cols, (uint64_t)p->rows};
        gguf_add_tensor(w, name, QUANT_F32, p->rows ? 2 : 1, ne);
        return;
    }
    struct err e = {0};
    float *x = make_values(key, n, p->rows ? 0.0 : 1.0,
                           p->rows ? 1.5 * sqrt(3.0) / sqrt((double)p->cols) : 0.5, false);
    if (f->is_nan && il == 1) x[0] = NAN;
    assert_int_equal(gguf_write_data(w, x, n * sizeof *x, &e), 0);
    mem_free(x);
}

static void put_keys(struct gguf_writer *w, bool is_other, int32_t window, const struct fault *f) {
    const char *arch = is_other ? "dflash-draft" : "dflash";
    char key[100];
    int32_t taps[N_TAP + 1] = {0, 2, f->tap ? f->tap : 3, 3};
    struct {
        const char *suffix;
        int32_t value;
    } const keys[] = {{"block_count", N_LAYER},
                      {"embedding_length", f->width ? f->width : WIDTH},
                      {"feed_forward_length", N_FF},
                      {"attention.head_count", N_HEAD},
                      {"attention.head_count_kv", N_KV},
                      {"attention.key_length", f->is_nano ? 32 : HEAD_WIDTH},
                      {"attention.value_length", f->is_nano ? 32 : HEAD_WIDTH},
                      {is_other ? "dflash.block_size" : "block_size", N_DRAFT + 1}};
    gguf_put_str(w, "general.architecture", arch, strlen(arch));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, keys[i].suffix);
        gguf_put_u32(w, key, (uint32_t)keys[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_put_f32(w, key, 1e-6f);
    snprintf(key, sizeof key, "%s.rope.freq_base", arch);
    gguf_put_f32(w, key, 10000);
    for (int i = 0; i < N_TAP; i++) taps[i] += !is_other;
    snprintf(key, sizeof key, "%s.%s", arch,
             is_other ? "dflash.target_layer_ids" : "target_layers");
    gguf_put_array(w, key, GGUF_I32, taps, (uint64_t)(f->n_tap ? f->n_tap : N_TAP));
    gguf_put_u32(w, is_other ? "dflash-draft.dflash.mask_token_id" : "tokenizer.ggml.mask_token_id",
                 (uint32_t)(f->mask ? f->mask : MASK));
    if (window) {
        const bool sees[N_LAYER] = {true, false};
        snprintf(key, sizeof key, "%s.attention.sliding_window", arch);
        gguf_put_u32(w, key, (uint32_t)window);
        snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", arch);
        gguf_put_array(w, key, GGUF_BOOL, sees, N_LAYER);
    }
    if (f->n_vocab) {
        struct slice pieces[128];
        for (int i = 0; i < f->n_vocab; i++) pieces[i] = (struct slice){"piece", 5};
        gguf_put_strings(w, "tokenizer.ggml.tokens", pieces, (size_t)f->n_vocab);
    }
}

static void write_drafter(char *path, size_t size, bool is_other, int32_t window,
                          const struct fault *f) {
    const int32_t d = f->width ? f->width : WIDTH, head = f->is_nano ? 32 : HEAD_WIDTH;
    const int32_t n_in = N_TAP * (f->is_nano ? d : WIDTH);
    const struct part once[] = {{"fc.weight", "dflash_fc.weight", d, n_in},
                                {"enc.output_norm.weight", "dflash_hidden_norm.weight", 0, d},
                                {"output_norm.weight", "output_norm.weight", 0, d}};
    const struct part each[] = {{"attn_norm.weight", "attn_norm.weight", 0, d},
                                {"attn_q.weight", "attn_q.weight", N_HEAD * head, d},
                                {"attn_k.weight", "attn_k.weight", N_KV * head, d},
                                {"attn_v.weight", "attn_v.weight", N_KV * head, d},
                                {"attn_output.weight", "attn_output.weight", d, N_HEAD * head},
                                {"attn_q_norm.weight", "attn_q_norm.weight", 0, head},
                                {"attn_k_norm.weight", "attn_k_norm.weight", 0, head},
                                {"ffn_norm.weight", "post_attention_norm.weight", 0, d},
                                {"ffn_gate.weight", "ffn_gate.weight", N_FF, d},
                                {"ffn_up.weight", "ffn_up.weight", N_FF, d},
                                {"ffn_down.weight", "ffn_down.weight", d, N_FF}};
    struct gguf_writer *w;
    struct err e = {0};
    snprintf(path, size, "%s/drafter.gguf", scratch);
    assert_int_equal(gguf_writer_new(&w, path, 32, 0, &e), 0);
    put_keys(w, is_other, window, f);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < sizeof once / sizeof *once; i++)
            add_part(w, &once[i], -1, is_other, pass, f);
        for (int il = 0; il < N_LAYER; il++)
            for (size_t i = 0; i < sizeof each / sizeof *each; i++)
                add_part(w, &each[i], il, is_other, pass, f);
        const uint64_t ne[2] = {32, 1};
        const float zeros[32] = {0};
        if (f->more && pass == 0) gguf_add_tensor(w, f->more, QUANT_F32, 2, ne);
        if (f->more && pass == 1) assert_int_equal(gguf_write_data(w, zeros, sizeof zeros, &e), 0);
    }
    if (gguf_writer_close(w, &e)) fail_msg("%s", e.text);
}

/* ---- blocks ---- */

static void compare(const float *got, const float *want, const char *what) {
    double range = 0, worst = 0;
    for (int i = 0; i < N_DRAFT * N_VOCAB; i++) {
        double d = fabs((double)got[i] - want[i]);
        if (fabs((double)want[i]) > range) range = fabs((double)want[i]);
        if (!(d <= worst)) worst = d;
    }
    if (!(worst <= 1e-4 * range)) fail_msg("%s: off by %.2e of the range", what, worst / range);
}

static void try_blocks(const float *want, bool is_other, int32_t window) {
    char path[128], what[64];
    struct err e = {0};
    struct seq_pool *pool;
    struct seq *seq;
    struct forward *f;
    struct dflash *d;
    const struct fault none = {.width = 0};
    snprintf(what, sizeof what, "%s, window %d", is_other ? "dflash-draft" : "dflash", window);
    write_drafter(path, sizeof path, is_other, window, &none);
    const struct seq_pool_params p = {
        .n_slot = 2, .n_ctx = 512, .k_type = QUANT_F32, .v_type = QUANT_F32};
    assert_int_equal(seq_pool_new(&pool, target, &p, &e), 0);
    assert_int_equal(seq_new(&seq, pool, &e), 0);
    assert_int_equal(forward_new(&f, target, pool, 256, 1, &e), 0);
    const struct dflash_params params = {.target = target,
                                         .f = f,
                                         .n_slot = 2,
                                         .n_ctx = 512,
                                         .n_ctx_seq = 256,
                                         .k_type = QUANT_F32,
                                         .v_type = QUANT_F32};
    if (dflash_open(&d, path, &params, &e)) fail_msg("%s", e.text);
    assert_int_equal(dflash_n_draft(d), N_DRAFT);
    const struct batch_item run = {.seq = seq, .tokens = tokens, .n_tok = 100};
    const float *logits;
    assert_int_equal(forward_run(f, &run, 1, &logits, &e), 0);
    /* 100 tokens in one slot, 30 in the other, in parts; what a block wrote is gone from the next */
    assert_int_equal(dflash_observe(d, 0, 0, 100, &e), 0);
    assert_int_equal(dflash_observe(d, 1, 0, 7, &e), 0);
    assert_int_equal(dflash_draft(d, 1, tokens[7], 3, &logits, &e), 0);
    for (int i = 7; i < 30; i++) assert_int_equal(dflash_observe(d, 1, i, 1, &e), 0);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(dflash_draft(d, 0, tokens[100], N_DRAFT, &logits, &e), 0);
        compare(logits, want, what);
        assert_int_equal(dflash_draft(d, 1, tokens[30], N_DRAFT, &logits, &e), 0);
        compare(logits, want + N_DRAFT * N_VOCAB, what);
    }
    /* another sequence in the slot leaves nothing of the one before */
    dflash_reset(d, 0);
    assert_int_equal(dflash_observe(d, 0, 0, 30, &e), 0);
    assert_int_equal(dflash_draft(d, 0, tokens[30], N_DRAFT, &logits, &e), 0);
    compare(logits, want + N_DRAFT * N_VOCAB, what);
    assert_int_equal(dflash_draft(d, 0, tokens[30], N_DRAFT + 1, &logits, &e), CHIMERE_EINVAL);
    dflash_close(d);
    forward_free(f);
    seq_free(seq);
    seq_pool_free(pool);
}

static void blocks_are_those_of_pytorch(void **state) {
    (void)state;
    size_t n;
    float *want = golden_floats("dflash", ".logits", &n);
    assert_int_equal(n, 2 * 2 * N_DRAFT * N_VOCAB);
    for (int other = 0; other < 2; other++) {
        try_blocks(want, other, 0);
        try_blocks(want + 2 * N_DRAFT * N_VOCAB, other, 20);
    }
    mem_free(want);
}

/* ---- engines ---- */

struct answer {
    int32_t tokens[128], n,
        n_most; /* n_most: the reader goes away behind so many tokens; 0: it stays */
};

static bool on_token(struct engine_job *j, int32_t token, bool is_end,
                     const struct sampler_probs *probs) {
    struct answer *a = j->ud;
    (void)is_end;
    (void)probs;
    a->tokens[a->n++] = token;
    return a->n != a->n_most;
}

static void on_done(struct engine_job *j) { (void)j; }

/* Greedy answers that end in the middle of a round, by their reader or by a cancel. */
static void end_early(struct engine *en) {
    struct err e = {0};
    for (int i = 0; i < 12; i++) {
        struct answer a = {.n_most = 2 + i};
        struct engine_job j = {.p = {.prompt = tokens, .n_prompt = 40 + i, .max_tokens = 60},
                               .on_token = on_token,
                               .on_done = on_done,
                               .ud = &a};
        sampler_defaults(&j.p.sampling);
        j.p.sampling.temperature = 0;
        assert_int_equal(engine_run(en, &j, &e), 0);
        assert_int_equal(a.n, a.n_most);
    }
}

static int32_t n_head; /* rows of the head that drafts read; 0: all */

static void answer_with(struct model *m, const char *drafter, uint32_t type, struct answer *a) {
    struct engine_params p;
    struct engine *en;
    struct err e = {0};
    engine_defaults(&p);
    p.n_seq = 1;
    p.n_ctx = p.n_ctx_seq = 512;
    p.k_type = p.v_type = type;
    p.speculate = drafter != NULL;
    p.draft = drafter;
    p.n_draft_max = 4;
    p.n_draft_head = n_head;
    if (engine_new(&en, m, NULL, &p, &e)) fail_msg("%s", e.text);
    *a = (struct answer){.n = 0};
    if (drafter) end_early(en);
    struct engine_job j = {.p = {.prompt = tokens, .n_prompt = 50, .max_tokens = 100},
                           .on_token = on_token,
                           .on_done = on_done,
                           .ud = a};
    sampler_defaults(&j.p.sampling);
    j.p.sampling.temperature = 0;
    j.p.sampling.ignore_eos = true;
    assert_int_equal(engine_run(en, &j, &e), 0);
    assert_int_equal(j.finish, FINISH_LENGTH);
    assert_int_equal(a->n, 100);
    engine_free(en);
}

static void same_with(struct model *m, const char *drafter, uint32_t type) {
    struct answer with, without;
    answer_with(m, NULL, type, &without);
    answer_with(m, drafter, type, &with);
    assert_memory_equal(with.tokens, without.tokens, sizeof with.tokens);
}

/* A drafter of random weights is hardly ever right: the text is as without, in all types of cache. */
static void drafts_change_no_text(void **state) {
    (void)state;
    char path[128];
    struct err e = {0};
    struct model *nano;
    const struct fault none = {.width = 0}, of_nano = {.is_nano = true, .width = 256};
    write_drafter(path, sizeof path, false, 20, &none);
    same_with(target, path, QUANT_F32);
    same_with(target, path, QUANT_F16);
    write_drafter(path, sizeof path, true, 0, &of_nano);
    if (model_open(&nano, TEST_DATA "/../../models/chimere-nano-bf16.gguf", dev, true, &e))
        fail_msg("%s", e.text);
    same_with(nano, path, QUANT_F16);
    same_with(nano, path, QUANT_Q8_0);
    n_head = 512;
    same_with(nano, path, QUANT_F16);
    assert_int_equal(nano->draft_head.n_out, n_head);
    n_head = 0;
    model_close(nano);
}

static void the_plan_counts_the_drafter(void **state) {
    (void)state;
    const char *nano = TEST_DATA "/../../models/chimere-nano-bf16.gguf";
    char path[128];
    struct err e = {0};
    struct memory_plan with, without;
    struct model *m;
    struct dflash_bytes own;
    const struct fault of_nano = {.is_nano = true, .width = 256};
    write_drafter(path, sizeof path, false, 0, &of_nano);
    struct plan_params p = {.n_ctx = 512, .n_seq = 2, .full_ctx = true, .budget_bytes = 1 << 30};
    engine_defaults(&p.engine);
    p.engine.speculate = true;
    if (plan_make(&without, nano, &p, &e)) fail_msg("%s", e.text);
    p.engine.draft = path;
    if (plan_make(&with, nano, &p, &e)) fail_msg("%s", e.text);
    const struct dflash_params params = {.n_slot = 2,
                                         .n_ctx = 1024,
                                         .n_ctx_seq = 512,
                                         .k_type = p.engine.k_type,
                                         .v_type = p.engine.v_type};
    if (model_open(&m, nano, dev, true, &e)) fail_msg("%s", e.text);
    if (dflash_plan(path, m, &params, with.engine.n_batch, &own, &e)) fail_msg("%s", e.text);
    model_close(m);
    /* 2 layers, 2 heads of 32, keys and values in f16, of 1024 positions and 2 pages for each sequence */
    assert_int_equal(own.cache, 2 * 2 * 2 * 32 * 2 * (1024 + 2 * 2 * 64));
    assert_true(own.weights > 4 * (3 * 256 * 256 + 2 * 3 * 256 * 48));
    assert_int_equal(with.total_bytes - without.total_bytes, own.weights + own.cache + own.scratch);
}

/* ---- refusals ---- */

static void refuse(const struct fault *f, bool is_other, int code, const char *why) {
    char path[128];
    struct engine_params p;
    struct engine *en;
    struct err e = {0};
    write_drafter(path, sizeof path, is_other, 0, f);
    engine_defaults(&p);
    p.n_seq = 1;
    p.n_ctx = p.n_ctx_seq = 256;
    p.speculate = true;
    p.draft = path;
    assert_int_equal(engine_new(&en, target, NULL, &p, &e), code);
    if (!strstr(e.text, why)) fail_msg("expected '%s', got '%s'", why, e.text);
    assert_non_null(strstr(e.text, "drafter.gguf"));
}

static void what_does_not_fit_is_refused_by_name(void **state) {
    (void)state;
    static const struct {
        struct fault f;
        int code;
        const char *why;
    } cases[] = {
        {{.width = 64}, CHIMERE_EMISMATCH, "a width of 64, the model has 32"},
        {{.n_tap = 4}, CHIMERE_EMISMATCH, "4 layers of 32 are 128"},
        {{.tap = 4}, CHIMERE_EMISMATCH, "reads layer 4, the model has 4"},
        {{.mask = 96}, CHIMERE_EMISMATCH, "its mask is token 96"},
        {{.n_vocab = 90}, CHIMERE_EMISMATCH, "drafts for 90 tokens, the model has 96"},
        {{.n_vocab = 96}, CHIMERE_EMISMATCH, "its token 0 is another"},
        {{.is_nan = true}, CHIMERE_ENUMERIC, "blk.1."},
        {{.more = "markov_w1.weight"}, CHIMERE_EUNSUPPORTED, "markov_w1.weight"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int other = 0; other < 2; other++)
            refuse(&cases[i].f, other, cases[i].code, cases[i].why);
}

/* Every length: a file that ends early is refused, not read beyond. */
static void truncated_files_are_refused(void **state) {
    (void)state;
    char path[128], cut[128], *bytes;
    size_t n;
    struct err e = {0};
    struct model *m;
    const struct fault none = {.width = 0};
    write_drafter(path, sizeof path, false, 0, &none);
    assert_int_equal(file_read(path, 1 << 24, &bytes, &n, &e), 0);
    snprintf(cut, sizeof cut, "%s/cut.gguf", scratch);
    for (size_t k = 0; k < n; k += k < 3000 ? 7 : 1501) {
        assert_int_equal(file_write(cut, bytes, k, &e), 0);
        assert_int_not_equal(model_open_drafter(&m, cut, dev, &e), 0);
        assert_non_null(strstr(e.text, "cut.gguf"));
    }
    mem_free(bytes);
}

/* Memory that runs out anywhere while one opens: an error, and nothing is lost. */
static void memory_that_runs_out_is_an_error(void **state) {
    (void)state;
    char path[128];
    struct engine_params p;
    struct engine *en;
    struct err e = {0};
    const struct fault none = {.width = 0};
    write_drafter(path, sizeof path, false, 0, &none);
    engine_defaults(&p);
    p.n_seq = 1;
    p.n_ctx = p.n_ctx_seq = 256;
    p.speculate = true;
    p.draft = path;
    int rc = CHIMERE_ENOMEM;
    for (int64_t n = 1; rc; n += 3) {
        mem_fail_nth(n);
        rc = engine_new(&en, target, NULL, &p, &e);
        mem_fail_nth(0);
        if (rc) assert_int_equal(rc, CHIMERE_ENOMEM);
    }
    engine_free(en);
}

static int set_up(void **state) {
    (void)state;
    char path[512];
    json_error_t why;
    struct err e = {0};
    size_t i;
    json_t *t;
    snprintf(scratch, sizeof scratch, "dflash-%ld", (long)getpid());
    if (mkdir(scratch, 0700)) return -1;
    snprintf(path, sizeof path, "%s/golden/qwen35moe.json", TEST_DATA);
    json_t *spec = json_load_file(path, 0, &why);
    assert_non_null(spec);
    json_array_foreach(json_object_get(spec, "tokens"), i, t) tokens[n_tok++] =
        (int32_t)json_integer_value(t);
    golden_build(spec, "qwen35moe", scratch, NULL, path, sizeof path);
    json_decref(spec);
    assert_int_equal(cpu_open(&dev, 2, CPU_ISA_BEST, &e), 0);
    return model_open(&target, path, dev, true, &e);
}

static int tear_down(void **state) {
    (void)state;
    char cmd[100];
    model_close(target);
    dev->ops->close(dev);
    snprintf(cmd, sizeof cmd, "rm -rf %s", scratch);
    return system(cmd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_those_of_pytorch),
        cmocka_unit_test(drafts_change_no_text),
        cmocka_unit_test(the_plan_counts_the_drafter),
        cmocka_unit_test(what_does_not_fit_is_refused_by_name),
        cmocka_unit_test(truncated_files_are_refused),
        cmocka_unit_test(memory_that_runs_out_is_an_error),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
