#include "engram/held.h"

enum { LEAST_TOKENS = 4 }; /* fewer can agree by chance */

static bool continues(const struct engram_hit *h, int32_t token) {
    if (h->order < ENGRAM_MAX_ORDER) return false;
    for (uint32_t i = 0; i < h->n_next; ++i)
        if (engram_hit_next(h)[i].token == (uint32_t)token) return true;
    return false;
}

double engram_held(const struct engram_table *t, const int32_t *tokens, size_t n) {
    struct engram_hit hits[ENGRAM_N_ORDER];
    size_t n_in = 0;
    if (n < ENGRAM_MAX_ORDER + LEAST_TOKENS) return 0;
    for (size_t i = ENGRAM_MAX_ORDER; i < n; ++i)
        n_in += engram_lookup(t, tokens + i - ENGRAM_MAX_ORDER, ENGRAM_MAX_ORDER, hits) > 0 &&
                continues(&hits[0], tokens[i]);
    return (double)n_in / (double)(n - ENGRAM_MAX_ORDER);
}

bool engram_is_held(const struct engram_table *t, const int32_t *tokens, size_t n) {
    return engram_held(t, tokens, n) >= 0.5;
}
