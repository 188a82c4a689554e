/* ref_select.c: the candidates and sums of rows of logits, for samplers. Values are mapped to integers of the same
 * order and the threshold is found digit by digit, so the function neither sorts nor allocates. */
#include <math.h>
#include <string.h>

#include "kernels/ref/ref.h"

/* Floats as unsigned integers of the same order. */
static uint32_t key_of(float x) {
    uint32_t b;
    memcpy(&b, &x, 4);
    return b >> 31 ? ~b : b | 0x80000000u;
}

static bool allows(const uint64_t *mask, int32_t i) {
    return !mask || (mask[i / 64] >> i % 64 & 1);
}

/* The key of the SELECT_TOP-th largest of the allowed finite values; 0 if there are fewer. */
static uint32_t threshold(const float *x, const uint64_t *mask, int32_t n) {
    uint32_t prefix = 0, left = SELECT_TOP;
    for (int shift = 24; shift >= 0; shift -= 8) {
        uint32_t count[256] = {0}, digit = 255;
        for (int32_t i = 0; i < n; i++) {
            uint32_t k = key_of(x[i]);
            bool same = shift == 24 || k >> (shift + 8) == prefix >> (shift + 8);
            if (same && isfinite(x[i]) && allows(mask, i)) count[k >> shift & 255]++;
        }
        while (digit > 0 && count[digit] < left) left -= count[digit--];
        if (count[digit] < left) return 0;
        prefix |= digit << shift;
    }
    return prefix;
}

static void select_one(const float *x, const uint64_t *mask, int32_t n, struct select_row *out) {
    bool any = false, bad = false;
    double sum = 0, weighted = 0;
    out->max = -INFINITY;
    out->n_finite = out->n = 0;
    for (int32_t i = 0; i < n; i++) {
        bad |= isnan(x[i]) || x[i] == INFINITY;
        any |= isfinite(x[i]);
        if (!isfinite(x[i]) || !allows(mask, i)) continue;
        out->n_finite++;
        out->max = x[i] > out->max ? x[i] : out->max;
    }
    out->is_finite = any && !bad;
    uint32_t least = threshold(x, mask, n);
    for (int32_t i = 0; i < n; i++) {
        if (!isfinite(x[i]) || !allows(mask, i)) continue;
        double d = (double)x[i] - (double)out->max, p = exp(d);
        sum += p;
        weighted += p * d;
        if (out->n < 0 || key_of(x[i]) < least) continue;
        if (out->n == SELECT_CAP) {
            out->n = -1;
            continue;
        }
        out->ids[out->n] = i;
        out->logits[out->n++] = x[i];
    }
    out->log_sum = log(sum);
    out->entropy = out->log_sum - weighted / sum;
}

void ref_select(struct dev *d, const struct select_args *a) {
    struct ref *r = (struct ref *)d;
    if (!ref_begin(r)) return;
    for (int32_t i = 0; i < a->n_row; i++) {
        const float *row = a->logits + (int64_t)i * a->n_vocab;
        select_one(row, a->masks ? a->masks[i] : NULL, a->n_vocab, &a->rows[i]);
        for (int32_t k = a->id_at ? a->id_at[i] : 0; a->id_at && k < a->id_at[i + 1]; k++)
            a->id_logits[k] = row[a->ids[k]];
    }
}
