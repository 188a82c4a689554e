/* test_cuda_lend.c: one budget for sequences and experts: idle pages of keys and values hold experts. A sequence that
 * grows takes them, while another runs, and its end gives them back; the logits are those with all experts on the
 * device, bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "../unit/scratch.h"
#include "base/mem.h"
#include "convert/synth.h"
#include "format/quant.h"
#include "kernels/cuda/cuda.h"
#include "model/experts/expert_slots.h"
#include "model/forward.h"
#include "model/seq/seq_impl.h"

/* The fourth layer is the first with pages. As few tokens as do: the emulator needs a second for each. */
enum { N_LAYER = 4, N_EXPERT = 12, N_VOCAB = 512, N_PROMPT = 3, N_STEP = 8, N_PAGE = 256 };
enum { GROWS = 3, ENDS = 5 }; /* steps before which the other sequence does */

static char path[64];
static float want[N_STEP][N_VOCAB], got[N_STEP][N_VOCAB];

static int make_file(void **state) {
    struct err e = {0};
    struct synth_result r;
    if (scratch_make(state)) return -1;
    snprintf(path, sizeof path, "%s/m.gguf", scratch);
    const struct synth_options s = {"qwen35moe-mini", "q8",    path, N_LAYER,
                                    N_EXPERT,         N_VOCAB, false};
    if (synth_write(&s, &r, &e)) fail_msg("%s", e.text);
    return 0;
}

/* The other sequence takes nearly all pages, asks for more than there are, and ends. */
static void other(struct seq_pool *p, struct seq **s, int32_t step, bool lends) {
    struct err e = {0};
    const int64_t most = (N_PAGE - 2) * KV_PAGE;
    if (lends && (step == GROWS || step == ENDS + 1)) assert_int_equal(p->lend.lent, ~3u);
    if (step == GROWS) {
        if (seq_new(s, p, &e) || seq_reserve(*s, most, &e)) fail_msg("%s", e.text);
        assert_int_equal(p->lend.lent, 0);
        assert_int_equal(seq_reserve(*s, most + 2 * KV_PAGE, &e), CHIMERE_ELIMIT);
        assert_non_null(strstr(e.text, "context memory is full"));
    }
    if (step == ENDS) seq_free(*s);
}

/* Each layer uses its first experts more than the others, the later the layer, the more so. */
static int fill(const struct model *m, struct err *e) {
    uint32_t uses[N_LAYER * N_EXPERT];
    for (int32_t il = 0; il < N_LAYER; il++)
        for (int32_t x = 0; x < N_EXPERT; x++)
            uses[il * N_EXPERT + x] = 4000u >> (x < 12 / (il + 1) ? 0 : 2 * il);
    return experts_fill(&m->weights.experts, uses, e);
}

/* Slots of the layers, as a text. */
static const char *shares(const struct model *m) {
    static char text[N_LAYER * 4];
    for (int32_t il = 0; il < N_LAYER; il++)
        snprintf(text + 3 * il, 4, "%3d", expert_slots_pool(m->weights.experts.slots, il)->n_slot);
    return text;
}

/* The logits of a prompt's last token and of steps; misses: until the other sequence grows, and of all. */
static int run(uint64_t slot_bytes, bool fills, float out[N_STEP][N_VOCAB], uint64_t misses[2],
               struct err *e) {
    const struct cuda_params exact = {.precise = true};
    const struct expert_placement where = {.slot_bytes = slot_bytes};
    const struct seq_pool_params pp = {
        .n_slot = 2, .n_ctx = N_PAGE * KV_PAGE, .k_type = QUANT_F16, .v_type = QUANT_F16};
    struct dev *d;
    struct model *m = NULL;
    struct seq_pool *pool = NULL;
    struct forward *f = NULL;
    struct seq *s = NULL, *o = NULL;
    if (cuda_open(&d, &exact, e)) fail_msg("%s", e->text);
    int rc = model_open_placed(&m, path, d, &where, true, e);
    char before[N_LAYER * 4] = "";
    if (!rc && slot_bytes) snprintf(before, sizeof before, "%s", shares(m));
    if (!rc && fills) {
        rc = fill(m, e);
        assert_string_not_equal(before, shares(m));
    }
    if (!rc) rc = seq_pool_new(&pool, m, &pp, e);
    if (!rc) rc = forward_new(&f, m, pool, N_PROMPT, 1, e);
    if (!rc) rc = seq_new(&s, pool, e);
    for (int32_t i = 0; !rc && i < N_STEP; i++) {
        int32_t tokens[N_PROMPT] = {7 + i * 31, 5, 300};
        const float *logits;
        struct tier_stats t;
        other(pool, &o, i, slot_bytes > 0);
        const struct batch_item item = {
            .seq = s, .tokens = tokens, .n_tok = i ? 1 : N_PROMPT, .want = WANT_LAST};
        rc = forward_run(f, &item, 1, &logits, e);
        if (!rc) memcpy(out[i], logits, sizeof out[i]);
        if (rc || !experts_stats(&m->weights.experts, &t)) continue;
        if (i < GROWS) misses[0] = t.n_miss;
        misses[1] = t.n_miss;
        assert_true(t.n_slot < t.n_expert);
    }
    if (s) seq_free(s);
    forward_free(f);
    seq_pool_free(pool);
    model_close(m);
    d->ops->close(d);
    return rc;
}

static void sequences_and_experts_share_pages(void **state) {
    (void)state;
    struct err e = {0};
    uint64_t misses[2] = {0, 0};
    if (run(0, false, want, misses, &e)) fail_msg("%s", e.text);
    uint64_t bytes = 1 << 16;
    while (run(bytes, false, got, misses, &e)) {
        assert_int_equal(e.code, CHIMERE_ELIMIT);
        bytes += bytes / 4;
    }
    assert_memory_equal(got, want, sizeof want);
    /* each expert is read once while the pages are idle, and again when a sequence has taken them */
    assert_true(misses[0] <= N_LAYER * N_EXPERT);
    assert_true(misses[1] > misses[0]);
    /* more slots than needed, divided by uses */
    if (run(bytes + bytes / 8, true, got, misses, &e)) fail_msg("%s", e.text);
    assert_memory_equal(got, want, sizeof want);
}

int main(void) {
    mem_guard_arm(true);
    const struct CMUnitTest tests[] = {cmocka_unit_test(sequences_and_experts_share_pages)};
    return cmocka_run_group_tests(tests, make_file, scratch_drop);
}
