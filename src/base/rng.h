/* rng.h: random numbers: a small sequential generator and a counter-based one.
 *
 * `struct rng` is xoshiro256** (Blackman, Vigna, public domain) seeded by splitmix64. The same seed gives the same
 * stream on every machine. rng_at() has random access: it returns element i of stream `seed`, so that any thread can
 * compute any element. */
#ifndef CHIMERE_BASE_RNG_H
#define CHIMERE_BASE_RNG_H

#include <stdint.h>

struct rng {
    uint64_t s[4];
};

void rng_seed(struct rng *r, uint64_t seed);
uint64_t rng_next(struct rng *r);
double rng_uniform(struct rng *r);             /* in [0, 1), with 53 bits */
double rng_normal(struct rng *r);              /* mean 0, deviation 1 */
uint64_t rng_below(struct rng *r, uint64_t n); /* unbiased in [0, n); n > 0 */
uint64_t rng_at(uint64_t seed, uint64_t i);
uint64_t rng_process_seed(void); /* random once per process; for hash tables */
uint64_t rng_entropy(void);      /* fresh bits from the kernel */

#endif
