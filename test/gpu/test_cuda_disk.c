/* test_cuda_disk.c: a mixture whose experts are larger than the memories of GPU and host together: some layers' experts are
 * on the GPU, those of the others in a pool of host memory over the disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/scratch.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/reader.h"
#include "convert/synth.h"
#include "engine/plan.h"
#include "format/quant.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "model/experts/tier.h"
#include "model/forward.h"

enum { N_TOK = 6, PROMPT = 3, N_LAYER = 3, N_EXPERT = 24, MAX_VOCAB = 4096 };

static char mixture[64], whole[64];

static int make_files(void **state) {
    struct err e = {0};
    struct synth_result r;
    if (scratch_make(state)) return -1;
    snprintf(mixture, sizeof mixture, "%s/mixture.gguf", scratch);
    snprintf(whole, sizeof whole, "%s/whole.gguf", scratch);
    const struct synth_options m = {"qwen35moe-mini", "q8", mixture, N_LAYER, N_EXPERT, 512, false};
    const struct synth_options w = {"qwen35moe-35b", "ramp3", whole, 0, 0, 0, true};
    if (synth_write(&m, &r, &e) || synth_write(&w, &r, &e)) fail_msg("%s", e.text);
    return 0;
}

static struct dev *open_cuda(uint64_t vram) {
    struct dev *d;
    struct err e = {0};
    const struct cuda_params p = {.precise = true, .vram_bytes = vram};
    if (cuda_open(&d, &p, &e)) fail_msg("%s", e.text);
    return d;
}

/* ---- running ---- */

struct run {
    struct dev *d;
    struct model *m;
    struct seq_pool *pool;
    struct forward *f;
    struct seq *s;
};

static enum cpu_isa isa = CPU_ISA_SCALAR; /* of the host */

/* The experts of the first n_layer layers are on the host, in a pool if pool_bytes is not 0. */
static int open_run(struct run *r, int32_t n_layer, uint64_t pool_bytes, struct err *e) {
    struct expert_placement where = {.n_layer = n_layer, .pool_bytes = pool_bytes};
    const struct seq_pool_params pp = {
        .n_slot = 1, .n_ctx = 128, .k_type = QUANT_F16, .v_type = QUANT_F16};
    *r = (struct run){.d = open_cuda(0)};
    int rc = cpu_open(&where.host, 2, isa, e);
    if (!rc) rc = model_open_placed(&r->m, mixture, r->d, &where, true, e);
    if (!rc) rc = seq_pool_new(&r->pool, r->m, &pp, e);
    if (!rc) rc = forward_new(&r->f, r->m, r->pool, 32, 1, e);
    return rc ? rc : seq_new(&r->s, r->pool, e);
}

static void close_run(struct run *r) {
    if (r->s) seq_free(r->s);
    forward_free(r->f);
    seq_pool_free(r->pool);
    model_close(r->m);
    r->d->ops->close(r->d);
}

/* Logits after a prompt and steps; fail_at: the token before which the next read fails, -1: none. */
static int logits_of(struct run *r, int32_t fail_at, float *out, struct err *e) {
    int rc = 0;
    for (int32_t at = 0; !rc && at < N_TOK; at = at ? at + 1 : PROMPT) {
        int32_t tokens[PROMPT], n = at ? 1 : PROMPT;
        for (int32_t i = 0; i < n; i++) tokens[i] = (at + i) * 7 % 300;
        const struct batch_item run = {
            .seq = r->s, .tokens = tokens, .n_tok = n, .want = WANT_LAST};
        const float *logits;
        if (at == fail_at) reader_fail_nth(1, 5);
        rc = forward_run(r->f, &run, 1, &logits, e);
        if (!rc) memcpy(out, logits, (size_t)r->m->hp.n_vocab * sizeof *out);
    }
    reader_fail_nth(0, 0);
    return rc;
}

/* The least pool that is not refused, as the refusal of a smaller one says. */
static uint64_t least_pool(int32_t n_layer) {
    static const char expected[] = "experts: expected memory of at least ";
    struct err e = {0};
    struct run r;
    assert_int_equal(open_run(&r, n_layer, 1, &e), CHIMERE_ELIMIT);
    close_run(&r);
    const char *at = strstr(e.text, expected);
    assert_non_null(at);
    uint64_t least = strtoull(at + sizeof expected - 1, NULL, 10);
    assert_int_equal(open_run(&r, n_layer, least - 1, &e), CHIMERE_ELIMIT);
    close_run(&r);
    return least;
}

