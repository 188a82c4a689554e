/* test_kv.c: quantised keys and values through a whole model: how far the logits move, what that does to
 * the perplexity of a text, and that rotating heads before rounding is what keeps outliers harmless. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "format/quant.h"
#include "kernels/cpu/cpu.h"
#include "model/forward.h"
#include "model/seq/seq_impl.h"
#include "model/vocab.h"

enum { MAX_TOK = 256 };

/* Written for this test; none of the model's training text. */
static const char text[] =
    "The ferry to the island leaves twice a day, once in the morning and once when the light "
    "begins to go. "
    "Most people take the second one. They stand on the deck with their bags between their feet "
    "and watch "
    "the harbour become small. A man sells coffee from a can, and a girl counts the gulls that "
    "follow the "
    "boat. When she comes to twelve she begins again. Nobody speaks much. The engine makes a low "
    "sound, "
    "the water is flat and grey, and after an hour the first houses of the island come out of the "
    "mist, "
    "white and close together, with one red door among them that everybody looks for.";

static struct {
    struct dev *dev;
    struct model *m;
    struct tok *tok;
    int32_t *ids;
    int32_t n;
} nano;

/* In bf16, whose products round no activations: those would hide the cache's own error. */
static const char model_path[] = TEST_DATA "/../../models/chimere-nano-bf16.gguf";

static int open_nano(void **state) {
    (void)state;
    struct err e = {0};
    size_t n = 0;
    if (cpu_open(&nano.dev, 2, CPU_ISA_BEST, &e) ||
        model_open(&nano.m, model_path, nano.dev, true, &e) ||
        vocab_load(&nano.tok, nano.m->gguf, &e) ||
        tok_encode(nano.tok, text, sizeof text - 1, false, false, &nano.ids, &n, &e)) {
        print_error("%s\n", e.text);
        return 1;
    }
    nano.n = n < MAX_TOK ? (int32_t)n : MAX_TOK;
    return 0;
}

static int close_nano(void **state) {
    (void)state;
    mem_free(nano.ids);
    tok_free(nano.tok);
    model_close(nano.m);
    nano.dev->ops->close(nano.dev);
    return 0;
}

/* Logits [n, n_vocab] of the text with that type of cache; released by mem_free. */
static float *run(uint32_t type, bool rotate) {
    struct err e = {0};
    struct seq_pool *pool;
    struct seq *s;
    struct forward *f;
    const float *logits;
    const struct seq_pool_params p = {
        .n_slot = 1, .n_ctx = MAX_TOK, .k_type = type, .v_type = type};
    if (seq_pool_new(&pool, nano.m, &p, &e)) fail_msg("%s", e.text);
    for (int32_t il = 0; il < arch_n_layer_all(&nano.m->hp); il++)
        pool->layer[il].kv.rotate = rotate;
    assert_int_equal(seq_new(&s, pool, &e), 0);
    if (forward_new(&f, nano.m, pool, MAX_TOK, MAX_TOK, &e)) fail_msg("%s", e.text);
    const struct batch_item r = {.seq = s, .tokens = nano.ids, .n_tok = nano.n, .want = WANT_ALL};
    if (forward_run(f, &r, 1, &logits, &e)) fail_msg("%s", e.text);
    size_t n = (size_t)nano.n * (size_t)nano.m->hp.n_vocab;
    float *own = mem_alloc_array(n, sizeof *own);
    assert_non_null(own);
    memcpy(own, logits, n * sizeof *own);
    seq_free(s);
    forward_free(f);
    seq_pool_free(pool);
    return own;
}

/* Root mean square of the difference, as a share of the range of the first. */
static double distance(const float *a, const float *b) {
    size_t n = (size_t)nano.n * (size_t)nano.m->hp.n_vocab;
    double sum = 0, low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        low = a[i] < low ? a[i] : low;
        high = a[i] > high ? a[i] : high;
    }
    return sqrt(sum / (double)n) / (high - low);
}

static double perplexity(const float *logits) {
    int32_t n_vocab = nano.m->hp.n_vocab;
    double nll = 0;
    for (int32_t t = 0; t + 1 < nano.n; t++) {
        const float *row = logits + (int64_t)t * n_vocab;
        double sum = 0;
        for (int32_t i = 0; i < n_vocab; i++) sum += exp((double)row[i] - row[nano.ids[t + 1]]);
        nll += log(sum);
    }
    return exp(nll / (nano.n - 1));
}

static void quantised_caches_stay_close(void **state) {
    (void)state;
    static const struct {
        uint32_t type;
        double distance, perplexity;
    } bounds[] = {{QUANT_F16, 5e-5, 5e-4}, {QUANT_Q8_0, 5e-4, 2e-3}, {QUANT_Q4_0, 6e-3, 0.02}};
    assert_true(nano.n >= 100);
    float *want = run(QUANT_F32, false);
    double ppl = perplexity(want), last = 0;
    assert_true(ppl < 1000); /* the text is prose to the model, not noise */
    for (int i = 0; i < 3; i++) {
        float *got = run(bounds[i].type, bounds[i].type > QUANT_F16);
        double d = distance(want, got), change = fabs(perplexity(got) / ppl - 1);
        print_message("%s: %.2g of the range, perplexity %.3f instead of %.3f\n",
                      quant_traits(bounds[i].type)->name, d, perplexity(got), ppl);
        assert_true(d <= bounds[i].distance);
        assert_true(change <= bounds[i].perplexity);
        assert_true(d > last); /* fewer bits, more error: the types are really in use */
        last = d;
        mem_free(got);
    }
    mem_free(want);
}

/* Makes one channel of all keys `times` larger and that of the queries as much smaller, behind what RoPE
 * turns: the same function, but keys with an outlier, as large models have them. */
static void scale_channel(float times) {
    for (int32_t il = 0; il < arch_n_layer_all(&nano.m->hp); il++) {
        struct layer_weights *l = &nano.m->weights.layer[il];
        int32_t c = nano.m->hp.n_rot;
        assert_true(c < nano.m->hp.d_k);
        if (!(nano.m->hp.layer[il].mixer & MIX_ATTN)) continue;
        assert_non_null(l->attn.k_norm);
        ((float *)(uintptr_t)l->attn.k_norm)[c] *= times;
        ((float *)(uintptr_t)l->attn.q_norm)[c] /= times;
    }
}

static void rotation_keeps_outliers_harmless(void **state) {
    (void)state;
    float *before = run(QUANT_F32, false);
    scale_channel(32);
    float *want = run(QUANT_F32, false);
    assert_true(distance(before, want) < 1e-5); /* the function has not changed */
    static const uint32_t types[] = {QUANT_Q8_0, QUANT_Q4_0};
    static const double bounds[] = {1.5e-3, 0.015};
    for (int i = 0; i < 2; i++) {
        float *turned = run(types[i], true), *plain = run(types[i], false);
        double with = distance(want, turned), without = distance(want, plain);
        print_message("%s with an outlier: %.2g rotated, %.2g as it is\n",
                      quant_traits(types[i])->name, with, without);
        assert_true(with <= bounds[i]);
        assert_true(without > 1.5 * with);
        mem_free(turned);
        mem_free(plain);
    }
    scale_channel(1.0f / 32);
    mem_free(before);
    mem_free(want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantised_caches_stay_close),
        cmocka_unit_test(rotation_keeps_outliers_harmless),
    };
    return cmocka_run_group_tests(tests, open_nano, close_nano);
}
