/* lookup.c: contexts -> what followed them. The hot path: the slots of several orders are asked for at
 * once, then their text and records, so that the misses overlap. Orders 2 to 4 first: most contexts of a
 * text that the table does not know end there, and asking for all seven cost 600 to 800 ns where this
 * costs one miss.
 *
 * No filter stands in front: a lookup that misses reads one bucket, one cache line, which is what a
 * cuckoo filter would read to say so (bench_engram, "no hit"). */
#include <string.h>

#include "engram/table_impl.h"

enum { FIRST_ORDERS = 4 };

struct probe {
    uint64_t bucket;
    uint32_t tag;
    const struct engram_slot *slot; /* view */
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

/* Tokens before pos that agree with the end of ctx, `most` at most. */
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

static void ask(const struct engram_table *t, struct probe *p, uint64_t acc, int order) {
    uint64_t key = engram_key(acc, order);
    p->tag = (uint32_t)key;
    p->bucket = engram_bucket(key, t->h.n_bucket);
    __builtin_prefetch(t->slots + p->bucket * ENGRAM_BUCKET);
}

/* A longer context is in the table only where the shorter one is and stands at several positions, so the
 * first order that is missing or unique ends the search. */
static int known_orders(const struct engram_table *t, const int32_t *ctx, int32_t n_ctx,
                        struct probe *probes) {
    int most = n_ctx < ENGRAM_MAX_ORDER ? n_ctx : ENGRAM_MAX_ORDER, asked = 0;
    uint64_t acc = 0;
    for (int k = ENGRAM_MIN_ORDER; k <= most; k++) {
        for (int until = k > FIRST_ORDERS ? most : FIRST_ORDERS; asked < until && asked < most;) {
            acc = engram_hash_step(acc, (uint32_t)ctx[n_ctx - ++asked]);
            if (asked >= ENGRAM_MIN_ORDER) ask(t, &probes[asked], acc, asked);
        }
        const struct engram_slot *s = find(t, probes[k].bucket, probes[k].tag, k);
        if (!s || s->pos >= t->h.n_text) return k - 1;
        probes[k].slot = s;
        __builtin_prefetch(t->text + s->pos - (s->pos < 8 ? s->pos : 8));
        if ((uint64_t)s->record * 8 < t->h.record_bytes)
            __builtin_prefetch(t->records + (uint64_t)s->record * 8);
        if (s->order & ENGRAM_SLOT_UNIQUE) return k;
    }
    return most;
}

int engram_lookup(const struct engram_table *t, const int32_t *ctx, int32_t n_ctx,
                  struct engram_hit hits[ENGRAM_N_ORDER]) {
    if (t->old.order) return engram_legacy_lookup(t, ctx, n_ctx, hits);
    struct probe probes[ENGRAM_MAX_ORDER + 1];
    int n = 0;
    for (int k = known_orders(t, ctx, n_ctx, probes); k >= ENGRAM_MIN_ORDER; k--) {
        const struct engram_slot *s = probes[k].slot;
        bool unique = s->order & ENGRAM_SLOT_UNIQUE;
        int32_t agree = agreeing(t, s->pos, ctx, n_ctx, unique ? ENGRAM_MAX_ORDER : k);
        if (agree < k || !fill(t, s, &hits[n])) continue;
        hits[n++].order = agree;
    }
    return n;
}
