/* test_engram.c: tables against brute force over the same texts; damage; determinism. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engram/build.h"
#include "engram/table_impl.h"
#include "scratch.h"

enum { VOCAB = 50, MAX_DOC = 64, MAX_LEN = 400 };

static const uint64_t tokenizer = 0x1234567890abcdef;

struct corpus {
    int32_t doc[MAX_DOC][MAX_LEN];
    int n[MAX_DOC], n_doc;
    uint32_t weight[MAX_DOC];
};

static char path[128];

static int set_up(void **state) {
    int rc = scratch_make(state);
    snprintf(path, sizeof path, "%s/a.engram", scratch);
    return rc;
}

/* Texts with much repetition: walks that copy earlier stretches. */
static void make_corpus(struct corpus *c, uint64_t seed, int n_doc) {
    struct rng r;
    rng_seed(&r, seed);
    *c = (struct corpus){.n_doc = n_doc};
    for (int d = 0; d < n_doc; d++) {
        c->n[d] = 1 + (int)rng_below(&r, MAX_LEN);
        c->weight[d] = 1 + (uint32_t)rng_below(&r, ENGRAM_UNIT);
        for (int i = 0; i < c->n[d];) {
            int from = (int)rng_below(&r, (uint64_t)d + 1), len = 1 + (int)rng_below(&r, 20);
            int at = (int)rng_below(&r, MAX_LEN);
            bool copy = rng_below(&r, 3) && from < d && at + len < c->n[from];
            for (int k = 0; k < len && i < c->n[d]; k++, i++)
                c->doc[d][i] = copy ? c->doc[from][at + k] : (int32_t)rng_below(&r, VOCAB) / 3;
        }
    }
}

static void write_table(const struct corpus *c, size_t memory) {
    struct err e = {0};
    struct engram_builder *b;
    const struct engram_build_params p = {
        .tok_hash = tokenizer, .n_vocab = VOCAB, .memory_bytes = memory};
    assert_int_equal(engram_builder_new(&b, path, &p, &e), 0);
    for (int d = 0; d < c->n_doc; d++) {
        char name[16];
        uint32_t id;
        snprintf(name, sizeof name, "doc%d", d);
        assert_int_equal(
            engram_builder_source(b, (struct slice){name, strlen(name)}, (uint64_t)d, &id, &e), 0);
        assert_int_equal(
            engram_builder_doc(b, c->doc[d], (size_t)c->n[d], id, 1000 + d, c->weight[d], &e), 0);
    }
    if (engram_builder_finish(b, &e)) fail_msg("%s", e.text);
}

static struct engram_table *open_table(void) {
    struct engram_table *t;
    struct err e = {0};
    if (engram_table_open(&t, path, tokenizer, VOCAB, &e)) fail_msg("%s", e.text);
    return t;
}

static struct engram_table *load_table(void) {
    struct engram_table *t, *none;
    struct err e = {0};
    char beside[160];
    snprintf(beside, sizeof beside, "%s.none", path);
    assert_int_equal(engram_table_load(&none, beside, 1 << 30, tokenizer, VOCAB, &e),
                     CHIMERE_ENOENT);
    assert_int_equal(engram_table_load(&none, ".", 1 << 30, tokenizer, VOCAB, &e), CHIMERE_EINVAL);
    if (engram_table_load(&t, path, 100, tokenizer, VOCAB, &e)) fail_msg("%s", e.text);
    engram_table_close(t); /* larger: mapped */
    if (engram_table_load(&t, path, 1 << 30, tokenizer, VOCAB, &e)) fail_msg("%s", e.text);
    return t;
}

/* What followed the last k tokens of ctx: counts by token, number of documents; returns occurrences. */
static int brute(const struct corpus *c, const int32_t *ctx, int n_ctx, int k, uint32_t *count,
                 uint32_t *n_doc) {
    int n = 0;
    memset(count, 0, VOCAB * sizeof *count);
    *n_doc = 0;
    for (int d = 0; d < c->n_doc; d++) {
        bool here = false;
        for (int i = k; i < c->n[d]; i++) {
            if (memcmp(c->doc[d] + i - k, ctx + n_ctx - k, (size_t)k * sizeof *ctx) != 0) continue;
            count[c->doc[d][i]] += c->weight[d];
            here = true;
            n++;
        }
        *n_doc += here;
    }
    return n;
}

