/* test_swap.c: a model whose matrix was exchanged computes what a file with that encoding computes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "scratch.h"
#include "convert/quantize.h"
#include "convert/synth.h"
#include "kernels/cpu/cpu.h"
#include "model/forward.h"
#include "model/seq/swap.h"

#define MATRIX "blk.0.attn_q_b.weight" /* rows of 384 columns */
enum { N_VOCAB = 512, N_TOK = 9 };

static char source[256], divided[256];

static void make_files(void) {
    struct synth_result r;
    struct err e = {0};
    struct quantize *q;
    static const char *const rules[] = {"attn_q_b=IQ4_XS"};
    snprintf(source, sizeof source, "%s/source.gguf", scratch);
    snprintf(divided, sizeof divided, "%s/divided.gguf", scratch);
    const struct synth_options o = {"glm-flash-mini", "q8", source, 1, 2, N_VOCAB, false};
    if (synth_write(&o, &r, &e)) fail_msg("%s", e.text);
    const struct quantize_options to = {.type = "Q8_0",
                                        .tensor_types = rules,
                                        .n_tensor_types = 1,
                                        .pure = true,
                                        .tails = true,
                                        .n_thread = 1};
    if (quantize_open(&q, source, &to, &e) || quantize_run(q, divided, false, &e))
        fail_msg("%s", e.text);
    quantize_close(q);
}

static void logits_of(struct model *m, float out[N_VOCAB]) {
    struct err e = {0};
    struct seq_pool *pool;
    struct forward *f = NULL;
    struct seq *s = NULL;
    int32_t tokens[N_TOK];
    const float *logits;
    for (int32_t i = 0; i < N_TOK; i++) tokens[i] = 7 * i + 3;
    const struct seq_pool_params p = {.n_slot = 1, .n_ctx = 64, .k_type = 1, .v_type = 1};
    if (seq_pool_new(&pool, m, &p, &e) || forward_new(&f, m, pool, N_TOK, 1, &e) ||
        seq_new(&s, pool, &e))
        fail_msg("%s", e.text);
    const struct batch_item run = {.seq = s, .tokens = tokens, .n_tok = N_TOK, .want = WANT_LAST};
    if (forward_run(f, &run, 1, &logits, &e)) fail_msg("%s", e.text);
    assert_int_equal(m->hp.n_vocab, N_VOCAB);
    memcpy(out, logits, N_VOCAB * sizeof *out);
    seq_free(s);
    forward_free(f);
    seq_pool_free(pool);
}

static void rows_in_two_parts(void **state) {
    (void)state;
    static float before[N_VOCAB], want[N_VOCAB], got[N_VOCAB];
    struct err e = {0};
    struct dev *dev;
    struct model *m = NULL, *other = NULL;
    struct swap *s;
    make_files();
    if (cpu_open(&dev, 1, CPU_ISA_BEST, &e) || model_open(&m, source, dev, true, &e) ||
        model_open(&other, divided, dev, true, &e))
        fail_msg("%s", e.text);
    const struct gguf_tensor *first = gguf_find_tensor(other->gguf, MATRIX),
                             *last = gguf_find_tensor(other->gguf, MATRIX ".tail");
    assert_non_null(first);
    assert_non_null(last);
    assert_int_equal(first->ne[0], 256);
    const struct swap_form form = {first->type, last->type, 256, first->data, last->data};
    logits_of(m, before);
    logits_of(other, want);
    assert_memory_not_equal(before, want, sizeof want);
    if (swap_new(&s, m, MATRIX, &form, &e)) fail_msg("%s", e.text);
    swap_apply(s);
    logits_of(m, got);
    assert_memory_equal(got, want, sizeof want);
    swap_restore(m, MATRIX);
    logits_of(m, got);
    assert_memory_equal(got, before, sizeof before);
    swap_free(s);
    model_close(other);
    model_close(m);
    dev->ops->close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_in_two_parts)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
