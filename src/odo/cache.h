/* cache.h: answers to requests that came before, of the same owner, where the request asks for it (odo.cache).
 *
 * Exact: the very same request. Near: the same request but for the words of its last question, which must
 * mean the same: its vector is as good as equal, and numbers, names and negations are the same. Never kept:
 * answers that hang on the time (cache_is_timeless), and, by the caller's care, those that tools or sources
 * had a part in. In memory; bounded in number, size and time. Any thread. */
#ifndef CHIMERE_ODO_CACHE_H
#define CHIMERE_ODO_CACHE_H

#include "backend/backend.h"

enum { CACHE_N = 256, CACHE_MAX_BYTES = 64 << 10, CACHE_KEEP_S = 3600 };
#define CACHE_NEAR 0.93 /* least cosine of two questions that mean the same */

/* Texts -> vectors of length 1. Any thread; blocks. */
struct cache_vectors {
    int32_t n; /* floats of one */
    int (*of)(void *ud, const char *text, float *out, struct err *e);
    void *ud; /* borrowed until cache_free */
};

struct cache;

/* keep_ms: how long an answer lives. v may be NULL (nothing is near then); borrowed until cache_free. */
int cache_new(struct cache **out, int64_t keep_ms, const struct cache_vectors *v, struct err *e);
void cache_free(struct cache *c);

struct cache_place { /* where a request's answer lies */
    char *key;       /* owned; NULL: such a request is not kept */
    char *
        scope; /* owned; all of it but the last question; NULL: only the very same request will do */
    char *question; /* owned */
    float *vec;     /* owned [n] or NULL */
};
/* What a request is: owner and user, route, mode, context (what else went into the prompt), messages, tools, form,
 * sampling. near: a question that means the same will do. CHIMERE_E* of the vectors costs the near part alone. */
int cache_place(struct cache *c, const struct request *a, const char *route, const char *mode,
                const char *context, const char *question, bool near, struct cache_place *out);
void cache_place_fini(struct cache_place *p);
/* By mem_free; NULL: unknown or too old. *cosine: 1 where the request is the same. */
char *cache_find(struct cache *c, const struct cache_place *p, double *cosine);
void cache_put(struct cache *c, const struct cache_place *p, const char *text, size_t n);

/* False: it asks for what will be different tomorrow. */
bool cache_is_timeless(const char *question);
/* Numbers, names and negations of two questions are the same. */
bool cache_is_alike(const char *a, const char *b);

#endif
