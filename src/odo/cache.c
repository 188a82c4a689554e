#include "odo/cache.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

struct entry {
    char *key, *text; /* owned */
    int64_t until_ns, used_ns;
};

struct cache {
    pthread_mutex_t lock;
    struct entry v[CACHE_N];
};

int cache_new(struct cache **out, struct err *e) {
    *out = mem_zalloc(sizeof **out);
    if (!*out) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    pthread_mutex_init(&(*out)->lock, NULL);
    return 0;
}

void cache_free(struct cache *c) {
    if (!c) return;
    for (int i = 0; i < CACHE_N; ++i) {
        mem_free(c->v[i].key);
        mem_free(c->v[i].text);
    }
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

char *cache_key(const struct ask *a, const char *route, const char *mode) {
    const struct sampler_params *s = &a->sampling;
    if (a->n != 1 || a->probs || a->n_stop || !a->messages) return NULL;
    json_t *o = json_pack(
        "{s:s, s:s, s:s, s:O, s:i, s:i, s:b, s:[f,f,f,f,f,i]}", "owner", a->owner ? a->owner : "",
        "route", route, "mode", mode, "messages", a->messages, "format", (int)a->format, "max",
        (int)a->max_tokens, "think", a->think, "sampling", (double)s->temperature, (double)s->top_p,
        (double)s->min_p, (double)s->presence_penalty, (double)s->repeat_penalty, (int)s->top_k);
    if (o && a->tools) json_object_set(o, "tools", a->tools);
    if (o && a->schema) json_object_set(o, "schema", a->schema);
    if (o && a->extra) json_object_set(o, "extra", a->extra);
    if (o && a->grammar) json_object_set_new(o, "grammar", json_string(a->grammar));
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(o);
    if (text && strlen(text) > CACHE_MAX_BYTES) {
        mem_free(text);
        text = NULL;
    }
    return text;
}

char *cache_find(struct cache *c, const char *key) {
    char *copy = NULL;
    int64_t now = clock_ns();
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < CACHE_N && !copy; ++i) {
        struct entry *e = &c->v[i];
        if (!e->key || e->until_ns < now || strcmp(e->key, key)) continue;
        e->used_ns = now;
        copy = mem_strdup(e->text);
    }
    pthread_mutex_unlock(&c->lock);
    return copy;
}

void cache_put(struct cache *c, const char *key, const char *text, size_t n) {
    if (n > CACHE_MAX_BYTES) return;
    char *own_key = mem_strdup(key), *own = mem_strndup(text, n);
    int64_t now = clock_ns();
    pthread_mutex_lock(&c->lock);
    struct entry *oldest = &c->v[0];
    for (int i = 0; i < CACHE_N; ++i) {
        if (c->v[i].key && !strcmp(c->v[i].key, key)) {
            oldest = &c->v[i];
            break;
        }
        if (c->v[i].used_ns < oldest->used_ns) oldest = &c->v[i];
    }
    mem_free(oldest->key);
    mem_free(oldest->text);
    *oldest = (struct entry){0};
    if (own_key && own) {
        *oldest = (struct entry){own_key, own, now + (int64_t)CACHE_KEEP_S * 1000000000, now};
        own_key = own = NULL;
    }
    pthread_mutex_unlock(&c->lock);
    mem_free(own_key);
    mem_free(own);
}
