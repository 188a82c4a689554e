#include "base/rng.h"

#include <math.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <time.h>

#include "base/hash.h"

static uint64_t splitmix(uint64_t *x) {
    uint64_t z = *x += 0x9e3779b97f4a7c15ULL;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return z ^ z >> 31;
}

void rng_seed(struct rng *r, uint64_t seed) {
    for (int i = 0; i < 4; i++) r->s[i] = splitmix(&seed);
}

static uint64_t rotl(uint64_t x, int k) { return x << k | x >> (64 - k); }

uint64_t rng_next(struct rng *r) {
    uint64_t *s = r->s, out = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return out;
}

double rng_uniform(struct rng *r) { return (double)(rng_next(r) >> 11) * 0x1p-53; }

double rng_normal(struct rng *r) {
    double u = 1.0 - rng_uniform(r), v = rng_uniform(r); /* Box-Muller */
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

uint64_t rng_below(struct rng *r, uint64_t n) {
    uint64_t limit = UINT64_MAX - UINT64_MAX % n, x;
    do x = rng_next(r);
    while (x >= limit);
    return x % n;
}

uint64_t rng_at(uint64_t seed, uint64_t i) {
    uint64_t x = hash_mix(seed + 0x9e3779b97f4a7c15ULL) + i * 0xd1342543de82ef95ULL;
    return splitmix(&x);
}

uint64_t rng_entropy(void) {
    uint64_t x = 0;
    if (getrandom(&x, sizeof x, 0) == sizeof x) return x;
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return hash_mix((uint64_t)ts.tv_nsec ^ (uint64_t)ts.tv_sec << 32 ^ (uint64_t)(uintptr_t)&x);
}

uint64_t rng_process_seed(void) {
    static _Atomic uint64_t seed;
    uint64_t s = atomic_load_explicit(&seed, memory_order_relaxed);
    if (s) return s;
    uint64_t fresh = rng_entropy() | 1;
    return atomic_compare_exchange_strong(&seed, &s, fresh) ? fresh : s;
}
