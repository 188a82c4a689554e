/* test_synth.c: synthetic models open, have the published sizes, and decode to the wanted spread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "convert/synth.h"
#include "format/gguf.h"
#include "format/quant.h"
#include "kernels/cpu/cpu.h"
#include "model/forward.h"

static char path[64];

static struct gguf *make(const char *shape, const char *mix, uint32_t layers, uint32_t experts,
                         uint32_t vocab) {
    struct synth_options o = {shape, mix, path, layers, experts, vocab, false};
    struct synth_result r;
    struct err e = {0};
    struct gguf *g;
    if (synth_write(&o, &r, &e) || gguf_open(&g, path, &e)) fail_msg("%s", e.text);
    uint64_t bytes = 0, weights = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        bytes += gguf_tensor_at(g, i)->n_bytes;
        weights += gguf_tensor_at(g, i)->n_elements;
    }
    assert_int_equal(bytes, r.n_bytes);
    assert_int_equal(weights, r.n_weights);
    return g;
}

/* Mean and deviation of the first 64 Ki weights. The codes of q4_0 have a mean of -1/2 step. */
static void spread(const struct gguf *g, const char *name, double wanted) {
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    assert_non_null(t);
    size_t n = t->n_elements < 65536 ? (size_t)t->n_elements : 65536;
    float *x = mem_alloc(n * sizeof *x);
    quant_traits(t->type)->decode(t->data, x, n);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    double mean = sum / (double)n, deviation = sqrt(squares / (double)n - mean * mean);
    if (!(fabs(deviation / wanted - 1) < 0.1) || !(fabs(mean) < 0.15 * wanted))
        fail_msg("%s (%s): mean %g, deviation %g, expected %g", name, quant_traits(t->type)->name,
                 mean, deviation, wanted);
    mem_free(x);
}

static void weights_have_the_wanted_spread(void **state) {
    (void)state;
    static const char *const names[] = {"ramp3", "iq2_k", "iq3_k", "iq4_k", "q4km", "q8", "q4_0"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct gguf *g = make("qwen35moe-mini", names[i], 4, 8, 512);
        double d = 1 / sqrt(1024);
        spread(g, "token_embd.weight", 0.02);
        spread(g, "output.weight", d);
        spread(g, "blk.0.ffn_up_exps.weight", d);
        spread(g, "blk.0.ffn_down_exps.weight", 1 / sqrt(256));
        spread(g, "blk.0.ffn_gate_shexp.weight", d);
        spread(g, "blk.0.attn_qkv.weight", d);
        spread(g, "blk.3.attn_q.weight", d);
        spread(g, "blk.0.ssm_beta.weight", d);
        spread(g, "blk.0.ffn_gate_inp.weight", d);
        gguf_close(g);
    }
}

/* Published: 35 B in 40 layers, every fourth with full attention; 31.6 B in 52 layers. */
static void shapes_are_the_published_ones(void **state) {
    (void)state;
    struct gguf *g = make("qwen35moe-35b", "q4_0", 4, 8, 0);
    assert_int_equal(gguf_find_tensor(g, "token_embd.weight")->ne[1], 248320);
    assert_int_equal(gguf_find_tensor(g, "blk.3.attn_q.weight")->ne[1], 8192);
    assert_int_equal(gguf_find_tensor(g, "blk.0.attn_qkv.weight")->ne[1], 8192);
    assert_int_equal(gguf_find_tensor(g, "blk.0.ffn_up_exps.weight")->ne[2], 8);
    assert_null(gguf_find_tensor(g, "blk.3.ssm_a"));
    assert_null(gguf_find_tensor(g, "blk.2.attn_q.weight"));
    const struct gguf_kv *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    assert_int_equal(tokens->n, 248320);
    gguf_close(g);
    g = make("nemotron-30b", "ramp3", 7, 4, 512);
    assert_int_equal(gguf_find_tensor(g, "blk.0.ssm_in.weight")->ne[1], 10304);
    assert_non_null(gguf_find_tensor(g, "blk.1.ffn_up_exps.weight"));
    assert_non_null(gguf_find_tensor(g, "blk.5.attn_q.weight"));
    assert_int_equal(gguf_find(g, "nemotron_h_moe.attention.head_count_kv")->n, 7);
    spread(g, "blk.0.ssm_in.weight", 1 / sqrt(2688));
    spread(g, "blk.1.ffn_up_exps.weight", 1 / sqrt(2688));
    gguf_close(g);
}

