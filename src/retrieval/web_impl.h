/* web_impl.h: the parts of one search. */
#ifndef CHIMERE_RETRIEVAL_WEB_IMPL_H
#define CHIMERE_RETRIEVAL_WEB_IMPL_H

#include "base/thread.h"
#include "net/fetch.h"
#include "retrieval/web.h"

enum { WEB_N_CACHE = 512, WEB_MAX_RESULTS = 100, WEB_MAX_URL = 2048 };

struct web_entry {    /* an entry of the cache */
    char *key, *body; /* owned */
    size_t n;
    int64_t until_ns, used_ns;
};

struct web {
    struct web_params p;  /* its strings are owned */
    pthread_mutex_t lock; /* protects the cache */
    struct web_entry cache[WEB_N_CACHE];
};

/* Returns a copy of the cached value of a key; free it with mem_free. NULL: not cached. */
char *web_cache_find(struct web *w, const char *key, size_t *n);
void web_cache_put(struct web *w, const char *key, const char *body, size_t n, int64_t keep_s);

struct web_get { /* an address to fetch, and the result */
    char url[WEB_MAX_URL];
    char key[WEB_MAX_URL + 16];
    const char *headers[3];
    bool public_only;
    uint64_t max_bytes;
    int64_t keep_s;
    /* results */
    struct buf body;
    char type[96];
    int rc;
    bool cut, started;
    char why[160];
};
/* Fetches all addresses concurrently until the deadline. Each entry has its own result. */
void web_get_all(struct web *w, struct web_get *g, int32_t n, const struct web_question *q);
void web_get_init(struct web_get *g, const char *key, const char *url, uint64_t max_bytes);
/* Splits an address into "http://host:port" and "/path?query". Returns false if it is not HTTP. */
bool web_split(const char *url, char *origin, size_t origin_size, const char **path);
int web_escape(struct buf *b, const char *text);

#endif