static void check_context(const struct corpus *c, const struct engram_table *t, const int32_t *ctx,
                          int n_ctx) {
    struct engram_hit hits[ENGRAM_N_ORDER];
    uint32_t count[VOCAB], n_doc;
    int n_hit = engram_lookup(t, ctx, n_ctx, hits), at = 0, last = 0;
    for (int k = n_ctx < 8 ? n_ctx : 8; k >= ENGRAM_MIN_ORDER; k--) {
        int n = brute(c, ctx, n_ctx, k, count, &n_doc);
        if (!n) continue;
        if (n == 1 && last == 1) continue; /* as unique as the longer one: reported once */
        last = n;
        assert_true(at < n_hit);
        const struct engram_hit *h = &hits[at++];
        assert_int_equal(h->order, k);
        assert_int_equal(h->n_doc, n_doc);
        assert_int_equal(h->is_unique, n == 1);
        uint32_t total = 0, distinct = 0, previous = UINT32_MAX;
        for (int i = 0; i < VOCAB; i++) total += count[i], distinct += count[i] > 0;
        assert_int_equal(h->total, total);
        assert_int_equal(h->n_next, distinct);
        for (uint32_t i = 0; i < h->n_next; i++) {
            const struct engram_next *x = engram_hit_next(h) + i;
            assert_int_equal(x->count, count[x->token]);
            assert_true(x->count <= previous);
            previous = x->count;
        }
    }
    assert_int_equal(at, n_hit);
}

/* Lookups side by side, of a loaded table and of a mapped one, give what one at a time gives. */
static void many_equal_one(void **state) {
    (void)state;
    enum { N = 101 };
    static struct corpus c;
    static struct engram_hit many[N][ENGRAM_N_ORDER];
    static int32_t ctx[N][12];
    struct engram_query q[N];
    struct engram_hit one[ENGRAM_N_ORDER];
    struct rng r;
    rng_seed(&r, 77);
    make_corpus(&c, 3, 30);
    write_table(&c, 0);
    struct engram_table *t = open_table(), *loaded = load_table();
    for (int i = 0; i < N; i++) {
        int d = (int)rng_below(&r, (uint64_t)c.n_doc), n = (int)rng_below(&r, 13);
        if (n > c.n[d]) n = c.n[d];
        int at = (int)rng_below(&r, (uint64_t)(c.n[d] - n) + 1);
        memcpy(ctx[i], c.doc[d] + at, (size_t)n * sizeof **ctx);
        if (n && rng_below(&r, 3) == 0) ctx[i][rng_below(&r, (uint64_t)n)] = 1;
        q[i] = (struct engram_query){
            .table = i % 2 ? t : loaded, .ctx = ctx[i], .n_ctx = n, .hits = many[i]};
    }
    for (size_t n = 0; n <= N; n += 1 + n / 3) {
        for (size_t i = 0; i < N; i++) q[i].n_hit = -1;
        engram_lookup_many(q, n);
        for (size_t i = 0; i < n; i++) {
            int n_hit = engram_lookup(t, q[i].ctx, q[i].n_ctx, one);
            assert_int_equal(q[i].n_hit, n_hit);
            for (int k = 0; k < n_hit; k++) {
                const struct engram_hit *h = &many[i][k];
                assert_int_equal(h->order, one[k].order);
                assert_int_equal(h->total, one[k].total);
                assert_int_equal(h->n_next, one[k].n_next);
                assert_int_equal(h->pos, one[k].pos);
                assert_memory_equal(engram_hit_next(h), engram_hit_next(&one[k]),
                                    h->n_next * sizeof(struct engram_next));
            }
        }
        for (size_t i = n; i < N; i++) assert_int_equal(q[i].n_hit, -1);
    }
    struct err e = {0};
    if (engram_table_verify(loaded, &e)) fail_msg("%s", e.text);
    engram_table_close(t);
    engram_table_close(loaded);
}

