/* map.h: a hash map from byte strings to 32-bit values, with open addressing; keys are copied to an arena.
 *
 * The hash has a seed per process, so that collisions cannot be constructed. Not thread-safe for writers; once built,
 * any number of threads may read. */
#ifndef CHIMERE_BASE_MAP_H
#define CHIMERE_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

struct map_slot;
struct map {
    struct map_slot *slots; /* owned */
    size_t n, cap;          /* cap: 0 or a power of two */
    struct arena keys;
};

void map_init(struct map *m, size_t max_key_bytes);
int map_reserve(struct map *m, size_t n); /* 0 or CHIMERE_ENOMEM */
/* Inserts or replaces. Returns 0; 1 if the key existed (its value is replaced); CHIMERE_ENOMEM or CHIMERE_ELIMIT. */
int map_put(struct map *m, const char *key, size_t n_key, uint32_t value);
bool map_find(const struct map *m, const char *key, size_t n_key, uint32_t *value);
void map_fini(struct map *m);

#endif
