/* legacy.c: reads tables of version 1: a single order, FNV-1a hash of the context, no keys, no documents.
 *
 *   offset  size         field
 *   0       4            magic 0x454e4752
 *   4       4            version 1
 *   8       4            order: tokens of a context
 *   12      4            slots, a power of two
 *   16      4            entries
 *   20      16 * slots   uint64 hash (0: free), uint32 offset after the slots, uint32 sum of counts
 *   ...     ...          records: uint32 n, n * {uint32 token, uint32 count}, by count, descending
 *
 * The reader cannot know whether a slot belongs to the context that it looks up: contexts with equal hashes share
 * a slot. */
#include <string.h>

#include "base/mem.h"
#include "engram/table_impl.h"

enum { HEADER = 20, SLOT = 16, MAX_OLD_ORDER = 64 };

static int bad(const struct engram_table *t, struct err *e, const char *what) {
    return err_set(e, CHIMERE_EFORMAT, "%s: damaged n-gram table of version 1: %s", t->name, what);
}

int engram_legacy_open(struct engram_table *t, uint32_t n_vocab, struct err *e) {
    uint32_t field[5];
    memcpy(field, t->data, sizeof field);
    uint32_t order = field[2], n_slot = field[3];
    if (order < 1 || order > MAX_OLD_ORDER) return bad(t, e, "its order");
    if (n_slot < 1 || n_slot & (n_slot - 1) || (t->size - HEADER) / SLOT < n_slot)
        return bad(t, e, "the number of its slots");
    if (n_vocab < 1 || n_vocab > ENGRAM_MAX_VOCAB) return bad(t, e, "vocabulary");
    t->old.n_slot = n_slot;
    t->old.slots = t->data + HEADER;
    t->old.data = t->old.slots + (size_t)n_slot * SLOT;
    t->old.data_bytes = t->size - HEADER - (uint64_t)n_slot * SLOT;
    t->h.n_vocab = n_vocab;
    t->h.n_entry = field[4];
    t->h.order_min = t->h.order_max = (uint16_t)order;
    t->old.order = order;
    /* records are read as arrays of 32-bit words */
    if ((uintptr_t)t->old.data % 4) return bad(t, e, "its alignment");
    return 0;
}

/* Reads and checks the record at offset. Returns false if it extends past the file. */
static bool read_record(const struct engram_table *t, uint32_t offset, struct engram_hit *h) {
    uint32_t n;
    uint64_t total = 0;
    if (offset % 4 || offset > t->old.data_bytes || t->old.data_bytes - offset < 4) return false;
    memcpy(&n, t->old.data + offset, 4);
    if (n < 1 || n > (t->old.data_bytes - offset - 4) / 8) return false;
    if (n > ENGRAM_MAX_NEXT) n = ENGRAM_MAX_NEXT;
    h->list = (const struct engram_next *)(t->old.data + offset + 4);
    for (uint32_t i = 0; i < n; i++) {
        if (h->list[i].token >= t->h.n_vocab) return false;
        total += h->list[i].count;
    }
    h->n_next = n;
    h->total = total > UINT32_MAX ? UINT32_MAX : (uint32_t)total;
    return total > 0;
}

int engram_legacy_lookup(const struct engram_table *t, const int32_t *ctx, int32_t n_ctx,
                         struct engram_hit *hit) {
    if (n_ctx < (int32_t)t->old.order) return 0;
    uint64_t hash = hash_fnv1a(ctx + n_ctx - t->old.order, 4 * (size_t)t->old.order);
    uint32_t mask = t->old.n_slot - 1, at = (uint32_t)hash & mask;
    for (uint32_t i = 0; i < ENGRAM_MAX_PROBE * ENGRAM_BUCKET && i <= mask;
         i++, at = (at + 1) & mask) {
        uint64_t key;
        uint32_t offset;
        memcpy(&key, t->old.slots + (size_t)at * SLOT, 8);
        if (!key) return 0;
        if (key != hash) continue;
        memcpy(&offset, t->old.slots + (size_t)at * SLOT + 8, 4);
        *hit = (struct engram_hit){
            .order = (int32_t)t->old.order, .n_doc = 1, .pos = UINT32_MAX, .unit = 1};
        return read_record(t, offset, hit);
    }
    return 0;
}

int engram_legacy_verify(const struct engram_table *t, struct err *e) {
    for (uint32_t i = 0; i < t->old.n_slot; i++) {
        uint64_t key;
        uint32_t offset;
        struct engram_hit hit = {0};
        memcpy(&key, t->old.slots + (size_t)i * SLOT, 8);
        memcpy(&offset, t->old.slots + (size_t)i * SLOT + 8, 4);
        if (key && !read_record(t, offset, &hit)) return bad(t, e, "a record");
    }
    return 0;
}
