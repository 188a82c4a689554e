/* llama_engine.c: our engine over libllama, for test/cli/test_llama.sh. What it answers is compared with libllama by
 * itself (llama_oracle.c, another program) and with our own forward pass.
 *
 * Environment: LLAMA_LIBRARY (chimere-llama.so), LLAMA_MODEL, LLAMA_ORACLE; the working directory is scratch. One
 * argument: the tests whose names contain it. `bench N`: overhead over bare libllama, N pairs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/load.h"
#include "model/lora.h"
#include "store/store.h"

enum { MAX_TOKENS = 512, N_STREAM = 8 };
#define TIE 0.5 /* logits that libllama itself moves by where a prompt is cut otherwise */

static const char *library, *model, *oracle;

static const char *const prompts[N_STREAM] = {
    "The capital of France is",
    "Water boils at",
    "def fibonacci(n):\n",
    "The quick brown fox",
    "In the beginning,",
    "A recipe for bread needs",
    "The three primary colours are",
    "My favourite animal is the",
};

/* ---- jobs that collect their tokens ---- */

struct talk {
    struct engine_job job;
    int32_t *prompt;
    int32_t n_prompt, n;
    int32_t ids[MAX_TOKENS];
    int32_t stop_after; /* tokens after which it cancels itself; 0: never */
    struct engine *engine;
    _Atomic bool is_done;
    double from_ms, to_ms; /* processor time of this process at the first token and at the end */
};

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static bool on_token(struct engine_job *j, int32_t token, bool is_end,
                     const struct sampler_probs *probs) {
    struct talk *t = j->ud;
    (void)is_end, (void)probs;
    if (!t->n) t->from_ms = cpu_ms();
    if (t->n < MAX_TOKENS) t->ids[t->n++] = token;
    if (t->stop_after && t->n == t->stop_after) engine_cancel(t->engine, j);
    return true;
}

static void on_done(struct engine_job *j) {
    ((struct talk *)j->ud)->to_ms = cpu_ms();
    ((struct talk *)j->ud)->is_done = true;
}

static void prepare(struct talk *t, const struct loaded *l, const char *text, int32_t n_more) {
    size_t n;
    struct err e = {0};
    *t = (struct talk){.engine = l->engine};
    assert_int_equal(tok_encode(l->tok, text, strlen(text), false, true, &t->prompt, &n, &e), 0);
    t->n_prompt = (int32_t)n;
    t->job.p.prompt = t->prompt;
    t->job.p.n_prompt = t->n_prompt;
    t->job.p.max_tokens = n_more;
    t->job.p.loras = l->loras;
    t->job.p.n_lora = l->n_lora;
    sampler_defaults(&t->job.p.sampling);
    t->job.p.sampling.temperature = 0;
    t->job.p.sampling.ignore_eos = true;
    t->job.on_token = on_token;
    t->job.on_done = on_done;
    t->job.ud = t;
}

static void run(struct talk *t, const struct loaded *l, const char *text, int32_t n_more) {
    struct err e = {0};
    prepare(t, l, text, n_more);
    int rc = engine_run(l->engine, &t->job, &e);
    if (rc) fail_msg("%s", e.text);
    assert_int_equal(t->n, n_more);
}

static void defaults(struct load_params *p, enum load_backend backend, int32_t n_seq) {
    load_defaults(p);
    p->path = model;
    p->backend = backend;
    p->llama_library = library;
    p->n_thread = 1;
    p->quiet = true;
    p->plan.n_seq = n_seq;
    p->plan.n_ctx = 1024;
    p->plan.full_ctx = true;
    p->plan.engine.speculate = false;
}

static void open_it(struct loaded *l, const struct load_params *p) {
    struct err e = {0};
    if (load_open(l, p, &e)) fail_msg("%s", e.text);
}

/* What libllama by itself thinks of t's tokens. */
static void judge(const struct talk *t, int *n_best, double *gap) {
    char command[1024];
    int n = 0;
    FILE *f = fopen("ids", "w");
    assert_non_null(f);
    for (int32_t i = 0; i < t->n_prompt; i++) fprintf(f, "%d\n", t->prompt[i]);
    for (int32_t i = 0; i < t->n; i++) fprintf(f, "%d\n", t->ids[i]);
    fclose(f);
    snprintf(command, sizeof command, "%s check %s %d <ids", oracle, model, t->n_prompt);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    assert_int_equal(fscanf(p, "%d of %d best, gap %lf", n_best, &n, gap), 3);
    pclose(p);
    assert_int_equal(n, t->n);
    print_message("%d of %d tokens as libllama's own, gap %.4f\n", *n_best, n, *gap);
}

/* ---- tests ---- */