/* Wherever the host's experts are, the processor multiplies them: the same bits. */
static void experts_on_disk_beside_a_gpu_give_the_same_bits(void **state) {
    (void)state;
    static float want[MAX_VOCAB], got[MAX_VOCAB];
    struct err e = {0};
    struct run r;
    struct tier_stats s;
    for (int32_t n_layer = 1; n_layer <= N_LAYER; n_layer += 2) {
        isa = n_layer == 1 ? CPU_ISA_SCALAR : CPU_ISA_BEST;
        if (open_run(&r, n_layer, 0, &e) || logits_of(&r, -1, want, &e)) fail_msg("%s", e.text);
        assert_false(experts_stats(&r.m->weights.experts, &s));
        size_t n = (size_t)r.m->hp.n_vocab * sizeof *want;
        close_run(&r);
        uint64_t pool = least_pool(n_layer);
        if (open_run(&r, n_layer, pool, &e) || logits_of(&r, -1, got, &e)) fail_msg("%s", e.text);
        assert_memory_equal(want, got, n);
        assert_true(experts_stats(&r.m->weights.experts, &s));
        assert_int_equal(s.n_expert, n_layer * N_EXPERT);
        assert_true(s.n_slot < s.n_expert && s.n_miss > 0 && s.n_bytes > 0 && !s.is_device);
        assert_true(s.pool_bytes <= pool);
        close_run(&r);
    }
}

static void a_failed_read_fails_the_step(void **state) {
    (void)state;
    static float got[MAX_VOCAB];
    struct err e = {0};
    struct run r;
    if (open_run(&r, 2, least_pool(2), &e)) fail_msg("%s", e.text);
    assert_int_equal(logits_of(&r, 0, got, &e), CHIMERE_EIO);
    assert_non_null(strstr(e.text, "cannot read"));
    close_run(&r);
}

/* ---- the plan ---- */

static int plan(struct memory_plan *out, uint64_t vram, uint64_t ram, bool in_memory,
                struct err *e) {
    struct dev *d = open_cuda(vram);
    struct plan_params p = {.n_ctx = 8192,
                            .n_seq = 1,
                            .budget_bytes = ram,
                            .dev = d,
                            .vram_bytes = vram,
                            .in_memory = in_memory,
                            .expert_slots = true,
                            .n_cpu_moe = -1};
    engine_defaults(&p.engine);
    int rc = plan_make(out, whole, &p, e);
    d->ops->close(d);
    return rc;
}

static void what_no_memory_holds_stays_on_disk(void **state) {
    (void)state;
    const uint64_t gib = (uint64_t)1 << 30;
    struct memory_plan p, less;
    struct err e = {0};
    struct buf b;
    if (plan(&p, 8 * gib, 24 * gib, false, &e)) fail_msg("%s", e.text);
    assert_true(p.slot_bytes && !p.pool_bytes && !p.tier_bytes[PLAN_DISK]);
    if (plan(&p, 8 * gib, 4 * gib, false, &e)) fail_msg("%s", e.text);
    assert_true(!p.slot_bytes && !p.staging_bytes && p.pool_bytes);
    assert_in_range(p.n_cpu_moe, 20, 39); /* the GPU holds the experts of the others */
    assert_true(p.host_bytes <= 4 * gib && p.total_bytes <= 8 * gib);
    assert_true(p.tier_bytes[PLAN_DEVICE] && p.tier_bytes[PLAN_DISK]);
    assert_int_equal(p.tier_bytes[PLAN_MEMORY], p.pool_bytes);
    struct expert_placement where = plan_placement(&p);
    assert_int_equal(where.pool_bytes, p.pool_bytes);
    assert_int_equal(where.n_layer, p.n_cpu_moe);
    assert_int_equal(where.room_bytes, 0); /* pages of keys and values are on the GPU */
    if (plan(&less, 8 * gib, 3 * gib, false, &e)) fail_msg("%s", e.text);
    assert_true(less.pool_bytes < p.pool_bytes && less.host_bytes <= 3 * gib);
    buf_init(&b, 1 << 16);
    plan_print(&p, &b);
    assert_non_null(strstr(b.p, "are read from disk"));
    buf_fini(&b);
    assert_int_equal(plan(&p, 8 * gib, gib / 2, false, &e), CHIMERE_ELIMIT);
    assert_non_null(strstr(e.text, "does not fit"));
    assert_int_equal(plan(&p, 8 * gib, 4 * gib, true, &e), CHIMERE_ELIMIT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_on_disk_beside_a_gpu_give_the_same_bits),
        cmocka_unit_test(a_failed_read_fails_the_step),
        cmocka_unit_test(what_no_memory_holds_stays_on_disk),
    };
    return cmocka_run_group_tests(tests, make_files, scratch_drop);
}