static void lookups_equal_brute_force(void **state) {
    (void)state;
    static struct corpus c;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct rng r;
        rng_seed(&r, seed + 100);
        make_corpus(&c, seed, seed == 1 ? 1 : 2 + (int)(seed * 3));
        write_table(&c, 0);
        struct engram_table *t = open_table();
        struct err e = {0};
        if (engram_table_verify(t, &e)) fail_msg("%s", e.text);
        for (int i = 0; i < 600; i++) {
            int d = (int)rng_below(&r, (uint64_t)c.n_doc), n = (int)rng_below(&r, 12);
            int32_t ctx[16];
            if (n > c.n[d]) n = c.n[d];
            int at = (int)rng_below(&r, (uint64_t)(c.n[d] - n) + 1);
            memcpy(ctx, c.doc[d] + at, (size_t)n * sizeof *ctx);
            if (n && rng_below(&r, 3) == 0) /* a context that breaks off somewhere */
                ctx[rng_below(&r, (uint64_t)n)] = (int32_t)rng_below(&r, VOCAB);
            check_context(&c, t, ctx, n);
        }
        engram_table_close(t);
    }
}

/* Documents, sources and provenance come back; a position leads to its document. */
static void documents_come_back(void **state) {
    (void)state;
    static struct corpus c;
    make_corpus(&c, 5, 20);
    write_table(&c, 0);
    struct engram_table *t = open_table();
    struct engram_info info;
    engram_table_info(t, &info);
    assert_int_equal(info.n_doc, 20);
    assert_int_equal(info.n_source, 20);
    for (uint32_t i = 0; i < 20; i++) {
        struct engram_doc d, at;
        char name[16];
        uint64_t content;
        assert_true(engram_table_doc(t, i, &d));
        assert_int_equal(d.n_tok, c.n[i]);
        assert_memory_equal(d.tokens, c.doc[i], d.n_tok * sizeof(int32_t));
        assert_int_equal(d.time, 1000 + i);
        assert_int_equal(d.weight, c.weight[i]);
        snprintf(name, sizeof name, "doc%u", i);
        struct slice s = engram_table_source(t, d.source, &content);
        assert_int_equal(s.n, strlen(name));
        assert_memory_equal(s.p, name, s.n);
        assert_int_equal(content, i);
        assert_true(engram_table_doc_at(t, d.begin + d.n_tok - 1, &at));
        assert_int_equal(at.begin, d.begin);
        assert_false(engram_table_doc_at(t, d.begin + d.n_tok, &at)); /* the boundary */
    }
    assert_false(engram_table_doc_at(t, 0, &(struct engram_doc){0}));
    engram_table_close(t);
}

static uint64_t file_hash(void) {
    char *p;
    size_t n;
    assert_int_equal(file_read(path, 1 << 24, &p, &n, NULL), 0);
    uint64_t h = hash_bytes(p, n, 0);
    mem_free(p);
    return h;
}

/* One run in memory, or many merged from disk: the same bytes. */
static void building_is_deterministic(void **state) {
    (void)state;
    static struct corpus c;
    make_corpus(&c, 9, MAX_DOC);
    write_table(&c, 0);
    uint64_t first = file_hash();
    write_table(&c, 0);
    assert_true(first == file_hash());
    /* a text long enough for several runs of the least memory */
    struct err e = {0};
    uint64_t hashes[2];
    int32_t *text = mem_alloc(400000 * sizeof *text);
    struct rng r;
    rng_seed(&r, 3);
    for (int i = 0; i < 400000; i++)
        text[i] = i > 500 && rng_below(&r, 30) ? text[i - 1 - (int)rng_below(&r, 3) * 100]
                                               : (int32_t)rng_below(&r, VOCAB);
    for (int i = 0; i < 2; i++) {
        struct engram_builder *b;
        uint32_t id;
        const struct engram_build_params p = {
            .tok_hash = 1, .n_vocab = VOCAB, .memory_bytes = i ? 1 << 20 : 0};
        assert_int_equal(engram_builder_new(&b, path, &p, &e), 0);
        assert_int_equal(engram_builder_source(b, SLICE("s"), 0, &id, &e), 0);
        for (int d = 0; d < 4; d++)
            assert_int_equal(engram_builder_doc(b, text + d * 100000, 100000, id, 0, 16, &e), 0);
        if (engram_builder_finish(b, &e)) fail_msg("%s", e.text);
        hashes[i] = file_hash();
    }
    assert_true(hashes[0] == hashes[1]);
    struct engram_table *t;
    if (engram_table_open(&t, path, 1, VOCAB, &e)) fail_msg("%s", e.text);
    if (engram_table_verify(t, &e)) fail_msg("%s", e.text);
    engram_table_close(t);
    mem_free(text);
}

