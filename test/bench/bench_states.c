/* bench_states.c: what others notice while states move. A neighbour decodes; beside it the next turn of a long
 * conversation, whose state has left the pool, is restored. Prints the neighbour's gaps between tokens.
 *
 *   bench_states [MODEL [TOKENS]]   chimere-nano and 8,000 by default */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/load.h"
#include "model/model.h"

enum { N_NEIGHBOUR = 4000, N_TURN = 5 };

static _Noreturn void die(const struct err *e) {
    fprintf(stderr, "bench_states: %s\n", e->text);
    exit(1);
}

struct neighbour {
    int64_t at_ns[N_NEIGHBOUR + 1];
    _Atomic int n;
    _Atomic bool over;
};

static bool note(struct engine_job *j, int32_t token, bool is_end,
                 const struct sampler_probs *probs) {
    struct neighbour *x = j->ud;
    (void)token, (void)is_end, (void)probs;
    if (x->n < N_NEIGHBOUR) x->at_ns[x->n] = clock_ns();
    x->n++;
    return !x->over;
}
static bool pass(struct engine_job *j, int32_t token, bool is_end,
                 const struct sampler_probs *probs) {
    (void)j, (void)token, (void)is_end, (void)probs;
    return true;
}
static void nothing(struct engine_job *j) { (void)j; }

static struct engine_job job_of(const int32_t *prompt, int32_t n, int32_t more) {
    struct engine_job j = {.p.prompt = prompt,
                           .p.n_prompt = n,
                           .p.max_tokens = more,
                           .on_token = pass,
                           .on_done = nothing,
                           .p.no_speculation = true};
    sampler_defaults(&j.p.sampling);
    j.p.sampling.ignore_eos = true;
    return j;
}

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void print(const char *what, int64_t *ns, int n, double ms, int32_t cached) {
    if (n < 1) return;
    qsort(ns, (size_t)n, sizeof *ns, by_size);
    int middle = n / 2, late = n * 99 / 100;
    printf("%-28s %8d %10.2f %10.2f %10.2f %12.1f %10d\n", what, n, (double)ns[middle] * 1e-6,
           (double)ns[late] * 1e-6, (double)ns[n - 1] * 1e-6, ms, cached);
}

struct waiting {
    struct engine *g;
    struct engine_job *j;
};
static void *run_neighbour(void *arg) {
    struct waiting *w = arg;
    struct err e = {0};
    if (engine_run(w->g, w->j, &e)) die(&e);
    return NULL;
}

/* One turn of a conversation beside a neighbour: its gaps meanwhile. */
static void turn(struct engine *g, const char *what, const int32_t *prompt, int32_t n) {
    static struct neighbour x;
    static int64_t gaps[N_NEIGHBOUR];
    static const int32_t hello[] = {100, 101, 102};
    struct err e = {0};
    pthread_t t;
    x.n = 0;
    x.over = false;
    struct engine_job other = job_of(hello, 3, N_NEIGHBOUR), j = job_of(prompt, n, 1);
    other.on_token = note;
    other.ud = &x;
    struct waiting w = {g, &other};
    if (pthread_create(&t, NULL, run_neighbour, &w)) exit(1);
    while (x.n < 20) usleep(1000);
    int from = x.n;
    int64_t start = clock_ns();
    if (engine_run(g, &j, &e)) die(&e);
    double ms = clock_ms_since(start);
    int to = x.n < N_NEIGHBOUR ? x.n : N_NEIGHBOUR;
    x.over = true;
    pthread_join(t, NULL);
    for (int i = from; i < to; i++) gaps[i - from] = x.at_ns[i] - x.at_ns[i - 1];
    print(what, gaps, to - from, ms, j.stats.n_cached);
}

int main(int argc, char **argv) {
    const char *path = argc > 1 ? argv[1] : "build/release/chimere-nano.gguf";
    int32_t n = argc > 2 ? atoi(argv[2]) : 8000;
    struct load_params how;
    struct loaded l;
    struct err e = {0};
    load_defaults(&how);
    how.path = path;
    how.quiet = true;
    how.no_fit = true;
    how.plan.n_seq = 2;
    how.plan.n_ctx =
        n + 2 * N_NEIGHBOUR; /* one long conversation: the other's pages have to leave */
    how.plan.engine.speculate = false;
    how.plan.engine.cache.ram_bytes = (uint64_t)8 << 30;
    if (load_open(&l, &how, &e)) die(&e);
    int32_t *talk[2], n_vocab = l.model->hp.n_vocab;
    for (int i = 0; i < 2; i++) {
        talk[i] = mem_alloc_array((size_t)n + 100, sizeof *talk[i]);
        if (!talk[i]) return 1;
        for (int32_t k = 0; k < n + 100; k++)
            talk[i][k] = 100 + (k * 31 + k / 7 + i * 13) % (n_vocab / 2);
        struct engine_job first = job_of(talk[i], n, 1);
        if (engine_run(l.engine, &first, &e)) die(&e);
    }
    printf("%-28s %8s %10s %10s %10s %12s %10s\n", "a neighbour's gaps, ms", "gaps", "p50", "p99",
           "max", "turn took ms", "cached");
    turn(l.engine, "a new prompt of 100", talk[1] + 7, 100);
    for (int i = 0; i < N_TURN; i++)
        turn(l.engine, i % 2 ? "turn of talk 2" : "turn of talk 1", talk[i % 2], n + 10 + i);
    for (int i = 0; i < 2; i++) mem_free(talk[i]);
    load_close(&l);
    return 0;
}
