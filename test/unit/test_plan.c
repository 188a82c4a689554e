/* test_plan.c: what is chosen for how much memory, and what is refused; nano in several budgets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "engine/load.h"
#include "format/gguf.h"

static struct plan_params wanted(int64_t n_ctx, int32_t n_seq, int32_t n_seq_want,
                                 uint64_t budget) {
    struct plan_params p = {
        .n_ctx = n_ctx, .n_seq = n_seq, .n_seq_want = n_seq_want, .budget_bytes = budget};
    engine_defaults(&p.engine);
    return p;
}

static int plan(struct memory_plan *out, struct plan_params p, struct err *e) {
    int rc = plan_make(out, TEST_NANO, &p, e);
    if (rc) return rc;
    assert_true(out->total_bytes <= out->budget_bytes);
    assert_int_equal(out->total_bytes, out->weight_bytes + out->cache_bytes + out->state_bytes +
                                           out->scratch_bytes + out->program_bytes);
    assert_true(out->kept_bytes <= out->budget_bytes - out->total_bytes);
    assert_true(out->engine.n_ctx >= out->engine.n_ctx_seq);
    assert_true(out->engine.n_ctx <= out->engine.n_ctx_seq * out->engine.n_seq);
    return 0;
}

static void what_fits_is_taken_as_wanted(void **s) {
    (void)s;
    struct memory_plan p;
    struct err e = {0};
    struct stat st;
    assert_int_equal(stat(TEST_NANO, &st), 0);
    assert_int_equal(plan(&p, wanted(512, 3, 0, (uint64_t)8 << 30), &e), 0);
    assert_int_equal(p.engine.n_ctx_seq, 512);
    assert_int_equal(p.engine.n_seq, 3);
    assert_int_equal(p.engine.n_ctx, 3 * 512);
    assert_false(p.reduced);
    assert_true(p.weight_bytes < (uint64_t)st.st_size * 13 / 10); /* its embedding is tied */
    assert_true(p.weight_bytes > (uint64_t)st.st_size * 8 / 10);
    assert_int_equal(plan(&p, wanted(0, 0, 4, (uint64_t)8 << 30), &e), 0);
    assert_int_equal(p.engine.n_seq, 4);
    assert_int_equal(p.engine.n_ctx_seq,
                     p.n_ctx_train < PLAN_DEFAULT_CTX ? p.n_ctx_train : PLAN_DEFAULT_CTX);
}

/* The processor's memory holds all experts of a mixture that fits; they are a part of its weights. */
static void experts_are_on_one_tier_if_they_fit(void **s) {
    (void)s;
    struct memory_plan p;
    struct err e = {0};
    struct gguf *g;
    uint64_t n = 0;
    assert_int_equal(gguf_open(&g, TEST_NANO, &e), 0);
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        if (strstr(gguf_tensor_at(g, i)->name, "_exps.weight")) n += gguf_tensor_at(g, i)->n_bytes;
    gguf_close(g);
    assert_int_equal(plan(&p, wanted(512, 1, 0, (uint64_t)8 << 30), &e), 0);
    assert_true(n > 0);
    /* in the file's form; the ninth layer only drafts, and its experts never leave memory */
    assert_int_equal(9 * p.tier_bytes[PLAN_MEMORY], 8 * n);
    assert_true(n < p.weight_bytes);
    assert_int_equal(p.tier_bytes[PLAN_DEVICE], 0);
    assert_int_equal(p.tier_bytes[PLAN_DISK], 0);
}

/* The 4-bit rows that drafts read are memory of their own, if drafts are wanted at all. */
static void a_head_for_drafts_is_counted(void **s) {
    (void)s;
    enum { ROWS = 4096 };
    struct memory_plan without, with;
    struct err e = {0};
    struct plan_params p = wanted(512, 1, 0, (uint64_t)8 << 30);
    assert_int_equal(plan(&without, p, &e), 0);
    p.engine.n_draft_head = ROWS;
    assert_int_equal(plan(&with, p, &e), 0);
    assert_int_equal(with.total_bytes - without.total_bytes, ROWS * 256 / 32 * 18);
    p.engine.speculate = false;
    assert_int_equal(plan(&with, p, &e), 0);
    assert_true(with.total_bytes < without.total_bytes);
}

/* Less memory gives first fewer positions together, then fewer sequences, then shorter ones, and at last
 * a refusal. */