/* Writes documents of c, chosen and in the sequence of `which`, reusing tables [n]; returns how many were sorted. */
static int64_t write_chosen(const struct corpus *c, const int *which, int n_which,
                            struct engram_table *const *tables, int n, size_t memory, int *rc) {
    struct err e = {0};
    struct engram_builder *b;
    const struct engram_build_params p = {
        .tok_hash = tokenizer, .n_vocab = VOCAB, .memory_bytes = memory};
    uint64_t n_doc, n_fresh;
    assert_int_equal(engram_builder_new(&b, path, &p, &e), 0);
    for (int i = 0; i < n; i++) assert_int_equal(engram_builder_reuse(b, tables[i], &e), 0);
    for (int i = 0; i < n_which; i++) {
        int d = which[i];
        char name[16];
        uint32_t id;
        snprintf(name, sizeof name, "doc%d", d / 2); /* two of each source */
        assert_int_equal(engram_builder_source(b, (struct slice){name, strlen(name)}, 1, &id, &e),
                         0);
        assert_int_equal(
            engram_builder_doc(b, c->doc[d], (size_t)c->n[d], id, 1000 + d, c->weight[d], &e), 0);
    }
    engram_builder_count(b, &n_doc, &n_fresh);
    *rc = engram_builder_finish(b, &e);
    if (*rc) assert_non_null(strstr(e.text, "not in order"));
    return (int64_t)n_fresh;
}

/* What stays is merged, what is new is sorted: the bytes are those of a build without any table. */
static void reused_order_equals_sorting(void **state) {
    (void)state;
    enum { N = 40 };
    static struct corpus c;
    struct rng r;
    rng_seed(&r, 21);
    for (uint64_t seed = 1; seed <= 30; seed++) {
        int lists[3][2 * N], n[3] = {0}, rc, n_common = 0;
        struct engram_table *t[2];
        make_corpus(&c, seed, N);
        for (int d = 0; d < N; d++) /* two tables and what becomes of them */
            for (int k = 0; k < 3; k++)
                if (rng_below(&r, 3)) lists[k][n[k]++] = d;
        if (seed % 3 == 0) /* another sequence */
            for (int i = 0; i < 3; i++) {
                int a = (int)rng_below(&r, (uint64_t)n[2]), b = (int)rng_below(&r, (uint64_t)n[2]);
                int x = lists[2][a];
                lists[2][a] = lists[2][b];
                lists[2][b] = x;
            }
        for (int k = 0; k < 2; k++) {
            assert_int_equal(write_chosen(&c, lists[k], n[k], NULL, 0, 0, &rc), n[k]);
            t[k] = open_table();
        }
        for (int i = 0; i < n[2]; i++) {
            bool common = false;
            for (int k = 0; k < 2; k++)
                for (int j = 0; j < n[k]; j++) common |= lists[k][j] == lists[2][i];
            n_common += common;
        }
        write_chosen(&c, lists[2], n[2], NULL, 0, 0, &rc);
        uint64_t fresh = file_hash();
        int64_t sorted = write_chosen(&c, lists[2], n[2], t, 2, 1 << 20, &rc);
        assert_int_equal(rc, 0);
        assert_true(fresh == file_hash());
        if (seed % 3) assert_int_equal(sorted, n[2] - n_common);
        struct engram_table *out = open_table();
        struct err e = {0};
        if (engram_table_verify(out, &e)) fail_msg("%s", e.text);
        engram_table_close(out);
        engram_table_close(t[0]);
        engram_table_close(t[1]);
    }
}

