/* cache.h: cached answers to earlier requests of the same owner; used only if a request asks for it (odo.cache).
 *
 * Exact match: an identical request. Near match: only the words of the last question differ, and both questions
 * mean the same. That is assumed if their vectors are almost equal and their numbers, names and negations are the
 * same.
 * Never cached: answers that depend on the time (cache_is_timeless). The caller must not store answers that used
 * tools or sources. In memory; limited in number, size and age. Any thread. */
#ifndef CHIMERE_ODO_CACHE_H
#define CHIMERE_ODO_CACHE_H

#include "backend/backend.h"

enum { CACHE_N = 256, CACHE_MAX_BYTES = 64 << 10, CACHE_KEEP_S = 3600 };
#define CACHE_NEAR 0.93 /* smallest cosine at which two questions mean the same */

/* Converts texts to vectors of length 1. Any thread; blocks. */
struct cache_vectors {
    int32_t n; /* floats per vector */
    int (*of)(void *ud, const char *text, float *out, struct err *e);
    void *ud; /* borrowed until cache_free */
};

struct cache;

/* keep_ms: lifetime of an answer. v is borrowed until cache_free; if v is NULL, there are no near matches. */
int cache_new(struct cache **out, int64_t keep_ms, const struct cache_vectors *v, struct err *e);
void cache_free(struct cache *c);

struct cache_place { /* the key under which the answer to a request is stored */
    char *key;       /* owned; NULL: the request is not cached */
    char *scope;     /* owned; the request without its last question; NULL: no near matches */
    char *question;  /* owned */
    float *vec;      /* owned [n] or NULL */
};
/* Computes the key of a request from owner and user, route, mode, context (the other text of the prompt),
 * messages, tools, output format and sampling. near: also allow near matches. If the vectors fail with CHIMERE_E*,
 * only near matches are lost. */
int cache_place(struct cache *c, const struct request *a, const char *route, const char *mode,
                const char *context, const char *question, bool near, struct cache_place *out);
void cache_place_fini(struct cache_place *p);
/* Returns a copy to free with mem_free; NULL: not found or expired. *cosine is 1 for an identical request. */
char *cache_find(struct cache *c, const struct cache_place *p, double *cosine);
void cache_put(struct cache *c, const struct cache_place *p, const char *text, size_t n);

/* Returns false if the question asks for something that changes from day to day. */
bool cache_is_timeless(const char *question);
/* Returns true if the numbers, names and negations of two questions are the same. */
bool cache_is_alike(const char *a, const char *b);

#endif