static void less_memory_gives_less(void **s) {
    (void)s;
    struct memory_plan full, p;
    struct err e = {0};
    assert_int_equal(plan(&full, wanted(0, 0, 8, (uint64_t)8 << 30), &e), 0);
    struct engine_params last = full.engine;
    bool shared = false, refused = false;
    for (uint64_t b = full.total_bytes; b > 1 << 20; b -= full.total_bytes / 50) {
        e = (struct err){0};
        int rc = plan(&p, wanted(0, 0, 8, b), &e);
        if (rc) {
            assert_int_equal(rc, CHIMERE_ELIMIT);
            assert_non_null(strstr(e.text, "does not fit"));
            refused = true;
            continue;
        }
        assert_false(refused);
        assert_true(p.engine.n_ctx_seq <= last.n_ctx_seq);
        if (p.engine.n_ctx_seq == last.n_ctx_seq) assert_true(p.engine.n_seq <= last.n_seq);
        last = p.engine;
        shared |= p.engine.n_seq == 8 && p.engine.n_ctx < full.engine.n_ctx;
    }
    assert_true(shared);
    assert_true(refused);
}

static void what_the_user_insists_on_is_kept_or_refused(void **s) {
    (void)s;
    struct memory_plan full, p;
    struct err e = {0};
    assert_int_equal(plan(&full, wanted(1024, 1, 0, (uint64_t)8 << 30), &e), 0);
    uint64_t enough = full.total_bytes;
    assert_int_equal(plan(&p, wanted(1024, 1, 0, enough), &e), 0);
    assert_int_equal(plan(&p, wanted(1024, 1, 0, enough - 1), &e), CHIMERE_ELIMIT);
    assert_non_null(strstr(e.text, "1 sequence of 1024 tokens"));
    assert_non_null(strstr(e.hint, "--ctx"));
    assert_int_equal(plan(&p, wanted(0, 200, 0, enough), &e), CHIMERE_ELIMIT);
    assert_int_equal(plan_make(&p, "/nowhere.gguf", &(struct plan_params){0}, &e), CHIMERE_ENOENT);
}

/* With full_ctx the sequences do not share what fits: less than all of it is refused. */
static void full_contexts_are_kept_or_refused(void **s) {
    (void)s;
    struct memory_plan full, p;
    struct err e = {0};
    struct plan_params want = wanted(2048, 4, 0, (uint64_t)8 << 30);
    want.full_ctx = true;
    assert_int_equal(plan(&full, want, &e), 0);
    assert_int_equal(full.engine.n_ctx, 4 * 2048);
    want.budget_bytes = full.total_bytes;
    assert_int_equal(plan(&p, want, &e), 0);
    assert_int_equal(p.engine.n_ctx, 4 * 2048);
    want.budget_bytes--;
    assert_int_equal(plan(&p, want, &e), CHIMERE_ELIMIT);
    assert_non_null(strstr(e.text, "4 sequences of 2048 tokens"));
    want.full_ctx = false;
    assert_int_equal(plan(&p, want, &e), 0);
    assert_true(p.engine.n_ctx < 4 * 2048);
}

/* On the processor; a device's choice stands in test_cuda_engine. */
static void a_batch_is_chosen_unless_given(void **s) {
    (void)s;
    struct memory_plan p;
    struct err e = {0};
    struct plan_params want = wanted(512, 1, 0, (uint64_t)8 << 30);
    want.engine.n_batch = 0;
    assert_int_equal(plan(&p, want, &e), 0);
    assert_int_equal(p.engine.n_batch, PLAN_BATCH);
    want.engine.n_batch = 77;
    assert_int_equal(plan(&p, want, &e), 0);
    assert_int_equal(p.engine.n_batch, 77);
}

static void a_plan_can_be_run(void **s) {
    (void)s;
    struct loaded l;
    struct load_params p;
    struct err e = {0};
    load_defaults(&p);
    p.path = TEST_NANO;
    p.quiet = true;
    p.plan.n_seq_want = 2;
    p.plan.n_ctx = 300;
    assert_int_equal(load_open(&l, &p, &e), 0);
    assert_int_equal(engine_ctx(l.engine), 300);
    assert_non_null(l.template);
    struct buf text;
    buf_init(&text, 4096);
    plan_print(&l.plan, &text);
    assert_non_null(strstr(text.p, "2 sequences of at most 300 tokens"));
    buf_fini(&text);
    load_close(&l);
    p.plan.budget_bytes = 1 << 20;
    assert_int_equal(load_open(&l, &p, &e), CHIMERE_ELIMIT);
    assert_null(l.dev);
    assert_true(plan_available_bytes() > 16 << 20);
}

int main(void) {
    if (!file_exists(TEST_NANO)) {
        printf("skip: plan: the build made no chimere-nano.gguf\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits_is_taken_as_wanted),
        cmocka_unit_test(experts_are_on_one_tier_if_they_fit),
        cmocka_unit_test(a_head_for_drafts_is_counted),
        cmocka_unit_test(less_memory_gives_less),
        cmocka_unit_test(what_the_user_insists_on_is_kept_or_refused),
        cmocka_unit_test(full_contexts_are_kept_or_refused),
        cmocka_unit_test(a_batch_is_chosen_unless_given),
        cmocka_unit_test(a_plan_can_be_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
