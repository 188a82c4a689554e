/* select_rows.h: what ops->select returns against its promise, by brute force: for every device's test. */
#ifndef TEST_SELECT_ROWS_H
#define TEST_SELECT_ROWS_H

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernels/ops.h"

static inline bool select_allows(const uint64_t *mask, int32_t i) {
    return !mask || (mask[i / 64] >> i % 64 & 1);
}

/* The promise about one row: the set is closed upwards, large enough, exact; the sums are right. */
static inline void select_check_row(const float *x, const uint64_t *mask, int32_t n,
                                    const struct select_row *r, bool may_give_up) {
    bool any = false, bad = false;
    int32_t n_finite = 0;
    double max = -INFINITY, sum = 0, weighted = 0;
    for (int32_t i = 0; i < n; i++) {
        any |= isfinite(x[i]);
        bad |= isnan(x[i]) || x[i] == INFINITY;
        if (!isfinite(x[i]) || !select_allows(mask, i)) continue;
        n_finite++;
        max = x[i] > max ? x[i] : max;
    }
    assert_int_equal(r->is_finite, any && !bad);
    if (!r->is_finite) return;
    assert_int_equal(r->n_finite, n_finite);
    assert_true(r->max == (float)max);
    if (!n_finite) {
        assert_int_equal(r->n, 0);
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        if (!isfinite(x[i]) || !select_allows(mask, i)) continue;
        double d = x[i] - max, p = exp(d);
        sum += p;
        if (p > 0) weighted += p * d;
    }
    assert_true(fabs(r->log_sum - log(sum)) < 1e-6);
    assert_true(fabs(r->entropy - (log(sum) - weighted / sum)) < 1e-5);
    if (r->n < 0) {
        assert_true(may_give_up);
        return;
    }
    assert_in_range(r->n, n_finite < SELECT_TOP ? n_finite : SELECT_TOP, SELECT_CAP);
    uint8_t *seen = mem_zalloc((size_t)n);
    float least = INFINITY;
    for (int32_t i = 0; i < r->n; i++) {
        int32_t id = r->ids[i];
        assert_in_range(id, 0, n - 1);
        assert_true(!seen[id] && select_allows(mask, id) && r->logits[i] == x[id]);
        seen[id] = 1;
        least = x[id] < least ? x[id] : least;
    }
    for (int32_t i = 0; i < n; i++)
        if (!seen[i] && select_allows(mask, i)) assert_true(x[i] < least);
    mem_free(seen);
}

/* 19 rows, each another kind; logits is memory that the device reads. */
enum { SELECT_KINDS = 19 };
static inline void select_check(struct dev *d, float *logits, int32_t n) {
    int32_t n_word = (n + 63) / 64;
    size_t n_mask = (size_t)(SELECT_KINDS * n_word);
    uint64_t *bits = mem_zalloc(n_mask * sizeof *bits);
    const uint64_t *masks[SELECT_KINDS] = {0};
    int32_t ids[SELECT_KINDS * 40], at[SELECT_KINDS + 1] = {0};
    struct select_row *rows = mem_zalloc(SELECT_KINDS * sizeof *rows);
    float picked[SELECT_KINDS * 40];
    struct rng random;
    rng_seed(&random, (uint64_t)n);
    for (int k = 0; k < SELECT_KINDS; k++) {
        float *x = logits + (int64_t)k * n;
        uint64_t *mask = bits + k * n_word;
        double width = k % 4 == 0 ? 3 : k % 4 == 1 ? 0.5 : k % 4 == 2 ? 12 : 2;
        for (int32_t i = 0; i < n; i++) {
            x[i] = (float)(width * rng_normal(&random) - 5);
            if (k % 3 == 1 || (k % 3 == 2 && rng_below(&random, 50) == 0))
                mask[i / 64] |= (uint64_t)1 << i % 64;
        }
        if (k % 3) masks[k] = mask;
        for (int32_t i = 0; k == 5 && i < n; i++) x[i] = 1.5f;
        for (int32_t i = 0; k == 6 && i < n; i++) x[i] = rng_below(&random, 3) ? -INFINITY : x[i];
        for (int32_t i = 0; k == 7 && i < n; i++) x[i] = -INFINITY;
        if (k == 8) memset(mask, 0, (size_t)n_word * sizeof *mask);
        if (k == 9) x[n / 2] = NAN;
        if (k == 10) x[n - 1] = INFINITY;
        if (k == 11) mask[0] = 1, x[0] = -INFINITY; /* what little is allowed is banned */
        if (k == 12) x[n / 100] = x[n - 1] = -3e38f, x[0] = 3e38f; /* in a part, and apart */
        for (int32_t i = 0; k == 15 && i < n; i++) x[i] = (float)(int)x[i]; /* ties */
        int32_t n_id = k % 5 == 4 ? 0 : 3 + k;
        for (int32_t i = 0; i < n_id; i++)
            ids[at[k] + i] = (int32_t)rng_below(&random, (uint64_t)n);
        at[k + 1] = at[k] + n_id;
    }
    const struct select_args a = {.n_row = SELECT_KINDS,
                                  .n_vocab = n,
                                  .logits = logits,
                                  .masks = masks,
                                  .ids = ids,
                                  .id_at = at,
                                  .rows = rows,
                                  .id_logits = picked};
    d->ops->select(d, &a);
    assert_int_equal(d->ops->status(d, NULL), 0);
    for (int k = 0; k < SELECT_KINDS; k++) {
        const float *x = logits + (int64_t)k * n;
        bool ties = k == 5 || k == 15 || k == 12 || k % 4 == 1;
        select_check_row(x, masks[k], n, &rows[k], ties);
        for (int32_t i = at[k]; i < at[k + 1]; i++)
            assert_memory_equal(&picked[i], &x[ids[i]], sizeof *x);
    }
    mem_free(bits);
    mem_free(rows);
}

#endif
