#include "model/experts/experts_share.h"

#include <math.h>
#include <stdbool.h>

/* T is between 1 and 2^MAX_LOG tokens; STEPS halvings find it to a fraction of a slot. */
enum { MAX_LOG = 32, STEPS = 40 };

/* The expected number of different experts in n_tok tokens. Each expert counts as used once more than it was, so that a
 * few counts say little. */
static double distinct(const struct share_layer *l, int32_t n_expert, int32_t n_used,
                       double n_tok) {
    double sum = n_expert, n = 0;
    for (int32_t x = 0; x < n_expert; x++) sum += l->uses[x];
    for (int32_t x = 0; x < n_expert; x++) {
        double p = (1 + (double)l->uses[x]) / sum * n_used;
        n += 1 - pow(1 - (p < 1 ? p : 1), n_tok);
    }
    return n;
}

static bool fits(struct share_layer *l, int32_t n_layer, int32_t n_expert, int32_t n_used,
                 int32_t least, uint64_t bytes, double n_tok) {
    uint64_t all = 0;
    for (int32_t il = 0; il < n_layer; il++) {
        if (!l[il].record) continue;
        int32_t n = (int32_t)distinct(&l[il], n_expert, n_used, n_tok);
        l[il].n = n < least ? least : n;
        all += (uint64_t)l[il].n * l[il].record;
    }
    return all <= bytes;
}

void experts_share(struct share_layer *l, int32_t n_layer, int32_t n_expert, int32_t n_used,
                   int32_t least, uint64_t bytes) {
    double low = 0, high = MAX_LOG;
    for (int i = 0; i < STEPS; i++) {
        double middle = (low + high) / 2;
        if (fits(l, n_layer, n_expert, n_used, least, bytes, exp2(middle))) low = middle;
        else high = middle;
    }
    fits(l, n_layer, n_expert, n_used, least, bytes, exp2(low));
    for (int32_t il = 0; il < n_layer; il++) bytes -= (uint64_t)l[il].n * l[il].record;
    for (bool more = true; more;) { /* what rounding left */
        more = false;
        for (int32_t il = 0; il < n_layer; il++) {
            if (!l[il].record || l[il].n >= n_expert || l[il].record > bytes) continue;
            bytes -= l[il].record;
            l[il].n++;
            more = true;
        }
    }
}
