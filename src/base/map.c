#include "base/map.h"

#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/rng.h"

struct map_slot {
    const char *key; /* view into keys; NULL: empty */
    uint32_t n_key, value;
    uint64_t hash;
};

void map_init(struct map *m, size_t max_key_bytes) {
    *m = (struct map){.slots = NULL};
    arena_init(&m->keys, max_key_bytes);
}

static struct map_slot *probe(const struct map *m, const char *key, size_t n, uint64_t h) {
    for (size_t i = h & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        struct map_slot *s = &m->slots[i];
        if (!s->key || (s->hash == h && s->n_key == n && memcmp(s->key, key, n) == 0)) return s;
    }
}

int map_reserve(struct map *m, size_t n) {
    size_t cap = m->cap ? m->cap : 16;
    while (cap / 4 * 3 < n) {
        if (cap > SIZE_MAX / 4) return CHIMERE_ENOMEM;
        cap *= 2;
    }
    if (cap == m->cap) return 0;
    struct map_slot *old = m->slots;
    size_t old_cap = m->cap;
    struct map_slot *slots = mem_alloc_array(cap, sizeof *slots);
    if (!slots) return CHIMERE_ENOMEM;
    m->slots = slots;
    m->cap = cap;
    for (size_t i = 0; i < old_cap; i++)
        if (old[i].key) *probe(m, old[i].key, old[i].n_key, old[i].hash) = old[i];
    mem_free(old);
    return 0;
}

int map_put(struct map *m, const char *key, size_t n_key, uint32_t value) {
    if (n_key > UINT32_MAX) return CHIMERE_ELIMIT;
    int rc = map_reserve(m, m->n + 1);
    if (rc) return rc;
    uint64_t h = hash_bytes(key, n_key, rng_process_seed());
    struct map_slot *s = probe(m, key, n_key, h);
    if (s->key) {
        s->value = value;
        return 1;
    }
    char *copy = arena_strndup(&m->keys, key, n_key);
    if (!copy) {
        size_t left = m->keys.max_bytes - m->keys.used_bytes;
        return left < n_key + 16 ? CHIMERE_ELIMIT : CHIMERE_ENOMEM;
    }
    *s = (struct map_slot){copy, (uint32_t)n_key, value, h};
    m->n++;
    return 0;
}

bool map_find(const struct map *m, const char *key, size_t n_key, uint32_t *value) {
    if (!m->cap || n_key > UINT32_MAX) return false;
    struct map_slot *s = probe(m, key, n_key, hash_bytes(key, n_key, rng_process_seed()));
    if (!s->key) return false;
    *value = s->value;
    return true;
}

void map_fini(struct map *m) {
    mem_free(m->slots);
    arena_fini(&m->keys);
    *m = (struct map){.slots = NULL};
}
