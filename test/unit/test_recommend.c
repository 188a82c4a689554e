/* test_recommend.c: the curated list against headers of published shapes and the planner; fit; prediction. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "backend/catalog/recommend.h"
#include "convert/synth.h"
#include "engine/plan.h"
#include "format/quant.h"
#include "kernels/cpu/cpu.h"
#include "net/hub.h"
#include "scratch.h"

static void near(const char *what, double got, double want, double tolerance) {
    if (got < want * (1 - tolerance) || got > want * (1 + tolerance))
        fail_msg("%s: %g, expected %g within %g %%", what, got, want, 100 * tolerance);
}

/* A row's numbers are those of the same shape's header: what is computed from it is what would run. */
static void row_is_like(const char *name, const char *shape) {
    char path[64];
    snprintf(path, sizeof path, "%s/shape.gguf", scratch);
    struct err e = {0};
    const struct synth_options how = {
        .shape = shape, .mix = "q4km", .out = path, .is_hollow = true};
    struct synth_result made;
    struct speed_cost c;
    struct memory_plan plan;
    struct plan_params p = {.engine = {.k_type = QUANT_F16, .v_type = QUANT_F16},
                            .n_ctx = 4096,
                            .n_seq = 1,
                            .budget_bytes = UINT64_MAX};
    if (synth_write(&how, &made, &e)) fail_msg("%s", e.text);
    if (speed_cost_read(&c, path, &e)) fail_msg("%s", e.text);
    if (plan_make(&plan, path, &p, &e)) fail_msg("%s", e.text);
    const struct curated *m = recommend_find(name);
    assert_non_null(m);
    uint64_t used = 0, routed = 0;
    for (int i = 0; i < SPEED_MAX_TYPES; i++) used += c.n_mul[i], routed += c.n_routed[i];
    near("weights per token", m->shape.n_used_m, (double)used * 1e-6, 0.15);
    near("routed weights per token", m->shape.n_routed_m, (double)routed * 1e-6, 0.05);
    near("state", (double)m->shape.state_kb * 1000, (double)c.state_bytes, 0.1);
    near("cache", (double)m->shape.cache_bytes_per_tok, (double)plan.cache_bytes_per_tok, 0.02);
    near("experts", m->shape.n_expert, c.n_expert, 0);
    near("experts used", m->shape.n_used, c.n_used, 0);
    struct curated same = *m;
    same.n_mb = plan.weight_bytes / 1000000;
    near("need", (double)recommend_fit(&same, UINT64_MAX, 0).need_bytes, (double)plan.total_bytes,
         0.05);
}

static void rows_are_like_published_shapes(void **state) {
    (void)state;
    row_is_like("qwen3.5-35b", "qwen35moe-35b");
    row_is_like("nemotron-3-nano", "nemotron-30b");
}

static void names_lead_to_a_hub(void **state) {
    (void)state;
    char hub[256], small[8];
    struct err e = {0};
    struct hub_ref r;
    assert_true(recommend_hub("qwen3.5-4b", hub, sizeof hub));
    assert_int_equal(hub_parse(&r, hub, &e), 0);
    assert_string_equal(r.owner, "unsloth");
    assert_string_equal(r.pick, "Q4_K_M");
    assert_false(recommend_hub("qwen3.5-4b", small, sizeof small));
    assert_false(recommend_hub("smol", hub, sizeof hub));
    assert_false(recommend_hub("qwen3.5-4", hub, sizeof hub));
    assert_null(recommend_find(""));
}

static void fit_follows_memory(void **state) {
    (void)state;
    const uint64_t gb = 1000000000;
    const struct curated *m = recommend_find("qwen3.5-35b");
    struct fit f = recommend_fit(m, 16 * gb, 0);
    assert_false(f.fits);
    f = recommend_fit(m, f.need_bytes + (256 << 20), 0);
    assert_true(f.fits);
    assert_int_equal(f.n_ctx, 4096);
    f = recommend_fit(m, 24 * gb, 0);
    assert_true(f.fits && f.n_ctx > 4096 && f.n_ctx < m->n_ctx_train);
    assert_int_equal(recommend_fit(m, 200 * gb, 0).n_ctx, m->n_ctx_train);
    /* a GPU of 12 GB: experts beside it, if the host can hold them */
    f = recommend_fit(m, 32 * gb, 12 * gb);
    assert_true(f.fits && f.experts_on_host);
    assert_false(recommend_fit(m, 4 * gb, 12 * gb).fits);
    assert_false(recommend_fit(m, 32 * gb, 1 * gb).fits); /* not even what is no expert */
    f = recommend_fit(m, 4 * gb, 80 * gb);
    assert_true(f.fits && !f.experts_on_host);
    /* a dense model has nothing to leave out */
    assert_false(recommend_fit(recommend_find("qwen3.5-27b"), 64 * gb, 12 * gb).fits);

    assert_string_equal(recommend_best(64 * gb)->name, "qwen3.6-35b");
    assert_string_equal(recommend_best(8 * gb)->name, "qwen3.5-4b");
    assert_string_equal(recommend_best(1 * gb)->name, "smol");
    assert_null(recommend_best(100 << 20));
}

/* More products of a type take longer, in the proportion of their number. */
static void prediction_is_a_sum(void **state) {
    (void)state;
    struct dev *dev;
    struct err e = {0};
    struct speed_probe *probe;
    struct speed one, two, none;
    assert_int_equal(cpu_open(&dev, 1, CPU_ISA_BEST, &e), 0);
    if (speed_probe_new(&probe, dev, &e)) fail_msg("%s", e.text);
    struct speed_cost c = {.weight_bytes = 200000000};
    c.n_mul[QUANT_Q4_0] = 100000000;
    if (speed_predict(&one, probe, &c, &e)) fail_msg("%s", e.text);
    c.n_mul[QUANT_Q4_0] *= 2;
    if (speed_predict(&two, probe, &c, &e)) fail_msg("%s", e.text);
    near("decode of half", one.decode_tok_s, 2 * two.decode_tok_s, 1e-6);
    near("prefill of half", one.prefill_tok_s, 2 * two.prefill_tok_s, 1e-6);
    assert_true(one.prefill_tok_s > one.decode_tok_s);
    c.state_bytes = 1 << 30;
    if (speed_predict(&none, probe, &c, &e)) fail_msg("%s", e.text);
    assert_true(none.decode_tok_s < two.decode_tok_s);
    c = (struct speed_cost){.n_op = 0};
    c.n_mul[QUANT_IQ2_XXS] = 1000; /* cannot be encoded without weights: refused, not guessed */
    assert_int_equal(speed_predict(&none, probe, &c, &e), CHIMERE_EUNSUPPORTED);
    speed_probe_free(probe);
    dev->ops->close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_like_published_shapes),
        cmocka_unit_test(names_lead_to_a_hub),
        cmocka_unit_test(fit_follows_memory),
        cmocka_unit_test(prediction_is_a_sum),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