/* libllama behind the engine says what libllama says. Our own forward pass does, but where libllama's two likeliest
 * tokens are as close as the rounding of quantized products. */
static void test_text(void **state) {
    (void)state;
    struct load_params p;
    struct loaded l;
    struct talk t;
    int n_best;
    double gap;
    defaults(&p, LOAD_LLAMA, 1);
    p.plan.engine.cache.ram_bytes = 0;
    open_it(&l, &p);
    assert_null(l.model);
    for (int i = 0; i < 3; i++) {
        run(&t, &l, prompts[i], 24);
        judge(&t, &n_best, &gap);
        assert_int_equal(n_best, 24);
        mem_free(t.prompt);
    }
    load_close(&l);
    p.backend = LOAD_OWN;
    open_it(&l, &p);
    assert_non_null(l.model);
    for (int i = 0; i < 3; i++) {
        run(&t, &l, prompts[i], 32);
        judge(&t, &n_best, &gap);
        assert_true(n_best >= 29);
        assert_true(gap < 0.5);
        mem_free(t.prompt);
    }
    load_close(&l);
}

static void test_streams(void **state) {
    (void)state;
    struct load_params p;
    struct loaded l;
    static struct talk t[N_STREAM];
    struct err e = {0};
    struct engine_totals before, after;
    defaults(&p, LOAD_LLAMA, N_STREAM);
    p.plan.engine.cache.ram_bytes = 0;
    open_it(&l, &p);
    engine_totals(l.engine, &before);
    for (int i = 0; i < N_STREAM; i++) {
        prepare(&t[i], &l, prompts[i], 12);
        assert_int_equal(engine_submit(l.engine, &t[i].job, &e), 0);
    }
    for (int i = 0; i < N_STREAM; i++)
        while (!t[i].is_done) usleep(1000);
    engine_totals(l.engine, &after);
    assert_true(after.n_step - before.n_step < 2 * 12 + N_STREAM); /* together, not one by one */
    for (int i = 0; i < N_STREAM; i++) {
        int n_best;
        double gap;
        assert_int_equal(t[i].n, 12);
        judge(&t[i], &n_best, &gap);
        assert_true(gap < 0.1); /* a batch of eight rounds in another order */
        mem_free(t[i].prompt);
    }
    load_close(&l);
}

static void test_cancel(void **state) {
    (void)state;
    struct load_params p;
    struct loaded l;
    static struct talk a, b;
    struct err e = {0};
    struct engine_totals totals;
    defaults(&p, LOAD_LLAMA, 2);
    open_it(&l, &p);
    prepare(&a, &l, prompts[0], 400);
    a.stop_after = 5;
    prepare(&b, &l, prompts[1], 24);
    assert_int_equal(engine_submit(l.engine, &a.job, &e), 0);
    assert_int_equal(engine_submit(l.engine, &b.job, &e), 0);
    while (!a.is_done || !b.is_done) usleep(1000);
    assert_int_equal(a.job.finish, FINISH_CANCELLED);
    assert_true(a.n >= 5 && a.n <= 7);
    assert_int_equal(b.job.finish, FINISH_LENGTH);
    assert_int_equal(b.n, 24);
    do engine_totals(l.engine, &totals);
    while (totals.n_active && usleep(1000) == 0);
    assert_int_equal(totals.n_ctx_free, l.plan.engine.n_ctx); /* all room came back */
    mem_free(a.prompt);
    mem_free(b.prompt);
    load_close(&l);
}

/* A text of about n tokens. */
static char *long_text(int n, int seed) {
    char *text = mem_alloc((size_t)n * 16 + 16);
    size_t at = 0;
    for (int i = 0; i < n / 4; i++)
        at +=
            (size_t)sprintf(text + at, "%s", (i * 7 + seed) % 3 ? "and then the " : "of some sea ");
    return text;
}

/* What a kept state continues is the same bit for bit: the rest of the prompt is cut as it was. */
static void test_states_in_memory(void **state) {
    (void)state;
    struct load_params p;
    struct loaded l;
    struct talk first, again, other;
    struct engine_totals totals;
    int n_best;
    double gap;
    defaults(&p, LOAD_LLAMA, 2);
    p.plan.n_ctx = 256;
    open_it(&l, &p);
    char *text = long_text(100, 0);
    run(&first, &l, text, 16);
    assert_int_equal(first.job.stats.n_cached, 0);
    judge(&first, &n_best, &gap);
    assert_true(gap < TIE);
    run(&again, &l, text, 16);
    assert_true(again.job.stats.n_cached >= first.n_prompt / 64 * 64 - 64);
    assert_memory_equal(again.ids, first.ids, 16 * sizeof *first.ids);
    mem_free(again.prompt);
    /* others fill the context: kept states leave it for the host, and return from there */
    for (int i = 1; i < 6; i++) {
        char *more = long_text(140, i);
        run(&other, &l, more, 1);
        mem_free(other.prompt);
        mem_free(more);
    }
    engine_totals(l.engine, &totals);
    assert_true(totals.state_bytes > 0);
    run(&again, &l, text, 16);
    assert_true(again.job.stats.n_cached >= first.n_prompt / 64 * 64 - 64);
    assert_memory_equal(again.ids, first.ids, 16 * sizeof *first.ids);
    mem_free(first.prompt);
    mem_free(again.prompt);
    mem_free(text);
    load_close(&l);
}

