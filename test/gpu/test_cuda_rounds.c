/* test_cuda_rounds.c: rounds of drafts and their verification send the same lists of launches whatever was accepted,
 * so that each list is a CUDA graph from its second time on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "engine/draft/drafter.h"
#include "format/quant.h"
#include "kernels/cuda/cuda.h"
#include "model/forward.h"
#include "model/model.h"

enum { N_DRAFT = 2, N_ROUND = 5 };

struct rig {
    struct dev *d;
    struct model *m;
    struct seq_pool *pool;
    struct forward *f;
    struct seq *s;
    struct drafter *drafter;
    struct select_row rows[N_DRAFT + 1];
};

static void open_rig(struct rig *r) {
    struct err e = {0};
    const struct cuda_params p = {.precise = false};
    *r = (struct rig){.d = NULL};
    if (cuda_open(&r->d, &p, &e)) fail_msg("%s", e.text);
    int rc = model_open(&r->m, TEST_DATA "/../../models/chimere-nano-bf16.gguf", r->d, true, &e);
    const struct seq_pool_params pp = {
        .n_slot = 1, .n_ctx = 64, .k_type = QUANT_F16, .v_type = QUANT_F16, .log = true};
    if (!rc) rc = seq_pool_new(&r->pool, r->m, &pp, &e);
    if (!rc) rc = forward_new(&r->f, r->m, r->pool, 16, N_DRAFT + 1, &e);
    if (!rc) rc = seq_new(&r->s, r->pool, &e);
    const struct drafter_params dp = {.m = r->m, .f = r->f, .n_seq = 1, .select = true};
    if (!rc) rc = drafter_open(&r->drafter, &dp, &e);
    if (rc) fail_msg("%s", e.text);
}

static void close_rig(struct rig *r) {
    r->drafter->ops->close(r->drafter);
    seq_free(r->s);
    forward_free(r->f);
    seq_pool_free(r->pool);
    model_close(r->m);
    r->d->ops->close(r->d);
}

/* Runs n tokens of which kept stay, and lets the drafter observe these. */
static void step(struct rig *r, const int32_t *tokens, int32_t n, int32_t kept) {
    static const bool follow = true;
    struct err e = {0};
    const struct batch_item run = {
        .seq = r->s, .tokens = tokens, .n_tok = n, .defer = n == N_DRAFT + 1, .want = WANT_ALL};
    struct select_args a = {.rows = r->rows};
    int rc = forward_run(r->f, &run, 1, NULL, &e);
    if (!rc) rc = forward_select(r->f, &a, &e);
    if (kept < n) seq_drop(r->s, n - kept);
    if (!rc) rc = r->drafter->ops->observe(r->drafter, &run, &kept, &follow, 1, &e);
    if (rc) fail_msg("%s", e.text);
}

static struct dev_stats count(const struct rig *r) {
    struct dev_stats s = {0};
    r->d->ops->stats(r->d, &s);
    return s;
}

static void lists_repeat_whatever_was_accepted(void **state) {
    (void)state;
    static const int32_t kept[N_ROUND] = {1, 3, 2, 1, 3};
    struct rig r;
    struct err e = {0};
    int32_t tokens[N_DRAFT + 1] = {5};
    open_rig(&r);
    step(&r, tokens, 1, 1);
    for (int32_t round = 0; round < N_ROUND; round++) {
        struct drafter_request t = {.seq = r.s, .next = 9 + round, .n_draft = N_DRAFT};
        const struct dev_stats start = count(&r);
        if (r.drafter->ops->draft(r.drafter, &t, 1, &e)) fail_msg("%s", e.text);
        assert_int_equal(t.n_draft, N_DRAFT);
        tokens[0] = t.next;
        for (int32_t i = 0; i < N_DRAFT; i++) tokens[1 + i] = t.tokens[i];
        const struct dev_stats drafted = count(&r);
        step(&r, tokens, N_DRAFT + 1, kept[round]);
        const struct dev_stats end = count(&r);
        /* One list for each drafted token. The first has as many rows as were kept; the second's address of the first's
         * row depends on whether several were, which in round 2 is new. */
        assert_int_equal(drafted.n_list - start.n_list, N_DRAFT);
        assert_true(end.n_list > drafted.n_list);
        if (!round) continue;
        if (round != 2) assert_true(drafted.n_graph - start.n_graph >= N_DRAFT - 1);
        assert_int_equal(end.n_graph - drafted.n_graph, end.n_list - drafted.n_list);
    }
    close_rig(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lists_repeat_whatever_was_accepted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
