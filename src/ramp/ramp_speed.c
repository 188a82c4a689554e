/* ramp_speed.c: see ramp_speed.h. */
#include "ramp/ramp_speed.h"

#include <stdlib.h>

#include "base/clock.h"
#include "format/quant.h"
#include "model/seq/seq.h"

enum { WARM_UP = 4, MAX_STEPS = 64, LEAST_STEPS = 8, MAX_MS = 5000 };

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int ramp_speed(double *tok_s, struct model *m, const struct windows_text *t, struct err *e) {
    struct seq_pool *pool = NULL;
    struct seq *seq = NULL;
    struct forward *f = NULL;
    double ms[MAX_STEPS];
    int32_t n = 0;
    const struct seq_pool_params params = {
        .n_slot = 1, .n_ctx = t->ctx, .k_type = QUANT_F16, .v_type = QUANT_F16};
    int rc = seq_pool_new(&pool, m, &params, e);
    if (!rc) rc = seq_new(&seq, pool, e);
    if (!rc) rc = forward_new(&f, m, pool, 1, 1, e);
    int64_t begin = clock_ns();
    for (int32_t at = 0; !rc && at < t->ctx && n < MAX_STEPS; at++) {
        if (n >= LEAST_STEPS && clock_ms_since(begin) > MAX_MS) break;
        const struct batch_item item = {
            .seq = seq, .tokens = t->tokens + at, .n_tok = 1, .want = WANT_LAST};
        const float *logits;
        int64_t start = clock_ns();
        rc = forward_run(f, &item, 1, &logits, e);
        if (at >= WARM_UP) ms[n++] = clock_ms_since(start);
    }
    forward_free(f);
    seq_free(seq);
    seq_pool_free(pool);
    if (rc) return rc;
    qsort(ms, (size_t)n, sizeof *ms, by_size);
    *tok_s = n && ms[n / 2] > 0 ? 1000 / ms[n / 2] : 0;
    return 0;
}
