/* cache.h: answers to the very same request of the very same owner, where the request asks for it
 * (odo.cache). In memory; bounded in number, size and time. Any thread. */
#ifndef CHIMERE_ODO_CACHE_H
#define CHIMERE_ODO_CACHE_H

#include "engine/ask.h"

enum { CACHE_N = 256, CACHE_MAX_BYTES = 64 << 10, CACHE_KEEP_S = 3600 };

struct cache;

int cache_new(struct cache **out, struct err *e);
void cache_free(struct cache *c);
/* What a request is, as text: owner, route and mode, messages, tools, form, sampling. By mem_free; NULL:
 * out of memory, or a request that is not to be kept. */
char *cache_key(const struct ask *a, const char *route, const char *mode);
char *cache_find(struct cache *c, const char *key); /* by mem_free; NULL: unknown or too old */
void cache_put(struct cache *c, const char *key, const char *text, size_t n);

#endif
