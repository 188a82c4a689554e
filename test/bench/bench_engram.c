/* bench_engram.c: lookups in a table of ten million entries, in nanoseconds.
 *
 * The text is random over 30,000 tokens with a Zipf-like law and a third of copied stretches, so that
 * entries of all orders occur. "one order" looks up contexts of two tokens that the table has, "full back-off"
 * eight tokens of the text, "no hit" tokens that never stand together: 200,000 contexts in random order, so
 * that slots, records and text come from memory and not from the caches. Each in two ways: independent, by
 * engram_lookup_many, 16 in flight (the time of all divided by their number); and one behind the other, each context
 * chosen by what the one before gave. And over two kinds of memory: the file's map, of small pages, and as a
 * server holds it (engram_table_load), in large ones. Beside them what the machine itself takes for one
 * access to 300 MB, dependent and independent. Best of five passes, in processor time. Argument: million
 * tokens of text, 6 by default (about ten million entries), 0: no table.
 *
 * "cuckoo filter" (Fan et al. 2014): what one of 16-bit fingerprints, four a bucket, over all contexts of two
 * tokens would do in front of the table, which is why there is none. "alone, warm": 64 contexts that are not there, all of it in the
 * nearest cache. "misses", "hits": a lookup with and without it, dependent, independent, and after 96 MB have passed
 * through the caches, as a model's weights do between two tokens.
 *
 * "mixture" is a whole step of the logit processor over a row of 248,320 logits (Qwen3.5's vocabulary) where
 * the table knows the context: copy, scan, mix. "examples" is one search for the 5 nearest of 100,000 validated
 * examples with vectors of 384 values around 1,000 directions, their texts read from the store included, in
 * wall time, the median of 200; and what opening costs at a first start and at later ones. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engram/build.h"
#include "engram/examples.h"
#include "engram/mix.h"
#include "engram/table_impl.h"

enum { VOCAB = 30000, N_QUERY = 200000, CTX = 8 };

static int32_t draw(struct rng *r) { /* density ~ 1 / rank */
    return (int32_t)pow(VOCAB, rng_uniform(r)) - 1;
}

static int32_t *make_text(size_t n) {
    int32_t *x = mem_alloc(n * sizeof *x);
    struct rng r;
    rng_seed(&r, 1);
    for (size_t i = 0; x && i < n;) {
        size_t len = 1 + rng_below(&r, 12), from = rng_below(&r, i + 1);
        bool copy = i > 1000 && rng_below(&r, 3) == 0;
        for (size_t k = 0; k < len && i < n; k++, i++)
            x[i] = copy && from + k < i ? x[from + k] : draw(&r);
    }
    return x;
}

/* What is promised, and whether it holds. */
static const char *verdict(double value, double most) {
    static char text[64];
    snprintf(text, sizeof text, "at most %g: %s", most, value <= most ? "holds" : "MISSED");
    return text;
}

static int build(const char *path, const int32_t *text, size_t n) {
    const struct engram_build_params p = {.tok_hash = 1, .n_vocab = VOCAB};
    struct engram_builder *b;
    struct err e = {0};
    uint32_t id;
    int64_t start = clock_cpu_ns();
    int rc = engram_builder_new(&b, path, &p, &e);
    if (!rc) rc = engram_builder_source(b, SLICE("bench"), 0, &id, &e);
    for (size_t at = 0; at < n && !rc; at += 1000)
        rc = engram_builder_doc(b, text + at, n - at < 1000 ? n - at : 1000, id, 0, 16, &e);
    if (!rc) rc = engram_builder_finish(b, &e);
    if (rc) fprintf(stderr, "bench: %s\n", e.text);
    double s = (double)(clock_cpu_ns() - start) * 1e-9;
    if (!rc)
        printf("%-24s %8.2f million tokens a second of one core\n", "index", (double)n * 1e-6 / s);
    return rc;
}

/* ---- the machine ---- */

