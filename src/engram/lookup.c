/* lookup.c: finds what followed a context. This is the hot path. The slots of several orders are prefetched at
 * once, then their text and records, so that cache misses overlap. Orders 2 to 4 come first, because most contexts
 * that the table does not know end there. Independent lookups run through the same steps in parallel, so that they
 * wait for memory together: one eighth of the time per lookup.
 *
 * There is no filter before the table: a cuckoo filter halves the cost of a miss and adds a quarter to every hit,
 * and hits are what a table is for (bench_engram still measures it; docs/engram.md has the figures). */
#include <string.h>

#include "engram/table_impl.h"

enum { FIRST_ORDERS = 4, IN_FLIGHT = 16 };

struct probe {
    uint64_t bucket;
    uint32_t tag;
    const struct engram_slot *slot; /* view */
};

/* State of one lookup between its steps. */
struct walk {
    struct probe probes[ENGRAM_MAX_ORDER + 1];
    uint64_t acc;
    int most, asked, known; /* orders: highest, prefetched, found */
    bool is_done;
};

static const struct engram_slot *find(const struct engram_table *t, uint64_t bucket, uint32_t tag,
                                      int order) {
    for (uint32_t i = 0; i < t->h.max_probe; i++) {
        const struct engram_slot *s = t->slots + bucket * ENGRAM_BUCKET;
        for (int k = 0; k < ENGRAM_BUCKET; k++) {
            if (s[k].tag == tag && (s[k].order & ~ENGRAM_SLOT_UNIQUE) == order) return &s[k];
            if (!s[k].order) return NULL;
        }
        if (++bucket == t->h.n_bucket) bucket = 0;
    }
    return NULL;
}

/* Returns how many tokens before pos agree with the end of ctx, at most `most`. */
static int32_t agreeing(const struct engram_table *t, uint32_t pos, const int32_t *ctx,
                        int32_t n_ctx, int32_t most) {
    if ((uint32_t)most > pos) most = (int32_t)pos;
    if (most > n_ctx) most = n_ctx;
    int32_t n = 0;
    while (n < most && t->text[pos - 1 - (uint32_t)n] == (uint32_t)ctx[n_ctx - 1 - n]) n++;
    return n;
}

static bool fill(const struct engram_table *t, const struct engram_slot *s, struct engram_hit *h) {
    *h = (struct engram_hit){
        .total = s->count, .n_doc = s->n_doc, .n_next = 1, .pos = s->pos, .unit = ENGRAM_UNIT};
    h->is_unique = s->order & ENGRAM_SLOT_UNIQUE;
    if (!s->record) {
        h->one = (struct engram_next){t->text[s->pos], s->count};
        return h->one.token != ENGRAM_BOUNDARY && s->count;
    }
    uint64_t at = (uint64_t)s->record * 8;
    uint32_t head[2];
    if (at + 8 > t->h.record_bytes) return false;
    memcpy(head, t->records + at, 8);
    if (head[1] < 1 || head[1] > ENGRAM_MAX_NEXT || (t->h.record_bytes - at - 8) / 8 < head[1])
        return false;
    h->total = head[0];
    h->n_next = head[1];
    h->list = (const struct engram_next *)(t->records + at + 8);
    return h->total > 0;
}

/* Prefetches the slots of the orders up to `until`. */
static void walk_ask(const struct engram_table *t, struct walk *w, const int32_t *ctx,
                     int32_t n_ctx, int until) {
    while (w->asked < until && w->asked < w->most) {
        w->acc = engram_hash_step(w->acc, (uint32_t)ctx[n_ctx - ++w->asked]);
        if (w->asked < ENGRAM_MIN_ORDER) continue;
        uint64_t key = engram_key(w->acc, w->asked);
        struct probe *p = &w->probes[w->asked];
        p->tag = (uint32_t)key;
        p->bucket = engram_bucket(key, t->h.n_bucket);
        __builtin_prefetch(t->slots + p->bucket * ENGRAM_BUCKET);
    }
}

