#include "odo/taint.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"

struct taint {
    pthread_mutex_t lock;
    /* random, so that others cannot construct two texts with the same hash */
    uint64_t seed;
    /* lowest bit: untrusted (TAINT_STRANGERS); 0: empty */
    uint64_t marks[TAINT_BUCKETS][TAINT_WAYS];
    unsigned char next[TAINT_BUCKETS]; /* index of the oldest entry per bucket */
};

struct taint *taint_new(void) {
    struct taint *t = mem_zalloc(sizeof *t);
    if (!t) return NULL;
    pthread_mutex_init(&t->lock, NULL);
    t->seed = rng_entropy();
    return t;
}

void taint_free(struct taint *t) {
    if (!t) return;
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

void taint_feed(struct taint_text *x, const char *s, size_t n) {
    for (size_t i = 0; i < n; ++i) {
        unsigned char c = (unsigned char)s[i];
        if (c <= ' ') continue; /* white space is ignored, because clients trim and wrap text */
        x->whole = (x->whole ^ c) * 0x9e3779b97f4a7c15ULL;
        x->whole ^= x->whole >> 29;
        if (++x->n == TAINT_HEAD) x->head = x->whole;
    }
}

static void end_question(struct taint_text *x) {
    x->whole = hash_mix(x->whole);
    x->n = 0;
}

void taint_begin(const struct taint *t, struct taint_text *x, const char *owner,
                 const char *question) {
    *x = (struct taint_text){.whole = t->seed};
    taint_feed(x, owner, strlen(owner));
    x->whole = hash_mix(x->whole);
    taint_feed(x, question, strlen(question));
    end_question(x);
}

static void mark(struct taint *t, uint64_t h, enum taint_level level) {
    h = hash_mix(h);
    uint64_t value = (h & ~(uint64_t)1) | (level == TAINT_STRANGERS);
    size_t b = h >> 32 & (TAINT_BUCKETS - 1);
    t->marks[b][t->next[b]++ % TAINT_WAYS] = value ? value : 2;
}

void taint_mark(struct taint *t, const struct taint_text *x, enum taint_level level) {
    if (!level || !x->n) return;
    pthread_mutex_lock(&t->lock);
    mark(t, x->whole, level);
    if (x->n > TAINT_HEAD) mark(t, x->head, level);
    pthread_mutex_unlock(&t->lock);
}

static enum taint_level find(const struct taint *t, uint64_t h) {
    h = hash_mix(h);
    size_t b = h >> 32 & (TAINT_BUCKETS - 1);
    enum taint_level level = TAINT_NONE;
    for (int i = 0; i < TAINT_WAYS; ++i) {
        uint64_t m = t->marks[b][i];
        if (!m || (m & ~(uint64_t)1) != (h & ~(uint64_t)1)) continue;
        enum taint_level one = m & 1 ? TAINT_STRANGERS : TAINT_LOCAL;
        if (one > level) level = one;
    }
    return level;
}

static enum taint_level find_text(struct taint *t, const struct taint_text *x) {
    if (!x->n) return TAINT_NONE;
    pthread_mutex_lock(&t->lock);
    enum taint_level whole = find(t, x->whole),
                     head = x->n >= TAINT_HEAD ? find(t, x->head) : TAINT_NONE;
    pthread_mutex_unlock(&t->lock);
    return whole > head ? whole : head;
}

static void feed_content(struct taint_text *x, const json_t *content) {
    size_t i;
    json_t *part;
    if (json_is_string(content))
        taint_feed(x, json_string_value(content), json_string_length(content));
    json_array_foreach(content, i, part) {
        const json_t *text = json_object_get(part, "text");
        if (text) taint_feed(x, json_string_value(text), json_string_length(text));
    }
}

enum taint_level taint_of(struct taint *t, const char *owner, const json_t *messages) {
    struct taint_text start = {.whole = t->seed}, asked;
    enum taint_level level = TAINT_NONE;
    size_t i;
    json_t *m;
    taint_begin(t, &asked, owner, "");
    taint_feed(&start, owner, strlen(owner));
    start.whole = hash_mix(start.whole);
    json_array_foreach(messages, i, m) {
        const char *role = json_string_value(json_object_get(m, "role"));
        const json_t *content = json_object_get(m, "content");
        struct taint_text x = asked;
        enum taint_level one = TAINT_NONE;
        if (!role) continue;
        if (!strcmp(role, "tool") || !strcmp(role, "function")) one = TAINT_STRANGERS;
        if (!strcmp(role, "user")) {
            asked = start;
            feed_content(&asked, content);
            end_question(&asked);
        } else if (!strcmp(role, "assistant")) {
            feed_content(&x, content);
            one = find_text(t, &x);
        }
        if (one > level) level = one;
    }
    return level;
}