static int by_time(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { WALK_BYTES = 300 << 20, LINE = 64, N_ACCESS = 1000000 };

/* Nanoseconds of one access, where each needs the one before and where none does. */
static void memory_times(bool large) {
    size_t n = WALK_BYTES / LINE, page = (size_t)2 << 20;
    char *map =
        mmap(NULL, WALK_BYTES + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return;
    uint64_t *a = (uint64_t *)(((uintptr_t)map + page - 1) & ~(uintptr_t)(page - 1));
    madvise(a, WALK_BYTES, large ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    struct rng r;
    rng_seed(&r, 9);
    for (size_t i = 0; i < n; i++) a[i * 8] = i;
    for (size_t i = n - 1; i > 0; i--) { /* one cycle through all lines */
        size_t k = rng_below(&r, i);
        uint64_t t = a[i * 8];
        a[i * 8] = a[k * 8];
        a[k * 8] = t;
    }
    double best[2] = {1e9, 1e9};
    uint64_t sum = 0, p = 0;
    for (int pass = 0; pass < 5; pass++) {
        int64_t start = clock_cpu_ns();
        for (int i = 0; i < N_ACCESS; i++) p = a[p * 8];
        double ns = (double)(clock_cpu_ns() - start) / N_ACCESS;
        best[0] = ns < best[0] ? ns : best[0];
        start = clock_cpu_ns();
        for (uint64_t i = 0; i < N_ACCESS; i++)
            sum += a[engram_bucket(hash_mix(i + (uint64_t)pass * N_ACCESS), n) * 8];
        ns = (double)(clock_cpu_ns() - start) / N_ACCESS;
        best[1] = ns < best[1] ? ns : best[1];
    }
    printf("%-24s %8.1f ns dependent %8.1f ns independent%s\n",
           large ? "memory, large pages" : "memory, small pages", best[0], best[1],
           sum + p == 1 ? "." : "");
    munmap(map, WALK_BYTES + page);
}

/* ---- a cuckoo filter in front ---- */

struct filter {
    uint16_t (*buckets)[4]; /* owned [mask + 1]; NULL: no filter */
    uint64_t mask;
};

static uint16_t filter_print(uint64_t x) {
    uint16_t p = (uint16_t)(x >> 48);
    return p ? p : 1; /* 0: a free place */
}
static uint64_t filter_other(const struct filter *f, uint64_t bucket, uint16_t print) {
    return (bucket ^ print * 0x9e3779b1ULL) & f->mask;
}
static bool filter_has(const struct filter *f, uint32_t tag) {
    uint64_t x = tag * 0x9e3779b97f4a7c15ULL, one, two;
    uint16_t print = filter_print(x);
    uint64_t b = x >> 16 & f->mask, all = print * 0x0001000100010001ULL;
    memcpy(&one, f->buckets[b], sizeof one);
    memcpy(&two, f->buckets[filter_other(f, b, print)], sizeof two);
    one ^= all; /* a value of four that is zero now was the fingerprint */
    two ^= all;
    uint64_t low = 0x0001000100010001ULL, high = 0x8000800080008000ULL;
    return (((one - low) & ~one) | ((two - low) & ~two)) & high;
}

enum { MAX_KICKS = 500 };

static bool filter_put(struct filter *f, uint32_t tag, struct rng *r) {
    uint64_t x = tag * 0x9e3779b97f4a7c15ULL, b = x >> 16 & f->mask;
    uint16_t print = filter_print(x);
    if (filter_has(f, tag)) return true;
    for (int kick = 0; kick < MAX_KICKS; kick++) {
        for (int side = 0; side < 2; side++, b = filter_other(f, b, print))
            for (int i = 0; i < 4; i++) {
                if (f->buckets[b][i]) continue;
                f->buckets[b][i] = print;
                return true;
            }
        int i = (int)rng_below(r, 4);
        uint16_t moved = f->buckets[b][i];
        f->buckets[b][i] = print;
        print = moved;
        b = filter_other(f, b, print);
    }
    return false;
}

static bool filter_make(struct filter *f, const struct engram_slot *slots, uint64_t n_slot) {
    uint64_t n = 0, n_bucket = 64;
    struct rng r;
    for (uint64_t i = 0; i < n_slot; i++)
        n += (slots[i].order & ~ENGRAM_SLOT_UNIQUE) == ENGRAM_MIN_ORDER;
    while (n_bucket * 4 * 9 / 10 < n) n_bucket *= 2;
    f->mask = n_bucket - 1;
    f->buckets = mem_alloc_array(n_bucket, sizeof *f->buckets);
    rng_seed(&r, 1);
    for (uint64_t i = 0; f->buckets && i < n_slot; i++)
        if ((slots[i].order & ~ENGRAM_SLOT_UNIQUE) == ENGRAM_MIN_ORDER &&
            !filter_put(f, slots[i].tag, &r))
            return false;
    return f->buckets;
}

static uint32_t tag_of_two(const int32_t *newest) {
    uint64_t acc = engram_hash_step(0, (uint32_t)newest[0]);
    return (uint32_t)engram_key(engram_hash_step(acc, (uint32_t)newest[-1]), 2);
}

/* ---- lookups ---- */

static double best_of(double (*pass)(void *ud), void *ud) {
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        double ns = pass(ud);
        best = ns < best ? ns : best;
    }
    return best;
}

struct lookups {
    const struct engram_table *t;
    const int32_t *queries; /* [N_QUERY, CTX] */
    int32_t n_ctx;
    const struct filter *f; /* in front; NULL: none */
    double hits;            /* out: orders a lookup */
};

static double dependent(void *ud) {
    struct lookups *x = ud;
    struct engram_hit hits[ENGRAM_N_ORDER];
    int64_t n = 0, start = clock_cpu_ns();
    size_t at = 0;
    for (int i = 0; i < N_QUERY; i++) {
        const int32_t *end = x->queries + (at + 1) * CTX;
        int got = x->f && !filter_has(x->f, tag_of_two(end - 1))
                      ? 0
                      : engram_lookup(x->t, end - x->n_ctx, x->n_ctx, hits);
        n += got;
        /* no hit has that many continuations: a step that waits for the answer */
        at = (size_t)i + (got && hits[0].n_next > 1u << 20);
    }
    x->hits = (double)n / N_QUERY;
    return (double)(clock_cpu_ns() - start) / N_QUERY;
}

static double independent(void *ud) {
    enum { BATCH = 64 };
    static struct engram_hit hits[BATCH][ENGRAM_N_ORDER];
    struct engram_query q[BATCH];
    struct lookups *x = ud;
    int64_t n = 0, start = clock_cpu_ns();
    for (int i = 0; i < N_QUERY; i += BATCH) {
        for (int k = 0; k < BATCH; k++)
            q[k] = (struct engram_query){.table = x->t,
                                         .ctx = x->queries + (size_t)(i + k) * CTX + CTX - x->n_ctx,
                                         .n_ctx = x->n_ctx,
                                         .hits = hits[k]};
        engram_lookup_many(q, BATCH);
        for (int k = 0; k < BATCH; k++) n += q[k].n_hit;
    }
    x->hits = (double)n / N_QUERY;
    return (double)(clock_cpu_ns() - start) / N_QUERY;
}

/* most: nanoseconds that independent lookups may take; 0: nothing is promised. */
static void show(const char *name, const struct engram_table *t, const int32_t *queries,
                 int32_t n_ctx, double most) {
    struct lookups x = {.t = t, .queries = queries, .n_ctx = n_ctx};
    double one = best_of(dependent, &x), many = best_of(independent, &x);
    printf("%-24s %8.1f ns dependent %8.1f ns independent, %.2f orders hit%s%s\n", name, one, many,
           x.hits, most > 0 ? "; " : "", most > 0 ? verdict(many, most) : "");
}

/* ---- what the filter would do ---- */

/* The filter's answers alone, none waiting for another, over the first n_query contexts. */
static double filter_only(const struct filter *f, const int32_t *queries, int n_query,
                          double *share) {
    double best = 1e9;
    for (int pass = 0; pass < 5; pass++) {
        int64_t n = 0, start = clock_cpu_ns();
        for (int round = 0; round < N_QUERY / n_query; round++)
            for (int i = 0; i < n_query; i++)
                n += filter_has(f, tag_of_two(queries + (size_t)i * CTX + CTX - 1));
        double ns = (double)(clock_cpu_ns() - start) / N_QUERY;
        best = ns < best ? ns : best;
        *share = (double)n / N_QUERY;
    }
    return best;
}

/* As in a decode step: between two lookups the model's weights pass through the caches. */
static void after_streaming(const struct lookups *x, const struct filter *f, double median[2]) {
    enum { STREAM = 96 << 20, N = 200 };
    static double ns[3][N];
    struct engram_hit hits[ENGRAM_N_ORDER];
    uint64_t *weights = mem_alloc(STREAM), sum = 0;
    if (!weights) return;
    memset(weights, 1, STREAM);
    for (int i = 0; i < 3 * N; i++) { /* nothing, with, without */
        const int32_t *q = x->queries + (size_t)i * CTX;
        for (size_t k = 0; k < STREAM / 8; k += 8) sum += weights[k];
        int64_t start = clock_ns();
        if (i % 3 == 2 || (i % 3 && filter_has(f, tag_of_two(q + CTX - 1))))
            sum += (uint64_t)engram_lookup(x->t, q, CTX, hits);
        ns[i % 3][i / 3] = (double)(clock_ns() - start);
    }
    for (int i = 0; i < 3; i++) qsort(ns[i], N, sizeof **ns, by_time);
    for (int i = 0; i < 2; i++) median[i] = ns[i + 1][N / 2] - ns[0][N / 2] + (sum == 1);
    mem_free(weights);
}

static void filter_times(const struct engram_table *t, const int32_t *known,
                         const int32_t *unknown) {
    struct filter f;
    double share;
    if (!filter_make(&f, t->slots, t->h.n_bucket * ENGRAM_BUCKET)) return;
    printf("%-24s %8.1f MB\n", "cuckoo filter", (double)(f.mask + 1) * 8e-6);
    printf("%-24s %8.1f ns\n", "  alone, warm", filter_only(&f, unknown, 64, &share));
    printf("%-24s %8.1f ns, %.4f of what is not there affirmed\n", "  alone",
           filter_only(&f, unknown, N_QUERY, &share), share);
    for (int is_known = 0; is_known < 2; is_known++) {
        struct lookups x = {.t = t, .queries = is_known ? known : unknown, .n_ctx = CTX};
        double without = best_of(dependent, &x), cold[2] = {0, 0};
        x.f = &f;
        printf("%-24s %8.1f ns with, %8.1f without", is_known ? "  hits" : "  misses",
               best_of(dependent, &x), without);
        after_streaming(&x, &f, cold);
        printf("; caches flushed %.0f with, %.0f without\n", cold[0], cold[1]);
    }
    mem_free(f.buckets);
}

/* ---- a step of the mixture ---- */

enum { ROW = 248320, N_STEP = 200 };

static void mixture(const struct engram_table *t, const int32_t *queries) {
    struct err e;
    struct rng r;
    float *row = mem_alloc(ROW * sizeof *row), *work = mem_alloc(ROW * sizeof *work);
    const struct engram_use use = {.tables = {t}, .n_table = 1, .alpha = 1};
    struct engram_mixer *m;
    if (!row || !work || engram_mixer_new(&m, &use, ROW, queries, CTX, &e)) return;
    rng_seed(&r, 4);
    for (int i = 0; i < ROW; i++) row[i] = (float)(3 * rng_normal(&r));
    double best = 1e9;
    for (int pass = 0; pass < 5; pass++) {
        int64_t start = clock_cpu_ns();
        for (int i = 0; i < N_STEP; i++) {
            for (int k = 0; k < CTX; k++) engram_mixer_push(m, queries[i * CTX + k]);
            memcpy(work, row, ROW * sizeof *row);
            engram_mixer_apply(m, work);
        }
        double us = (double)(clock_cpu_ns() - start) * 1e-3 / N_STEP;
        if (us < best) best = us;
    }
    printf("%-24s %8.1f us a token\n", "mixture", best);
    engram_mixer_free(m);
    mem_free(work);
    mem_free(row);
}

enum { N_VECTOR = 100000, N_DIM = 384, N_DIRECTION = 1000, N_SEARCH = 200 };

static void unit_vectors(float *x, int n, uint64_t seed) {
    for (int i = 0; i < n; i++) {
        struct rng direction, own;
        float sum = 0, *v = x + (size_t)i * N_DIM;
        rng_seed(&own, seed + (uint64_t)i);
        rng_seed(&direction, rng_below(&own, N_DIRECTION));
        for (int k = 0; k < N_DIM; k++) {
            v[k] = (float)(rng_normal(&direction) + rng_normal(&own));
            sum += v[k] * v[k];
        }
        for (int k = 0; k < N_DIM; k++) v[k] /= sqrtf(sum);
    }
}

static struct examples *filled(struct store *db, const float *x) {
    enum { TOGETHER = 500 }; /* divides N_VECTOR */
    static char q[TOGETHER][64], a[TOGETHER][256];
    static struct store_example rows[TOGETHER];
    int64_t ids[TOGETHER], start = clock_ns();
    struct examples *ex;
    struct err e = {0};
    int rc = examples_open(&ex, db, 1, N_DIM, &e);
    for (int i = 0; i < N_VECTOR && !rc; i += TOGETHER) {
        for (int k = 0; k < TOGETHER; k++) {
            snprintf(q[k], sizeof q[k], "question %d", i + k);
            snprintf(a[k], sizeof a[k],
                     "answer %d, as long as answers to such questions usually are", i + k);
            rows[k] = (struct store_example){.domain = "bench", .question = q[k], .answer = a[k]};
        }
        rc = examples_add(ex, rows, TOGETHER, x + (size_t)i * N_DIM, ids, &e);
    }
    if (rc) fprintf(stderr, "bench: %s\n", e.text);
    printf("%-24s %8.1f us an example\n", "examples, adding",
           clock_ms_since(start) * 1e3 / N_VECTOR);
    return rc ? NULL : ex;
}

static bool search_all(struct examples *ex, const float *q, double *ms) {
    struct err e = {0};
    for (int i = 0; i < N_SEARCH; i++) {
        struct examples_hits h;
        int64_t start = clock_ns();
        if (examples_search(ex, "bench", q + (size_t)i * N_DIM, 5, -1, &h, &e)) {
            fprintf(stderr, "bench: %s\n", e.text);
            return false;
        }
        ms[i] = clock_ms_since(start);
        examples_hits_fini(&h);
    }
    return true;
}

static void examples(void) {
    struct store *db;
    struct err e = {0};
    double ms[N_SEARCH], first[2] = {0, 0};
    float *x = mem_alloc((size_t)N_VECTOR * N_DIM * sizeof *x);
    float *q = mem_alloc((size_t)N_SEARCH * N_DIM * sizeof *q);
    if (!x || !q || !engram_vec_has_faiss()) {
        puts("skip: examples: FAISS was not found at build; apt-get install libfaiss-dev");
        return;
    }
    unit_vectors(x, N_VECTOR, 1);
    unit_vectors(q, N_SEARCH, (uint64_t)1 << 40);
    if (store_open(&db, ":memory:", &e)) return; /* the disk is not what is measured */
    struct examples *ex = filled(db, x);
    for (int start = 0; ex && start < 2; start++) { /* the second: its centres are known */
        if (!search_all(ex, q, ms)) break;
        first[start] = ms[0];
        examples_close(ex);
        if (examples_open(&ex, db, 1, N_DIM, &e)) ex = NULL;
    }
    examples_close(ex);
    store_close(db);
    qsort(ms, N_SEARCH, sizeof *ms, by_time);
    printf("%-24s %8.2f ms, %.2f ms at most; a first start %.1f s, later ones %.1f s; %s\n",
           "examples, 5 nearest", ms[N_SEARCH / 2], ms[N_SEARCH - 2], first[0] * 1e-3,
           first[1] * 1e-3, verdict(ms[N_SEARCH / 2], 5));
    mem_free(x);
    mem_free(q);
}

static int tables(size_t n) {
    char path[] = "bench_engram.XXXXXX";
    int fd = mkstemp(path);
    int32_t *text = make_text(n), *known = mem_alloc((size_t)N_QUERY * CTX * sizeof *known),
            *unknown = mem_alloc((size_t)N_QUERY * CTX * sizeof *unknown);
    struct engram_table *t;
    struct engram_info info;
    struct err e = {0};
    if (fd < 0 || !text || !known || !unknown || build(path, text, n)) return 1;
    if (engram_table_open(&t, path, 1, VOCAB, &e)) {
        fprintf(stderr, "bench: %s\n", e.text);
        return 1;
    }
    engram_table_info(t, &info);
    printf("%-24s %8.1f million, %.1f MB\n", "entries", (double)info.n_entry * 1e-6,
           (double)info.n_bytes * 1e-6);
    struct rng r;
    rng_seed(&r, 2);
    for (int i = 0; i < N_QUERY; i++)
        memcpy(known + (size_t)i * CTX, text + rng_below(&r, n - CTX), CTX * sizeof *text);
    for (int i = 0; i < N_QUERY * CTX; i++) unknown[i] = VOCAB - 1 - (int32_t)rng_below(&r, 3000);
    for (int large = 0; large < 2; large++) {
        if (large) {
            engram_table_close(t);
            if (engram_table_load(&t, path, UINT64_MAX, 1, VOCAB, &e)) return 1;
            remove(path);
        }
        memory_times(large);
        show("  one order", t, known, 2, large ? 150 : 0);
        show("  full back-off", t, known, CTX, large ? 600 : 0);
        show("  no hit", t, unknown, CTX, 0);
    }
    filter_times(t, known, unknown);
    mixture(t, known);
    engram_table_close(t);
    mem_free(unknown);
    mem_free(known);
    mem_free(text);
    return 0;
}

int main(int argc, char **argv) {
    size_t n = (size_t)((argc > 1 ? strtod(argv[1], NULL) : 6) * 1e6);
    setvbuf(stdout, NULL, _IOLBF, 0); /* a row as soon as it is known */
    int failed = n ? tables(n) : 0;
    examples();
    return failed;
}