static void walk_start(const struct engram_table *t, struct walk *w, const int32_t *ctx,
                       int32_t n_ctx) {
    w->acc = 0;
    w->asked = 0;
    w->known = ENGRAM_MIN_ORDER - 1;
    w->most = n_ctx < ENGRAM_MAX_ORDER ? n_ctx : ENGRAM_MAX_ORDER;
    w->is_done = w->most < ENGRAM_MIN_ORDER;
    walk_ask(t, w, ctx, n_ctx, FIRST_ORDERS);
}

/* Finds the prefetched orders. If all of them are known, prefetches the others. A longer context is in the table
 * only if the shorter one is in it and occurs at several positions. So the first order that is missing or unique
 * ends the search. */
static void walk_on(const struct engram_table *t, struct walk *w, const int32_t *ctx,
                    int32_t n_ctx) {
    while (!w->is_done && w->known < w->asked) {
        int k = w->known + 1;
        const struct engram_slot *s = find(t, w->probes[k].bucket, w->probes[k].tag, k);
        w->is_done = !s || s->pos >= t->h.n_text;
        if (w->is_done) return;
        w->probes[k].slot = s;
        w->known = k;
        /* the text to compare may span two cache lines */
        uint32_t back = s->order & ENGRAM_SLOT_UNIQUE ? ENGRAM_MAX_ORDER : (uint32_t)k;
        __builtin_prefetch(t->text + s->pos);
        __builtin_prefetch(t->text + s->pos - (s->pos < back ? s->pos : back));
        if ((uint64_t)s->record * 8 < t->h.record_bytes)
            __builtin_prefetch(t->records + (uint64_t)s->record * 8);
        w->is_done = s->order & ENGRAM_SLOT_UNIQUE;
    }
    if (w->asked == w->most) w->is_done = true;
    if (!w->is_done) walk_ask(t, w, ctx, n_ctx, ENGRAM_MAX_ORDER);
}

static int walk_end(const struct engram_table *t, const struct walk *w, const int32_t *ctx,
                    int32_t n_ctx, struct engram_hit *hits) {
    int n = 0;
    for (int k = w->known; k >= ENGRAM_MIN_ORDER; k--) {
        const struct engram_slot *s = w->probes[k].slot;
        bool unique = s->order & ENGRAM_SLOT_UNIQUE;
        int32_t agree = agreeing(t, s->pos, ctx, n_ctx, unique ? ENGRAM_MAX_ORDER : k);
        if (agree < k || !fill(t, s, &hits[n])) continue;
        hits[n++].order = agree;
    }
    return n;
}

int engram_lookup(const struct engram_table *t, const int32_t *ctx, int32_t n_ctx,
                  struct engram_hit hits[ENGRAM_N_ORDER]) {
    if (t->old.order) return engram_legacy_lookup(t, ctx, n_ctx, hits);
    struct walk w;
    walk_start(t, &w, ctx, n_ctx);
    while (!w.is_done) walk_on(t, &w, ctx, n_ctx);
    return walk_end(t, &w, ctx, n_ctx, hits);
}

static void lookup_group(struct engram_query *q, size_t n) {
    struct walk w[IN_FLIGHT];
    for (size_t i = 0; i < n; i++) walk_start(q[i].table, &w[i], q[i].ctx, q[i].n_ctx);
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < n; i++) {
            if (!w[i].is_done) walk_on(q[i].table, &w[i], q[i].ctx, q[i].n_ctx);
            more |= !w[i].is_done;
        }
    }
    for (size_t i = 0; i < n; i++)
        q[i].n_hit = walk_end(q[i].table, &w[i], q[i].ctx, q[i].n_ctx, q[i].hits);
}

void engram_lookup_many(struct engram_query *q, size_t n) {
    for (size_t at = 0; at < n;) {
        size_t k = 0;
        while (at + k < n && k < IN_FLIGHT && !q[at + k].table->old.order) k++;
        if (k) lookup_group(q + at, k);
        else /* a table of version 1 */
            q[at].n_hit = engram_lookup(q[at].table, q[at].ctx, q[at].n_ctx, q[at].hits);
        at += k ? k : 1;
    }
}
