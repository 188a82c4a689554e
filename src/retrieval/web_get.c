/* web_get.c: concurrent fetching, and the cache. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "retrieval/web_impl.h"

char *web_cache_find(struct web *w, const char *key, size_t *n) {
    char *copy = NULL;
    int64_t now = clock_ns();
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < WEB_N_CACHE && !copy; ++i) {
        struct web_entry *e = &w->cache[i];
        if (!e->key || e->until_ns < now || strcmp(e->key, key)) continue;
        e->used_ns = now;
        copy = mem_strndup(e->body, e->n);
        *n = e->n;
    }
    pthread_mutex_unlock(&w->lock);
    return copy;
}

void web_cache_put(struct web *w, const char *key, const char *body, size_t n, int64_t keep_s) {
    int64_t now = clock_ns();
    char *own_key = mem_strdup(key), *own = mem_strndup(body, n);
    pthread_mutex_lock(&w->lock);
    struct web_entry *oldest = &w->cache[0];
    for (int i = 0; i < WEB_N_CACHE; ++i) {
        struct web_entry *e = &w->cache[i];
        if (e->key && !strcmp(e->key, key)) {
            oldest = e;
            break;
        }
        if (e->used_ns < oldest->used_ns) oldest = e;
    }
    mem_free(oldest->key);
    mem_free(oldest->body);
    *oldest = (struct web_entry){0};
    if (own_key && own) {
        *oldest = (struct web_entry){own_key, own, n, now + keep_s * 1000000000, now};
        own_key = own = NULL;
    }
    pthread_mutex_unlock(&w->lock);
    mem_free(own_key);
    mem_free(own);
}

bool web_split(const char *url, char *origin, size_t origin_size, const char **path) {
    if (!str_starts(url, "http://") && !str_starts(url, "https://")) return false;
    const char *host = strstr(url, "://") + 3, *end = host + strcspn(host, "/?#");
    size_t n = (size_t)(end - url);
    if (end == host || n >= origin_size || memchr(host, '@', (size_t)(end - host))) return false;
    memcpy(origin, url, n);
    origin[n] = 0;
    *path = *end == '/' ? end : "/";
    return true;
}

int web_escape(struct buf *b, const char *text) {
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~";
    for (; *text; ++text) {
        if (strchr(plain, *text)) buf_putc(b, *text);
        else buf_printf(b, "%%%02X", (unsigned char)*text);
    }
    return b->failed;
}

void web_get_init(struct web_get *g, const char *key, const char *url, uint64_t max_bytes) {
    *g = (struct web_get){.max_bytes = max_bytes};
    snprintf(g->url, sizeof g->url, "%s", url);
    snprintf(g->key, sizeof g->key, "%s %.*s", key, (int)sizeof g->url - 1, url);
    buf_init(&g->body, max_bytes + 1);
}

struct many {
    struct web *w;
    struct web_get *g;
    const struct web_question *q;
};

struct reading { /* ud of one request: points to the state of all requests and to its own slot */
    struct many *all;
    struct web_get *g;
};

static int on_head(void *ud, const struct fetch_reply *r) {
    struct reading *x = ud;
    snprintf(x->g->type, sizeof x->g->type, "%s", r->type);
    return 0;
}

static int on_body(void *ud, const char *p, size_t n) {
    struct reading *x = ud;
    size_t room = x->g->max_bytes - x->g->body.n;
    buf_put(&x->g->body, p, n < room ? n : room);
    if (n <= room) return x->g->body.failed;
    x->g->cut = true; /* only the beginning of a huge page is kept */
    return CHIMERE_ELIMIT;
}

static bool is_cancelled(void *ud) {
    const struct reading *x = ud;
    const struct web_question *q = x->all->q;
    return (q->cancelled && *q->cancelled) || (q->deadline_ns && clock_ns() > q->deadline_ns);
}

struct slots {
    struct many all;
    struct reading reading[FETCH_MAX_TRANSFERS];
};

static enum fetch_next next(void *ud, int32_t i, struct fetch_request *r) {
    struct slots *s = ud;
    struct web_get *g = &s->all.g[i];
    if (g->started) return FETCH_STOP;
    g->started = true;
    size_t n;
    char *kept = web_cache_find(s->all.w, g->key, &n);
    if (kept) { /* "type\nbody" */
        char *line = memchr(kept, '\n', n);
        if (line) {
            snprintf(g->type, sizeof g->type, "%.*s", (int)(line - kept), kept);
            buf_put(&g->body, line + 1, n - (size_t)(line + 1 - kept));
        }
        mem_free(kept);
        return FETCH_STOP;
    }
    int64_t left_ms =
        s->all.q->deadline_ns ? (s->all.q->deadline_ns - clock_ns()) / 1000000 : 15000;
    if (left_ms < 1) left_ms = 1;
    s->reading[i] = (struct reading){&s->all, g};
    *r = (struct fetch_request){.url = g->url,
                                .headers = g->headers,
                                .max_bytes = g->max_bytes * 2,
                                .connect_ms = 5000,
                                .total_ms = (int32_t)(left_ms < 15000 ? left_ms : 15000),
                                .stall_ms = 5000,
                                .max_redirects =
                                    /* a request with a key follows no redirect */
                                g->headers[0] ? -1 : 4,
                                .public_only = g->public_only,
                                .on_head = on_head,
                                .on_body = on_body,
                                .is_cancelled = is_cancelled,
                                .ud = &s->reading[i]};
    return FETCH_START;
}

static int done(void *ud, int32_t i, int rc, struct fetch_reply *reply, struct err *e) {
    struct slots *s = ud;
    struct web_get *g = &s->all.g[i];
    g->rc = g->cut ? 0 : rc;
    if (!g->rc && (reply->status < 200 || reply->status > 299)) {
        g->rc = reply->status == 404 || reply->status == 410 ? CHIMERE_ENOENT : CHIMERE_EIO;
        snprintf(g->why, sizeof g->why, "status %d", reply->status);
    } else if (g->rc) {
        snprintf(g->why, sizeof g->why, "%.150s", e->text);
    }
    if (!g->rc && g->keep_s) {
        struct buf b;
        buf_init(&b, g->max_bytes + 256);
        buf_printf(&b, "%s\n", g->type);
        buf_put(&b, g->body.n ? g->body.p : "", g->body.n);
        if (!b.failed) web_cache_put(s->all.w, g->key, b.p, b.n, g->keep_s);
        buf_fini(&b);
    }
    return 0;
}

void web_get_all(struct web *w, struct web_get *g, int32_t n, const struct web_question *q) {
    struct slots s = {.all = {w, g, q}};
    if (n > FETCH_MAX_TRANSFERS) n = FETCH_MAX_TRANSFERS;
    struct fetch_many m = {.n = n, .next = next, .done = done, .ud = &s};
    struct err e = {0};
    if (n > 0 && fetch_many(&m, &e))
        for (int32_t i = 0; i < n; ++i)
            if (!g[i].body.n && !g[i].rc) g[i].rc = e.code ? e.code : CHIMERE_EIO;
}