/* An order that is none, behind checksums that hold: seen by verify and by whoever reuses it. */
static void forged_order_is_refused(void **state) {
    (void)state;
    static struct corpus c;
    int all[6] = {0, 1, 2, 3, 4, 5}, rc;
    char *p;
    size_t n;
    make_corpus(&c, 8, 6);
    write_chosen(&c, all, 6, NULL, 0, 0, &rc);
    assert_int_equal(file_read(path, 1 << 24, &p, &n, NULL), 0);
    struct engram_header h;
    memcpy(&h, p, sizeof h);
    uint32_t *order = mem_alloc(h.n_order * sizeof *order), n_text = (uint32_t)h.n_text;
    memcpy(order, p + h.off_order, h.n_order * sizeof *order);
    const struct {
        size_t at;
        uint32_t value;
    } forged[] = {{0, order[1]},   {1, order[0]}, {h.n_order - 1, 0},
                  {5, UINT32_MAX}, {7, n_text},   {9, n_text - 1},
                  {3, 1},          {2, order[8]}, {h.n_order / 2, 2}};
    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
        struct engram_table *t;
        struct err e = {0};
        memcpy(p + h.off_order, order, h.n_order * sizeof *order);
        memcpy(p + h.off_order + 4 * forged[i].at, &forged[i].value, 4);
        h.body_hash = hash_bytes(p + sizeof h, n - sizeof h, 0);
        h.header_hash = 0;
        h.header_hash = hash_bytes(&h, sizeof h, 0);
        memcpy(p, &h, sizeof h);
        if (engram_table_open_memory(&t, p, n, "forged", tokenizer, VOCAB, &e))
            fail_msg("%s", e.text);
        assert_int_equal(engram_table_verify(t, &e), CHIMERE_EFORMAT);
        write_chosen(&c, all, 6, &t, 1, 0, &rc);
        assert_int_equal(rc, CHIMERE_EFORMAT);
        engram_table_close(t);
    }
    mem_free(order);
    mem_free(p);
}

/* Every cut and a sample of flipped bytes: refused with a sentence. */
static void damage_is_refused(void **state) {
    (void)state;
    static struct corpus c;
    make_corpus(&c, 2, 3);
    write_table(&c, 0);
    char *p;
    size_t n;
    struct engram_table *t;
    assert_int_equal(file_read(path, 1 << 24, &p, &n, NULL), 0);
    assert_int_equal(engram_table_open_memory(&t, p, n, "memory", tokenizer, VOCAB, NULL), 0);
    engram_table_close(t);
    for (size_t cut = 0; cut < n; cut += cut < 700 ? 1 : 97) {
        struct err e = {0};
        assert_true(engram_table_open_memory(&t, p, cut, "cut", tokenizer, VOCAB, &e) < 0);
        assert_true(strlen(e.text) > 10);
    }
    for (size_t at = 0; at < n; at += at < 600 ? 1 : 41) {
        struct err e = {0};
        p[at] ^= 4;
        assert_true(engram_table_open_memory(&t, p, n, "flip", tokenizer, VOCAB, &e) < 0);
        p[at] ^= 4;
    }
    struct err e = {0};
    assert_int_equal(engram_table_open_memory(&t, p, n, "other", tokenizer + 1, VOCAB, &e),
                     CHIMERE_EMISMATCH);
    assert_non_null(strstr(e.text, "another tokenizer"));
    mem_free(p);
}

