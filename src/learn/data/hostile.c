#include "learn/data/hostile.h"

#include "learn/gate.h"

enum hostile_verdict hostile_verdict(size_t n, size_t n_reversed, int look, double *p) {
    *p = gate_binomial((int64_t)n_reversed, (int64_t)n, HOSTILE_HONEST);
    if (*p < HOSTILE_LIMIT) return HOSTILE_YES;
    return look < HOSTILE_LOOKS && *p < HOSTILE_UNSURE ? HOSTILE_HELD : HOSTILE_NO;
}
