/* bench_engram.c: lookups in a table of ten million entries, in nanoseconds.
 *
 * The text is random over 30,000 tokens with a Zipf-like law and a third of copied stretches, so that
 * entries of all orders occur. Inside the window: engram_lookup alone, over 200,000 contexts in random
 * order, so that slots, records and text come from memory and not from the caches. "one order" looks up
 * contexts of two tokens: one lookup that hits. "full back-off" looks up eight tokens of the text; "no hit"
 * tokens that never stand together. "mixture" is a whole step of the logit processor over a row of 248,320
 * logits (Qwen3.5's vocabulary) where the table knows the context: copy, scan, mix. Each is the best of five passes, in processor time. Argument: million tokens of
 * text, 6 by default (about ten million entries).
 *
 * "nearest" is one search for the 5 nearest of 100,000 vectors of 384 values around 1,000 directions, in processor time, the median of
 * 200; the index is made before. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engram/build.h"
#include "engram/mix.h"
#include "engram/vec.h"

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
        printf("%-16s %8.2f million tokens a second of one core\n", "index", (double)n * 1e-6 / s);
    return rc;
}

struct figures {
    double ns, hits;
};

static struct figures run(const struct engram_table *t, const int32_t *queries, int32_t n_ctx) {
    struct engram_hit hits[ENGRAM_N_ORDER];
    struct figures f = {.ns = 1e9};
    for (int pass = 0; pass < 5; pass++) {
        int64_t n = 0, start = clock_cpu_ns();
        for (int i = 0; i < N_QUERY; i++)
            n += engram_lookup(t, queries + (size_t)i * CTX + CTX - n_ctx, n_ctx, hits);
        double ns = (double)(clock_cpu_ns() - start) / N_QUERY;
        if (ns < f.ns) f.ns = ns;
        f.hits = (double)n / N_QUERY;
    }
    return f;
}

static void show(const char *name, struct figures f) {
    printf("%-16s %8.1f ns, %.2f orders hit\n", name, f.ns, f.hits);
}

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
    printf("%-16s %8.1f us a token\n", "mixture", best);
    engram_mixer_free(m);
    mem_free(work);
    mem_free(row);
}

enum { N_VECTOR = 100000, N_DIM = 384, N_DIRECTION = 1000, N_SEARCH = 200 };

static int by_time(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

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

static void nearest(void) {
    struct engram_vec *v;
    struct err e = {0};
    double ms[N_SEARCH];
    float *x = mem_alloc((size_t)N_VECTOR * N_DIM * sizeof *x), products[5];
    float *q = mem_alloc((size_t)N_SEARCH * N_DIM * sizeof *q);
    int64_t ids[5];
    if (!x || !q || !engram_vec_is_built_in()) {
        puts("skip: nearest: FAISS was not found at build; apt-get install libfaiss-dev");
        return;
    }
    unit_vectors(x, N_VECTOR, 1);
    unit_vectors(q, N_SEARCH, (uint64_t)1 << 40);
    int64_t start = clock_ns();
    if (engram_vec_new(&v, x, N_VECTOR, N_DIM, &e)) {
        fprintf(stderr, "bench: %s\n", e.text);
        return;
    }
    double index_s = clock_ms_since(start) * 1e-3;
    for (int i = 0; i < N_SEARCH; i++) {
        start = clock_cpu_ns();
        if (engram_vec_search(v, q + (size_t)i * N_DIM, 5, ids, products, &e)) return;
        ms[i] = (double)(clock_cpu_ns() - start) * 1e-6;
    }
    qsort(ms, N_SEARCH, sizeof *ms, by_time);
    printf("%-16s %8.2f ms, index in %.1f s\n", "nearest", ms[N_SEARCH / 2], index_s);
    engram_vec_free(v);
    mem_free(x);
    mem_free(q);
}

int main(int argc, char **argv) {
    size_t n = (size_t)((argc > 1 ? strtod(argv[1], NULL) : 6) * 1e6);
    char path[] = "bench_engram.XXXXXX";
    int fd = mkstemp(path);
    int32_t *text = make_text(n), *queries = mem_alloc((size_t)N_QUERY * CTX * sizeof *queries);
    struct engram_table *t;
    struct engram_info info;
    struct err e = {0};
    if (fd < 0 || !text || !queries || build(path, text, n)) return 1;
    if (engram_table_open(&t, path, 1, VOCAB, &e)) {
        fprintf(stderr, "bench: %s\n", e.text);
        return 1;
    }
    remove(path);
    engram_table_info(t, &info);
    printf("%-16s %8.1f million, %.1f MB\n", "entries", (double)info.n_entry * 1e-6,
           (double)info.n_bytes * 1e-6);
    struct rng r;
    rng_seed(&r, 2);
    for (int i = 0; i < N_QUERY; i++)
        memcpy(queries + (size_t)i * CTX, text + rng_below(&r, n - CTX), CTX * sizeof *text);
    show("one order", run(t, queries, 2));
    show("full back-off", run(t, queries, CTX));
    mixture(t, queries);
    for (int i = 0; i < N_QUERY * CTX; i++) queries[i] = VOCAB - 1 - (int32_t)rng_below(&r, 3000);
    show("no hit", run(t, queries, CTX));
    engram_table_close(t);
    nearest();
    mem_free(queries);
    mem_free(text);
    return 0;
}