/* Jobs with one prompt branch after it: only the first evaluates it. */
static void test_forks(void **state) {
    (void)state;
    struct load_params p;
    struct loaded l;
    static struct talk t[4];
    struct err e = {0};
    int n_best;
    double gap;
    defaults(&p, LOAD_LLAMA, 4);
    open_it(&l, &p);
    char *text = long_text(120, 2);
    for (int i = 0; i < 4; i++) {
        prepare(&t[i], &l, text, 12);
        assert_int_equal(engine_submit(l.engine, &t[i].job, &e), 0);
    }
    int n_fork = 0;
    for (int i = 0; i < 4; i++) {
        while (!t[i].is_done) usleep(1000);
        n_fork += t[i].job.stats.n_cached == t[i].n_prompt - 1;
        judge(&t[i], &n_best, &gap);
        assert_true(gap < TIE);
        mem_free(t[i].prompt);
    }
    assert_int_equal(n_fork, 3);
    mem_free(text);
    load_close(&l);
}

static void test_states_in_files(void **state) {
    (void)state;
    struct load_params p;
    struct loaded l;
    struct talk t[2];
    struct err e = {0};
    struct store *store;
    char *text = long_text(100, 5);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(store_open(&store, "states.db", &e), 0);
        defaults(&p, LOAD_LLAMA, 1);
        p.plan.engine.cache.dir = "states";
        p.plan.engine.cache.store = store;
        p.plan.engine.cache.disk_bytes = (uint64_t)1 << 30;
        open_it(&l, &p);
        run(&t[round], &l, text, 16);
        load_close(&l);
        store_close(store);
    }
    assert_int_equal(t[0].job.stats.n_cached, 0);
    assert_true(t[1].job.stats.n_cached >= t[0].n_prompt / 64 * 64 - 64);
    assert_memory_equal(t[1].ids, t[0].ids, 16 * sizeof *t[0].ids);
    mem_free(t[0].prompt);
    mem_free(t[1].prompt);
    mem_free(text);
}

/* An adapter that we wrote changes what libllama says as it changes what we say. */
static void test_lora(void **state) {
    (void)state;
    struct load_params p;
    struct loaded l;
    struct talk plain, own, theirs, mixed[2];
    struct lora *lora;
    struct err e = {0};
    size_t n;
    defaults(&p, LOAD_OWN, 1);
    open_it(&l, &p);
    assert_int_equal(lora_new(&lora, l.model, 4, 7, &e), 0);
    float *b = lora_b(lora, &n);
    for (size_t i = 0; i < n; i++) b[i] = (float)((i * 2654435761u >> 8) % 1000) * 4e-5f - 0.02f;
    assert_int_equal(lora_commit(lora, &e), 0);
    assert_int_equal(lora_save(lora, "adapter.gguf", &e), 0);
    lora_close(lora);
    run(&plain, &l, prompts[0], 24);
    load_close(&l);
    const char *const loras[] = {"adapter.gguf:1"};
    p.loras = loras;
    p.n_lora = 1;
    open_it(&l, &p);
    run(&own, &l, prompts[0], 24);
    load_close(&l);
    p.backend = LOAD_LLAMA;
    p.plan.n_seq = 2;
    open_it(&l, &p);
    run(&theirs, &l, prompts[0], 24);
    int n_same = 0, n_plain = 0;
    for (int i = 0; i < 24; i++) n_same += own.ids[i] == theirs.ids[i];
    for (int i = 0; i < 24; i++) n_plain += plain.ids[i] == theirs.ids[i];
    print_message("adapter: %d of 24 tokens as ours, %d as without it\n", n_same, n_plain);
    assert_true(n_same > n_plain);
    assert_memory_equal(own.ids, theirs.ids, 4 * sizeof *own.ids);
    /* one with the adapter and one without, in the same steps */
    for (int i = 0; i < 2; i++) prepare(&mixed[i], &l, prompts[0], 24);
    mixed[1].job.p.n_lora = 0;
    for (int i = 0; i < 2; i++) assert_int_equal(engine_submit(l.engine, &mixed[i].job, &e), 0);
    for (int i = 0; i < 2; i++)
        while (!mixed[i].is_done) usleep(1000);
    assert_memory_equal(mixed[0].ids, theirs.ids, sizeof(int32_t) * 24);
    int n_best;
    double gap;
    judge(&mixed[1], &n_best, &gap);
    assert_true(gap < 0.1);
    struct talk *all[] = {&plain, &own, &theirs, &mixed[0], &mixed[1]};
    for (int i = 0; i < 5; i++) mem_free(all[i]->prompt);
    load_close(&l);
}

