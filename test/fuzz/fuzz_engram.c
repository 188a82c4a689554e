/* n-gram tables: whatever opens can be asked, verified and shown without leaving its memory. Checksums are
 * made to hold, so that what is behind them is reached. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engram/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADER = 512, BODY_HASH = 152, HEADER_HASH = 160 };

static void request(const struct engram_table *t, const int32_t *ctx, int32_t n) {
    struct engram_hit hits[ENGRAM_N_ORDER], again[2][ENGRAM_N_ORDER];
    int n_hit = engram_lookup(t, ctx, n, hits);
    if (n_hit > ENGRAM_N_ORDER) abort();
    struct engram_query q[2] = {{t, ctx, n, 0, again[0]}, {t, ctx, n, 0, again[1]}};
    engram_lookup_many(q, 2);
    for (int k = 0; k < 2; k++) {
        if (q[k].n_hit != n_hit) abort();
        for (int i = 0; i < n_hit; i++)
            if (again[k][i].order != hits[i].order || again[k][i].pos != hits[i].pos) abort();
    }
    for (int i = 0; i < n_hit; i++) {
        uint64_t sum = 0;
        if (!hits[i].n_next || hits[i].n_next > ENGRAM_MAX_NEXT || !hits[i].total) abort();
        for (uint32_t k = 0; k < hits[i].n_next; k++) sum += engram_hit_next(&hits[i])[k].count;
        struct engram_doc d;
        if (sum && engram_table_doc_at(t, hits[i].pos, &d) && d.n_tok < 1) abort();
    }
}

static void walk(const struct engram_table *t) {
    struct engram_doc d;
    uint64_t content;
    for (uint32_t i = 0; engram_table_doc(t, i, &d); i++) {
        struct slice s = engram_table_source(t, d.source, &content);
        if (s.n && !s.p) abort();
        for (uint32_t k = 0; k <= d.n_tok && k < 64; k++)
            request(t, d.tokens, (int32_t)(k < d.n_tok ? k : d.n_tok));
    }
    const int32_t ctx[] = {1, 2, 3, 4, 5, 6, 7, 8};
    request(t, ctx, 8);
    engram_table_verify(t, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = aligned_alloc(64, (size + 64) / 64 * 64);
    struct engram_table *t;
    if (!copy) abort();
    if (size) memcpy(copy, data, size);
    if (size >= HEADER) {
        uint64_t hash = hash_bytes(copy + HEADER, size - HEADER, 0), n = size;
        memcpy(copy + 16, &n, 8);
        memcpy(copy + BODY_HASH, &hash, 8);
        memset(copy + HEADER_HASH, 0, 8);
        hash = hash_bytes(copy, HEADER, 0);
        memcpy(copy + HEADER_HASH, &hash, 8);
    }
    if (engram_table_open_memory(&t, copy, size, "fuzz", 1, 1000, NULL) == 0 ||
        engram_table_open_memory(&t, copy, size, "fuzz", 0, 1000, NULL) == 0) {
        walk(t);
        engram_table_close(t);
    }
    free(copy);
    return 0;
}