/* Small shapes of families are read by the loader, whole or cut, and give finite logits. */
static void families_run(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t n_layer; /* at least one of each kind */
    } shapes[] = {{"mamba-mini", 2},      {"mamba2-mini", 2},        {"nemotron-mini", 5},
                  {"granite-h-mini", 3},  {"falcon-h1-mini", 2},     {"jamba-mini", 5},
                  {"zamba2-mini", 9},     {"hymba-mini", 3},         {"olmo-hybrid-mini", 4},
                  {"glm-flash-mini", 3},  {"granite-mini", 1},       {"granite-moe-mini", 1},
                  {"ministral-mini", 1},  {"lfm2-mini", 3},          {"lfm2-moe-mini", 3},
                  {"gpt-oss-mini", 2},    {"gemma3-mini", 6},        {"gemma4-mini", 12},
                  {"gemma4-moe-mini", 6}, {"nemotron-super-mini", 4}};
    struct err e = {0};
    struct dev *dev;
    assert_int_equal(cpu_open(&dev, 2, CPU_ISA_BEST, &e), 0);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        gguf_close(make(shapes[i].name, i % 2 ? "q4km" : "q4_0", shapes[i].n_layer, 4, 512));
        struct model *m;
        struct seq_pool *pool;
        struct seq *s;
        struct forward *f;
        if (model_open(&m, path, dev, true, &e)) fail_msg("%s: %s", shapes[i].name, e.text);
        const struct seq_pool_params p = {
            .n_slot = 1, .n_ctx = 64, .k_type = QUANT_F16, .v_type = QUANT_F16};
        if (seq_pool_new(&pool, m, &p, &e)) fail_msg("%s", e.text);
        if (forward_new(&f, m, pool, 20, 1, &e)) fail_msg("%s", e.text);
        if (seq_new(&s, pool, &e)) fail_msg("%s", e.text);
        int32_t tokens[20];
        for (int32_t t = 0; t < 20; t++) tokens[t] = 7 * t + 1;
        const struct batch_item run = {.seq = s, .tokens = tokens, .n_tok = 20, .want = WANT_LAST};
        const float *logits;
        if (forward_run(f, &run, 1, &logits, &e)) fail_msg("%s", e.text);
        double squares = 0;
        for (int32_t t = 0; t < 512; t++) squares += (double)logits[t] * (double)logits[t];
        double rms = sqrt(squares / 512);
        if (!(rms > 0.1 && rms < 5)) /* Granite divides by 8 */
            fail_msg("%s: logits of %g", shapes[i].name, rms);
        seq_free(s);
        forward_free(f);
        seq_pool_free(pool);
        model_close(m);
    }
    dev->ops->close(dev);
    struct synth_result r;
    assert_int_equal(
        synth_write(&(struct synth_options){"zamba2-mini", "q8", path, 13, 0, 0, false}, &r, &e),
        CHIMERE_EINVAL);
    assert_non_null(strstr(e.text, "at most 12"));
}

static void wrong_options_are_refused(void **state) {
    (void)state;
    struct synth_result r;
    struct err e = {0};
    assert_int_equal(synth_write(&(struct synth_options){"x", "q8", path, 0, 0, 0, false}, &r, &e),
                     CHIMERE_EINVAL);
    assert_non_null(strstr(e.text, "shape"));
    assert_int_equal(
        synth_write(&(struct synth_options){"nemotron-30b", "x", path, 0, 0, 0, false}, &r, &e),
        CHIMERE_EINVAL);
    assert_non_null(strstr(e.text, "mix"));
    assert_int_equal(
        synth_write(&(struct synth_options){"qwen35moe-mini", "q8", path, 1, 1, 100, false}, &r,
                    &e),
        CHIMERE_EINVAL);
    assert_non_null(strstr(e.text, "vocab: expected at least"));
}

int main(void) {
    snprintf(path, sizeof path, "test_synth.%ld.gguf", (long)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_have_the_wanted_spread),
        cmocka_unit_test(shapes_are_the_published_ones),
        cmocka_unit_test(families_run),
        cmocka_unit_test(wrong_options_are_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