static void allocation_failures_are_reported(void **state) {
    (void)state;
    static struct corpus c;
    make_corpus(&c, 4, 3);
    for (int64_t nth = 1; nth < 80; nth++) {
        struct err e = {0};
        struct engram_builder *b = NULL;
        const struct engram_build_params p = {.tok_hash = tokenizer, .n_vocab = VOCAB};
        mem_fail_nth(nth);
        int rc = engram_builder_new(&b, path, &p, &e);
        uint32_t id = 0;
        if (!rc) rc = engram_builder_source(b, SLICE("s"), 0, &id, &e);
        for (int d = 0; d < 3 && !rc; d++)
            rc = engram_builder_doc(b, c.doc[d], (size_t)c.n[d], id, 0, 16, &e);
        if (b && rc) engram_builder_abort(b);
        else if (b) rc = engram_builder_finish(b, &e);
        mem_fail_nth(0);
        if (rc) assert_true(rc == CHIMERE_ENOMEM);
        if (!rc) engram_table_close(open_table());
    }
}

/* A version 1 file, as its published layout says; written here by hand. */
static void version_one_is_read(void **state) {
    (void)state;
    enum { ORDER = 3, SLOTS = 16 };
    static uint32_t words[256]; /* aligned as a map is */
    unsigned char *p = (unsigned char *)words;
    const uint32_t head[5] = {0x454e4752, 1, ORDER, SLOTS, 2};
    const int32_t contexts[2][ORDER] = {{1, 2, 3}, {7, 7, 7}};
    const uint32_t records[] = {2, 5, 30, 9, 10, 1, 4, 1}; /* 5 thirty times, 9 ten times; 4 once */
    const uint32_t offsets[2] = {0, 20}, totals[2] = {40, 1};
    memcpy(p, head, sizeof head);
    for (int i = 0; i < 2; i++) {
        uint64_t h = hash_fnv1a(contexts[i], sizeof contexts[i]);
        size_t at = h % SLOTS, zero = 0;
        while (memcmp(p + 20 + 16 * at, &zero, 8) != 0) at = (at + 1) % SLOTS;
        memcpy(p + 20 + 16 * at, &h, 8);
        memcpy(p + 28 + 16 * at, &offsets[i], 4);
        memcpy(p + 32 + 16 * at, &totals[i], 4);
    }
    memcpy(p + 20 + 16 * SLOTS, records, sizeof records);
    size_t n = 20 + 16 * SLOTS + sizeof records;
    struct engram_table *t;
    struct err e = {0};
    assert_int_equal(engram_table_open_memory(&t, p, n, "old", 0, VOCAB, &e), CHIMERE_EUNSUPPORTED);
    assert_non_null(strstr(e.text, "which tokenizer"));
    if (engram_table_open_memory(&t, p, n, "old", tokenizer, VOCAB, &e)) fail_msg("%s", e.text);
    struct engram_hit hits[ENGRAM_N_ORDER];
    const int32_t ctx[] = {8, 8, 1, 2, 3}, unknown[] = {3, 2, 1};
    assert_int_equal(engram_lookup(t, ctx, 5, hits), 1);
    assert_int_equal(hits[0].n_next, 2);
    assert_int_equal(engram_hit_next(&hits[0])[0].token, 5);
    assert_int_equal(hits[0].total, 40);
    assert_int_equal(engram_lookup(t, unknown, 3, hits), 0);
    assert_int_equal(engram_lookup(t, ctx, 2, hits), 0);
    assert_int_equal(engram_table_verify(t, &e), 0);
    struct engram_info info;
    engram_table_info(t, &info);
    assert_int_equal(info.version, 1);
    engram_table_close(t);
    p[12] = 0; /* no slots: the reader that this format comes from divided by them */
    assert_int_equal(engram_table_open_memory(&t, p, n, "old", tokenizer, VOCAB, &e),
                     CHIMERE_EFORMAT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lookups_equal_brute_force),
        cmocka_unit_test(many_equal_one),
        cmocka_unit_test(documents_come_back),
        cmocka_unit_test(building_is_deterministic),
        cmocka_unit_test(reused_order_equals_sorting),
        cmocka_unit_test(forged_order_is_refused),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(allocation_failures_are_reported),
        cmocka_unit_test(version_one_is_read),
    };
    return cmocka_run_group_tests(tests, set_up, scratch_drop);
}