static void test_memory_plan(void **state) {
    (void)state;
    struct load_params p;
    struct loaded l;
    struct err e = {0};
    defaults(&p, LOAD_LLAMA, 2);
    p.plan.budget_bytes = 64 << 20;
    assert_int_equal(load_open(&l, &p, &e), CHIMERE_ELIMIT);
    assert_non_null(strstr(e.text, "does not fit: 2 sequences of 1024 tokens need"));
    assert_non_null(strstr(e.text, "64.0 MiB may be used"));
}

/* ---- bench ---- */

static double ours_ms(const struct loaded *l, int n_more) {
    static struct talk t;
    struct err e = {0};
    int32_t ids[32];
    for (int i = 0; i < 32; i++) ids[i] = 100 + i;
    prepare(&t, l, "x", n_more);
    t.job.p.prompt = ids;
    t.job.p.n_prompt = 32;
    if (engine_run(l->engine, &t.job, &e)) fail_msg("%s", e.text);
    mem_free(t.prompt);
    return (t.to_ms - t.from_ms) / (n_more - 1); /* the first token is the prompt's */
}

static double theirs_ms(int n_more) {
    char command[1024];
    double ms = 0;
    snprintf(command, sizeof command, "%s bench %s %d", oracle, model, n_more);
    FILE *p = popen(command, "r");
    if (!p || fscanf(p, "%lf", &ms) != 1) ms = 0;
    if (p) pclose(p);
    return ms;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Processor time, so that other programs count less. The three take turns; the overhead is the median of the quotients
 * of neighbours. */
static int bench(int n_pair) {
    enum { N_MORE = 64, MAX_PAIR = 99 };
    double ours[MAX_PAIR], theirs[MAX_PAIR], ratio[MAX_PAIR], own[MAX_PAIR];
    struct load_params p;
    struct loaded l, forward;
    struct err e = {0};
    if (n_pair < 1 || n_pair > MAX_PAIR) n_pair = 7;
    defaults(&p, LOAD_LLAMA, 1);
    if (load_open(&l, &p, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    p.backend = LOAD_OWN;
    open_it(&forward, &p);
    ours_ms(&l, N_MORE);
    ours_ms(&forward, N_MORE);
    for (int i = 0; i < n_pair; i++) {
        ours[i] = ours_ms(&l, N_MORE);
        theirs[i] = theirs_ms(N_MORE);
        own[i] = ours_ms(&forward, N_MORE);
        ratio[i] = ours[i] / theirs[i];
    }
    load_close(&l);
    load_close(&forward);
    qsort(own, (size_t)n_pair, sizeof *own, compare);
    qsort(ours, (size_t)n_pair, sizeof *ours, compare);
    qsort(theirs, (size_t)n_pair, sizeof *theirs, compare);
    qsort(ratio, (size_t)n_pair, sizeof *ratio, compare);
    printf("ms of processor time per token, one thread, medians of %d turns\n", n_pair);
    printf("  our own forward pass     %.3f\n", own[n_pair / 2]);
    printf("  the engine over libllama %.3f\n", ours[n_pair / 2]);
    printf("  libllama by itself       %.3f\n", theirs[n_pair / 2]);
    printf("overhead over libllama by itself: %+.2f %% (median of pairs)\n",
           (ratio[n_pair / 2] - 1) * 100);
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),   cmocka_unit_test(test_streams),
        cmocka_unit_test(test_cancel), cmocka_unit_test(test_states_in_memory),
        cmocka_unit_test(test_forks),  cmocka_unit_test(test_states_in_files),
        cmocka_unit_test(test_lora),   cmocka_unit_test(test_memory_plan),
    };
    library = getenv("LLAMA_LIBRARY");
    model = getenv("LLAMA_MODEL");
    oracle = getenv("LLAMA_ORACLE");
    if (!library || !model || !oracle) {
        puts("skip: llama_engine: test/cli/test_llama.sh runs it");
        return 77;
    }
    if (argc > 2 && strcmp(argv[1], "bench") == 0) return bench(atoi(argv[2]));
    mem_guard_arm(true);
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
