/* test_prefix.c: what a prompt need not evaluate again: lookup, budgets, files, kills, exactness. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/lm.h"
#include "kernels/cpu/cpu.h"
#include "model/vocab.h"
#include "await.h"
#include "scratch.h"
#include "store/state.h"

enum { VOCAB = 500, MAX_TALK = 24000, MAX_ANSWER = 400 };

/* What is over the budget is being written, on a busy machine slowly. */
static void settle(struct engine *g, uint64_t n_bytes) {
    struct engine_totals t;
    AWAIT((engine_totals(g, &t), t.state_bytes <= n_bytes));
}

/* ---- conversations ---- */

struct talk {
    int32_t *tokens; /* owned [MAX_TALK]: prompt, answer, next message, ... */
    int32_t n;
    int32_t n_cached; /* of the last turn */
    float logprobs[MAX_ANSWER];
    float gap; /* smallest distance of the two likeliest tokens in the answer */
    int32_t gap_at;
    int32_t n_answer;
    bool ended;
};

static struct talk *talk_new(uint64_t seed, int32_t n, int32_t n_vocab) {
    struct talk *t = calloc(1, sizeof *t);
    struct rng r;
    rng_seed(&r, seed);
    t->tokens = calloc(MAX_TALK, sizeof *t->tokens);
    for (int32_t i = 0; i < n; i++)
        t->tokens[i] = 1 + (int32_t)rng_below(&r, (uint64_t)n_vocab - 1);
    t->n = n;
    return t;
}

static void talk_free(struct talk *t) {
    free(t->tokens);
    free(t);
}

static bool collect(struct engine_job *j, int32_t token, bool is_end,
                    const struct sampler_probs *probs) {
    (void)is_end;
    struct talk *t = j->ud;
    t->tokens[t->n++] = token;
    if (probs && t->n_answer < MAX_ANSWER) {
        t->logprobs[t->n_answer] = probs->chosen;
        float gap = probs->logprobs[0] - probs->logprobs[1];
        if (gap < t->gap) {
            t->gap = gap;
            t->gap_at = t->n_answer;
        }
    }
    t->n_answer++;
    return true;
}

static void ended(struct engine_job *j) { ((struct talk *)j->ud)->ended = true; }

/* One answer of n tokens to what t holds; then n_next tokens of the user's. */
static void turn_with(struct engine *g, struct talk *t, int32_t n_answer, int32_t n_next,
                      void (*change)(struct engine_job *j)) {
    struct err e = {0};
    int32_t *prompt = malloc((size_t)t->n * sizeof *prompt), n = t->n;
    memcpy(prompt, t->tokens, (size_t)n * sizeof *prompt);
    struct engine_job j = {.p.prompt = prompt,
                           .p.n_prompt = n,
                           .p.max_tokens = n_answer,
                           .on_token = collect,
                           .on_done = ended,
                           .ud = t};
    sampler_defaults(&j.p.sampling);
    j.p.sampling.temperature = 0;
    j.p.sampling.n_probs = 2;
    j.p.sampling.ignore_eos = true;
    if (change) change(&j);
    t->n_answer = 0;
    t->gap = INFINITY;
    t->gap_at = -1;
    if (engine_run(g, &j, &e)) fail_msg("%s", e.text);
    free(prompt);
    assert_int_equal(t->n_answer, n_answer);
    assert_int_equal(j.stats.n_prompt, n);
    t->n_cached = j.stats.n_cached;
    assert_true(t->n_cached < n);
    for (int32_t i = 0; i < n_next; i++, t->n++) t->tokens[t->n] = 1 + (t->n * 7 + i) % 90;
}

static void turn(struct engine *g, struct talk *t, int32_t n_answer, int32_t n_next) {
    turn_with(g, t, n_answer, n_next, NULL);
}

static void without_cache(struct engine_job *j) { j->p.no_cache = true; }

/* ---- engines ---- */

static struct engine_params cached(int32_t n_seq, int64_t n_ctx, uint64_t ram_bytes) {
    struct engine_params p;
    engine_defaults(&p);
    p.n_seq = n_seq;
    p.n_ctx = n_ctx;
    p.cache.ram_bytes = ram_bytes;
    p.cache.disk_bytes = (uint64_t)1 << 30;
    return p;
}

static struct engine *fake_engine_with(const struct engine_params *p, uint64_t page_bytes,
                                       int32_t page_us, int32_t delay_us) {
    struct lm_fake_params fp = {.n_vocab = VOCAB,
                                .eos = 0,
                                .n_ctx = p->n_ctx,
                                .n_seq = p->n_seq,
                                .checkpoint_bytes = 1000,
                                .page_bytes = page_bytes,
                                .page_us = page_us,
                                .delay_us = delay_us};
    struct lm *lm;
    struct engine *g;
    struct err e = {0};
    assert_int_equal(lm_open_fake(&lm, &fp, &e), 0);
    if (engine_new_over(&g, lm, NULL, p, &e)) fail_msg("%s", e.text);
    return g;
}

static struct engine *fake_engine(const struct engine_params *p) {
    return fake_engine_with(p, 100, 0, 0);
}

static struct store *open_store(const char *name) {
    char path[128];
    struct store *s;
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s.db", scratch, name);
    if (store_open(&s, path, &e)) fail_msg("%s", e.text);
    return s;
}

static const char *states_dir(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    return path;
}

/* Calls each with the path of every saved state; returns how many there are. */
static int each_file(const char *dir, void (*each)(const char *path)) {
    DIR *d = opendir(dir);
    int n = 0;
    if (!d) return 0;
    for (struct dirent *x; (x = readdir(d));) {
        char path[600];
        if (!strstr(x->d_name, ".seq")) continue;
        snprintf(path, sizeof path, "%s/%s", dir, x->d_name);
        n++;
        if (each) each(path);
    }
    closedir(d);
    return n;
}

/* ---- lookup ---- */

static void a_prompt_seen_before_costs_its_last_block(void **state) {
    (void)state;
    struct engine_params p = cached(1, 8192, 1 << 20);
    struct engine *g = fake_engine(&p);
    struct talk *a = talk_new(1, 300, VOCAB), *b = talk_new(2, 300, VOCAB);
    turn(g, a, 10, 0);
    assert_int_equal(a->n_cached, 0);
    a->n = 300;
    turn(g, a, 10, 0);
    assert_int_equal(a->n_cached, 256); /* 299 rounded down to the grid */
    a->n = 300;
    turn_with(g, a, 10, 0, without_cache);
    assert_int_equal(a->n_cached, 0);
    turn(g, b, 10, 0); /* nothing in common */
    assert_int_equal(b->n_cached, 0);
    memcpy(b->tokens, a->tokens, 257 * sizeof *b->tokens);
    b->n = 300;
    turn(g, b, 10, 0);
    assert_int_equal(b->n_cached, 256);
    b->tokens[255]++; /* a state cannot be cut back: without its last token it is of no use */
    b->n = 300;
    turn(g, b, 10, 0);
    assert_int_equal(b->n_cached, 0);
    talk_free(a);
    talk_free(b);
    engine_free(g);
}

static void every_turn_evaluates_only_what_is_new(void **state) {
    (void)state;
    for (int speculate = 0; speculate < 2; speculate++) {
        struct engine_params p = cached(1, MAX_TALK, 1 << 22);
        p.speculate = speculate;
        struct engine *g = fake_engine(&p);
        struct talk *t = talk_new(3, 20000, 30);
        turn(g, t, 100, 37);
        for (int i = 0; i < 12; i++) {
            int32_t n_new = 37, n_known = t->n - n_new;
            turn(g, t, 50 + 13 * i, 37);
            /* the last token of an answer was sampled but never evaluated */
            assert_in_range(t->n_cached, n_known - 1 - 63, n_known);
        }
        talk_free(t);
        engine_free(g);
    }
}

static const int32_t hints[] = {130, 500, 700, 990};
static void with_hints(struct engine_job *j) {
    j->p.marks = hints;
    j->p.n_mark = 4;
}

static void hints_make_places_to_branch(void **state) {
    (void)state;
    struct engine_params p = cached(1, 8192, 1 << 20);
    p.cache.n_every = 256;
    struct engine *g = fake_engine(&p);
    struct talk *t = talk_new(4, 1000, VOCAB);
    turn_with(g, t, 20, 0, with_hints);
    static const struct {
        int32_t at, want;
    } cases[] = {{990, 960}, {960, 960}, {959, 768}, {710, 640}, {639, 512},
                 {501, 448}, {440, 256}, {140, 128}, {127, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct talk *b = talk_new(5 + i, 1000, VOCAB);
        memcpy(b->tokens, t->tokens, (size_t)cases[i].at * sizeof *b->tokens);
        turn_with(g, b, 1, 0, NULL);
        assert_int_equal(b->n_cached, cases[i].want);
        talk_free(b);
    }
    talk_free(t);
    engine_free(g);
}

/* ---- texts ---- */

/* Conversations that take turns, with and without the cache: the same tokens. */
static void texts_are_those_of_a_fresh_evaluation(void **state) {
    (void)state;
    enum { N = 100 };
    struct engine_params p = cached(3, 1 << 16, 60000); /* room for some of them */
    p.cache.dir = states_dir("texts");
    p.cache.store = open_store("texts");
    struct engine *g = fake_engine(&p);
    struct talk *a[N], *b[N];
    int64_t n_cached = 0;
    for (int i = 0; i < N; i++) {
        a[i] = talk_new((uint64_t)i, 40 + 7 * i, VOCAB);
        b[i] = talk_new((uint64_t)i, 40 + 7 * i, VOCAB);
    }
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < N; i++) {
            int32_t k = (i * 37) % N, n = 20 + k % 90;
            turn(g, a[k], n, 30);
            n_cached += a[k]->n_cached;
            settle(g, 70000);
            turn_with(g, b[k], n, 30, without_cache);
            assert_int_equal(a[k]->n, b[k]->n);
            assert_memory_equal(a[k]->tokens, b[k]->tokens, (size_t)a[k]->n * sizeof(int32_t));
        }
    assert_true(n_cached > 50000);
    for (int i = 0; i < N; i++) {
        talk_free(a[i]);
        talk_free(b[i]);
    }
    engine_free(g);
    store_close(p.cache.store);
}

/* ---- budgets and files ---- */

/* More conversations than memory holds: the least recently used lose their states, or with files, none. */
static void budgets_hold_and_files_extend_them(void **state) {
    (void)state;
    enum { N = 40 };
    for (int with_files = 0; with_files < 2; with_files++) {
        struct engine_params p = cached(1, 1 << 16, 20000); /* of 40 times 2 checkpoints of 1000 */
        if (with_files) {
            p.cache.dir = states_dir("budget");
            p.cache.store = open_store("budget");
        }
        struct engine *g = fake_engine(&p);
        struct talk *t[N];
        struct engine_totals totals;
        for (int i = 0; i < N; i++) {
            t[i] = talk_new((uint64_t)i, 600, VOCAB);
            turn(g, t[i], 100, 20);
            engine_totals(g, &totals);
            assert_true(totals.state_bytes <= 30000);
            if (with_files) settle(g, 20000);
        }
        int n_hit = 0;
        for (int i = 0; i < N; i++) {
            turn(g, t[i], 10, 0);
            n_hit += t[i]->n_cached >= 600;
            if (!with_files) assert_int_equal(t[i]->n_cached, 0); /* pushed out before its turn */
        }
        engine_totals(g, &totals);
        if (with_files) {
            assert_true(n_hit >= N * 9 / 10);
            assert_true(totals.n_state_disk >= N / 2);
        }
        for (int i = 0; i < N; i++) talk_free(t[i]);
        engine_free(g);
        if (with_files) store_close(p.cache.store);
    }
}

static void spoil(const char *path) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, 20, SEEK_SET);
    fputc(0x55, f);
    fputc(0xAA, f);
    fclose(f);
}

static void cut_short(const char *path) { assert_int_equal(truncate(path, 9), 0); }
static void delete_file(const char *path) { unlink(path); }

static void states_survive_a_restart_unless_damaged(void **state) {
    (void)state;
    void (*const harms[])(const char *) = {NULL, spoil, cut_short, delete_file};
    for (int how = 0; how < 4; how++) {
        char name[20];
        snprintf(name, sizeof name, "restart%d", how);
        struct engine_params p = cached(1, 1 << 14, 1 << 20);
        p.cache.dir = states_dir(name);
        p.cache.store = open_store(name);
        struct engine *g = fake_engine(&p);
        struct talk *t = talk_new(9, 1000, VOCAB), *fresh = talk_new(9, 1000, VOCAB);
        turn(g, t, 200, 50);
        turn_with(g, fresh, 200, 50, without_cache);
        engine_free(g); /* saves */
        store_close(p.cache.store);
        assert_true(each_file(p.cache.dir, NULL) >= 1);
        if (harms[how]) each_file(p.cache.dir, harms[how]);
        int n_before = each_file(p.cache.dir, NULL);

        p.cache.store = open_store(name);
        g = fake_engine(&p);
        turn(g, t, 100, 0);
        turn_with(g, fresh, 100, 0, without_cache);
        if (how) assert_int_equal(t->n_cached, 0);
        else assert_in_range(t->n_cached, 1199 - 63, 1199);
        assert_memory_equal(t->tokens, fresh->tokens, (size_t)t->n * sizeof(int32_t));
        struct engine_totals totals;
        engine_totals(g, &totals);
        if (how) assert_int_equal(totals.n_state_disk, 0);
        if (how == 1 || how == 2) assert_true(n_before > 0 && each_file(p.cache.dir, NULL) == 0);
        engine_free(g);
        struct engine_params other = p; /* another schedule: those files mean nothing to it */
        other.deterministic = true;
        other.n_chunk = 64;
        g = fake_engine(&other);
        t->n = 1000;
        turn(g, t, 10, 0);
        assert_int_equal(t->n_cached, 0);
        engine_free(g);
        store_close(p.cache.store);
        talk_free(t);
        talk_free(fresh);
    }
}

static int count_suffixes(const char *dir) {
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *x; d && (x = readdir(d));) n += !strncmp(x->d_name, "suffix-", 7);
    if (d) closedir(d);
    return n;
}

/* The caller's name of the folder is valid for engine_new only; and a folder that goes away while the engine runs
 * costs files, nothing else. */
static void the_folder_of_states_may_go_away(void **state) {
    (void)state;
    char moved[160];
    for (int gone = 0; gone < 2; gone++) {
        struct engine_params p = cached(1, 8192, 20000);
        const char *dir = states_dir(gone ? "leaves" : "stays");
        char *name = strdup(dir);
        p.speculate = true;
        p.cache.dir = name;
        p.cache.store = open_store(gone ? "leaves" : "stays");
        struct engine *g = fake_engine(&p);
        memset(name, 'x', strlen(name));
        free(name);
        snprintf(moved, sizeof moved, "%s.moved", dir);
        if (gone) assert_int_equal(rename(dir, moved), 0);
        for (uint64_t k = 0; k < 12; k++) { /* more than memory holds */
            struct talk *a = talk_new(k, 300, VOCAB), *b = talk_new(k, 300, VOCAB);
            turn(g, a, 80, 10);
            turn(g, a, 10, 0);
            turn_with(g, b, 80, 10, without_cache);
            assert_memory_equal(a->tokens, b->tokens, (size_t)b->n * sizeof(int32_t));
            talk_free(a);
            talk_free(b);
        }
        engine_free(g);
        store_close(p.cache.store);
        assert_int_equal(count_suffixes(dir), !gone);
        assert_int_equal(each_file(dir, NULL) > 0, !gone);
    }
}

static void files_have_a_budget_too(void **state) {
    (void)state;
    struct engine_params p = cached(1, 1 << 14, 1 << 20);
    p.cache.dir = states_dir("disk");
    p.cache.store = open_store("disk");
    p.cache.disk_bytes = 20000;
    struct engine *g = fake_engine(&p);
    struct talk *t[10];
    for (int i = 0; i < 10; i++) {
        t[i] = talk_new((uint64_t)i, 1000, VOCAB); /* 4000 bytes of tokens each */
        turn(g, t[i], 30, 20);
    }
    engine_free(g);
    int64_t n_bytes;
    struct err e;
    assert_int_equal(store_state_bytes(p.cache.store, 0, &n_bytes, &e), 0);
    assert_in_range(n_bytes, 8000, 20000);
    assert_in_range(each_file(p.cache.dir, NULL), 2, 4);
    g = fake_engine(&p);
    turn(g, t[9], 1, 0); /* the latest is there */
    assert_true(t[9]->n_cached >= 960);
    turn(g, t[0], 1, 0);
    assert_int_equal(t[0]->n_cached, 0);
    engine_free(g);
    for (int i = 0; i < 10; i++) talk_free(t[i]);
    store_close(p.cache.store);
}

static uint64_t job_scope, job_owner;
static void belong(struct engine_job *j) { j->p.scope = job_scope, j->p.owner = job_owner; }

/* States of one scope are found by that scope only, in memory and after a restart; and each owner's files
 * have a budget of their own. */
static void scopes_and_owners_are_kept_apart(void **state) {
    (void)state;
    struct engine_params p = cached(1, 1 << 14, 1 << 20);
    struct err e;
    int64_t n_bytes;
    p.cache.dir = states_dir("apart");
    p.cache.store = open_store("apart");
    p.cache.disk_bytes = 1 << 20;
    p.cache.owner_disk_bytes = 20000;
    struct engine *g = fake_engine(&p);
    struct talk *t[10];
    for (int i = 0; i < 10; i++) {
        job_owner = i == 0 ? 7 : 8;
        job_scope = job_owner + 100;
        t[i] = talk_new((uint64_t)i, 1000, VOCAB); /* 4000 bytes of tokens each */
        turn_with(g, t[i], 30, 20, belong);
    }
    job_scope = 107;
    turn_with(g, t[9], 1, 0, belong);
    assert_int_equal(t[9]->n_cached, 0); /* in memory, but not its own */
    engine_free(g);
    assert_int_equal(store_state_bytes(p.cache.store, 8, &n_bytes, &e), 0);
    assert_in_range(n_bytes, 8000, 20000);
    assert_int_equal(store_state_bytes(p.cache.store, 7, &n_bytes, &e), 0);
    assert_true(n_bytes >= 4000); /* the other owner's use costs this one nothing */
    for (int own = 0; own < 2; own++) {
        g = fake_engine(&p);
        job_scope = own ? 107 : 108;
        turn_with(g, t[0], 1, 0, belong);
        assert_true(own ? t[0]->n_cached >= 960 : t[0]->n_cached == 0);
        engine_free(g);
    }
    for (int i = 0; i < 10; i++) talk_free(t[i]);
    store_close(p.cache.store);
}

/* A server of many conversations in little memory, killed at random moments: what is left opens again, and
 * its answers are those of a fresh evaluation. */
static void kill_9_leaves_states_that_open(void **state) {
    (void)state;
    struct rng r;
    rng_seed(&r, 3);
    int64_t n_cached = 0;
    for (int round = 0; round < 8; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct engine_params p = cached(1, 1 << 14, 6000);
            p.cache.dir = states_dir("kill");
            p.cache.store = open_store("kill");
            struct engine *g = fake_engine(&p);
            for (uint64_t i = 0;; i++) {
                struct talk *t = talk_new(i % 20, 700, VOCAB);
                turn(g, t, 70, 20);
                talk_free(t);
            }
        }
        usleep((useconds_t)(60000 + rng_below(&r, 150000)));
        kill(pid, SIGKILL);
        int status;
        waitpid(pid, &status, 0);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        struct engine_params p = cached(1, 1 << 14, 6000);
        p.cache.dir = states_dir("kill");
        p.cache.store = open_store("kill");
        struct err e = {0};
        if (store_check(p.cache.store, &e)) fail_msg("%s", e.text);
        struct engine *g = fake_engine(&p);
        for (uint64_t i = 0; i < 20; i++) {
            struct talk *t = talk_new(i, 700, VOCAB), *fresh = talk_new(i, 700, VOCAB);
            turn(g, t, 70, 20);
            turn_with(g, fresh, 70, 20, without_cache);
            assert_memory_equal(t->tokens, fresh->tokens, (size_t)t->n * sizeof(int32_t));
            n_cached += t->n_cached;
            talk_free(t);
            talk_free(fresh);
        }
        engine_free(g);
        store_close(p.cache.store);
    }
    assert_true(n_cached > 0);
}

/* ---- a real model ---- */

static struct {
    struct dev *dev;
    struct model *m;
    int32_t n_vocab;
} nano;

static int open_nano(void **state) {
    (void)state;
    struct err e = {0};
    if (scratch_make(state)) return 1;
    if (cpu_open(&nano.dev, 1, CPU_ISA_BEST, &e) ||
        model_open(&nano.m, TEST_NANO, nano.dev, true, &e)) {
        print_error("%s\n", e.text);
        return 1;
    }
    nano.n_vocab = nano.m->hp.n_vocab;
    return 0;
}

static int close_nano(void **state) {
    model_close(nano.m);
    nano.dev->ops->close(nano.dev);
    return scratch_drop(state);
}

static struct engine *nano_engine(const struct engine_params *p) {
    struct engine *g;
    struct err e = {0};
    if (engine_new(&g, nano.m, NULL, p, &e)) fail_msg("%s", e.text);
    return g;
}

/* Where prompts are cut at absolute positions, a restored state gives the same bits as the uninterrupted
 * evaluation: tokens and log-probabilities are equal, from memory, from the host, and from files. */
static void restored_equals_uninterrupted_bit_for_bit(void **state) {
    (void)state;
    enum { N = 3 };
    struct engine_params p =
        cached(1, 512, 1 << 20); /* pages and budget for two or three of them */
    p.deterministic = true;
    p.n_chunk = 64;
    p.cache.dir = states_dir("exact");
    p.cache.store = open_store("exact");
    struct engine *g = nano_engine(&p);
    struct talk *a[N], *b[N];
    int32_t n_hit = 0;
    for (int i = 0; i < N; i++) {
        a[i] = talk_new((uint64_t)i, 200 + 31 * i, nano.n_vocab);
        b[i] = talk_new((uint64_t)i, 200 + 31 * i, nano.n_vocab);
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++) {
            turn(g, a[i], 20, 40);
            turn_with(g, b[i], 20, 40, without_cache);
            n_hit += a[i]->n_cached >= 192;
            assert_memory_equal(a[i]->tokens, b[i]->tokens, (size_t)a[i]->n * sizeof(int32_t));
            assert_memory_equal(a[i]->logprobs, b[i]->logprobs, 20 * sizeof(float));
        }
        if (round == 0) { /* and over a restart */
            engine_free(g);
            g = nano_engine(&p);
        }
    }
    assert_true(n_hit >= N);
    for (int i = 0; i < N; i++) {
        talk_free(a[i]);
        talk_free(b[i]);
    }
    engine_free(g);
    store_close(p.cache.store);
}

/* 100 conversations of two turns, two at a time in memory: greedy text as evaluated afresh, but where the
 * two likeliest tokens are as good as tied. Each turn evaluates its new tokens and at most 63 more. */
static void greedy_texts_of_100_conversations(void **state) {
    (void)state;
    enum { N = TEST_SLOWNESS > 1 ? 6 : 100, N_ANSWER = 12, N_NEXT = 8 };
    struct engine_params p = cached(1, 8192, (uint64_t)1 << 28);
    struct engine *g = nano_engine(&p);
    int n_tie = 0;
    for (int i = 0; i < N; i++) {
        struct talk *a = talk_new((uint64_t)i, 66 + i % 25, nano.n_vocab);
        struct talk *b = talk_new((uint64_t)i, 66 + i % 25, nano.n_vocab);
        for (int round = 0; round < 2; round++) {
            int32_t n_before = a->n;
            turn(g, a, N_ANSWER, N_NEXT);
            if (round) assert_in_range(a->n_cached, n_before - N_NEXT - 1 - 63, n_before - 1);
            turn_with(g, b, N_ANSWER, N_NEXT, without_cache);
            if (memcmp(a->tokens, b->tokens, (size_t)a->n * sizeof(int32_t)) == 0) continue;
            assert_true(a->gap < 0.02f || b->gap < 0.02f); /* logits range over some 20 */
            n_tie++;
            break;
        }
        talk_free(a);
        talk_free(b);
    }
    assert_true(n_tie <= (N + 19) / 20);
    engine_free(g);
}

/* ---- branches ---- */

enum { N_BRANCH = 6 };

struct crowd {
    struct engine *g;
    struct engine_job first,
        jobs[N_BRANCH]; /* first: decodes meanwhile, and posts the others all at once */
    int32_t n_posted;   /* on the engine's thread */
    struct talk *talks[N_BRANCH];
    _Atomic bool over;
};

static bool post_all(struct engine_job *j, int32_t token, bool is_end,
                     const struct sampler_probs *probs) {
    (void)token, (void)is_end, (void)probs;
    struct crowd *c = j->ud;
    struct err e = {0};
    bool all = true;
    for (; c->n_posted < N_BRANCH; c->n_posted++)
        if (engine_submit(c->g, &c->jobs[c->n_posted], &e)) fail_msg("%s", e.text);
    for (int i = 0; i < N_BRANCH; i++) all &= c->talks[i]->ended;
    return !all;
}

static void crowd_over(struct engine_job *j) { ((struct crowd *)j->ud)->over = true; }

static struct crowd *leaving; /* whose first branch goes in the midst of its prompt */

static void leave(struct engine_job *j, int32_t n_done, int32_t n_prompt) {
    if (n_done < n_prompt / 2) return;
    engine_cancel(leaving->g, j);
}

/* N_BRANCH jobs with the prompt of t, seated in the same step; what they wrote is behind it. Returns prompt
 * tokens that were evaluated by all of them. */
static int32_t branch_out(struct engine *g, const struct talk *t, int32_t n_answer,
                          bool first_leaves, struct crowd *c) {
    static const int32_t other[] = {1, 2, 3};
    struct err e = {0};
    int32_t n = 0;
    *c = (struct crowd){.g = g,
                        .first = {.p.prompt = other,
                                  .p.n_prompt = 3,
                                  .p.max_tokens = 4000,
                                  .on_token = post_all,
                                  .on_done = crowd_over,
                                  .ud = c}};
    sampler_defaults(&c->first.p.sampling);
    c->first.p.sampling.ignore_eos = true;
    for (int i = 0; i < N_BRANCH; i++) {
        c->talks[i] = talk_new(0, 0, 2);
        memcpy(c->talks[i]->tokens, t->tokens, (size_t)t->n * sizeof *t->tokens);
        c->talks[i]->n = t->n;
        c->jobs[i] = (struct engine_job){.p.prompt = t->tokens,
                                         .p.n_prompt = t->n,
                                         .p.max_tokens = n_answer,
                                         .on_token = collect,
                                         .on_done = ended,
                                         .ud = c->talks[i]};
        sampler_defaults(&c->jobs[i].p.sampling);
        c->jobs[i].p.sampling.ignore_eos = true;
        c->jobs[i].p.sampling.temperature = i ? 1 : 0;
        c->jobs[i].p.sampling.seed = (uint64_t)i;
    }
    leaving = c;
    if (first_leaves) c->jobs[0].on_prefill = leave;
    assert_int_equal(engine_submit(g, &c->first, &e), 0);
    while (!c->over) usleep(1000);
    for (int i = 0; i < N_BRANCH; i++)
        if (c->jobs[i].finish != FINISH_CANCELLED)
            n += c->jobs[i].stats.n_prompt - c->jobs[i].stats.n_cached;
    return n;
}

static void crowd_free(struct crowd *c) {
    for (int i = 0; i < N_BRANCH; i++) talk_free(c->talks[i]);
}

/* Whatever the prompt's length, it is evaluated once, and its last token by each of them. */
static void branches_evaluate_their_prompt_once(void **state) {
    (void)state;
    static const int32_t lengths[] = {2, 3, 63, 64, 65, 66, 100, 129, 200, 700};
    for (int speculate = 0; speculate < 2; speculate++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            struct engine_params p = cached(N_BRANCH + 1, 1 << 16, 1 << 20);
            p.speculate = speculate;
            p.n_batch = 128;
            struct engine *g = fake_engine(&p);
            struct talk *t = talk_new(40 + i, lengths[i], VOCAB), *fresh;
            struct crowd c;
            assert_int_equal(branch_out(g, t, 20, false, &c), lengths[i] + N_BRANCH - 1);
            for (int k = 0; k < N_BRANCH; k++) {
                fresh = talk_new(40 + i, lengths[i], VOCAB);
                struct engine_job j = c.jobs[k];
                j.p.no_cache = true;
                j.ud = fresh;
                struct err e = {0};
                if (engine_run(g, &j, &e)) fail_msg("%s", e.text);
                assert_int_equal(fresh->n, c.talks[k]->n);
                assert_memory_equal(fresh->tokens, c.talks[k]->tokens,
                                    (size_t)fresh->n * sizeof *fresh->tokens);
                talk_free(fresh);
            }
            crowd_free(&c);
            /* and again, with nothing left to do but each one's last token */
            assert_int_equal(branch_out(g, t, 20, false, &c), N_BRANCH);
            crowd_free(&c);
            talk_free(t);
            engine_free(g);
        }
}

/* The one that the others wait for is cancelled: the next goes on in its place. */
static void a_branch_that_leaves_hands_over(void **state) {
    (void)state;
    struct engine_params p = cached(N_BRANCH + 1, 1 << 16, 1 << 20);
    p.n_batch = 64;
    struct engine *g = fake_engine(&p);
    struct talk *t = talk_new(50, 500, VOCAB);
    struct crowd c;
    int32_t n = branch_out(g, t, 20, true, &c);
    assert_int_equal(c.jobs[0].finish, FINISH_CANCELLED);
    for (int k = 1; k < N_BRANCH; k++) {
        assert_int_equal(c.jobs[k].finish, FINISH_LENGTH);
        assert_int_equal(c.talks[k]->n, 520);
    }
    assert_in_range(n, N_BRANCH - 1, 500 + N_BRANCH - 2);
    crowd_free(&c);
    talk_free(t);
    engine_free(g);
}

static void with_end(struct engine_job *j) { j->p.keep_end = true; }

/* Answers that are continued from their very end, all but the token that was sampled last: each branch
 * evaluates one token, and the text is that of a fresh evaluation. */
static void an_answers_end_is_a_place_to_branch(void **state) {
    (void)state;
    for (int speculate = 0; speculate < 2; speculate++)
        for (int32_t n_answer = 3; n_answer < 90; n_answer += 7) {
            struct engine_params p = cached(N_BRANCH + 1, 1 << 16, 1 << 20);
            p.speculate = speculate;
            struct engine *g = fake_engine(&p);
            struct talk *t = talk_new(60, 77, VOCAB);
            struct crowd c;
            turn_with(g, t, n_answer, 0, with_end);
            t->n--;
            int32_t n = branch_out(g, t, 20, false, &c);
            if (speculate) assert_int_equal(n, N_BRANCH);
            else assert_in_range(n, N_BRANCH, 63 + N_BRANCH); /* states cannot go back a token */
            turn_with(g, t, 20, 0, without_cache);
            assert_memory_equal(t->tokens, c.talks[0]->tokens, (size_t)t->n * sizeof *t->tokens);
            crowd_free(&c);
            talk_free(t);
            engine_free(g);
        }
}

static void nano_branches_where_it_stopped(void **state) {
    (void)state;
    enum { N = TEST_SLOWNESS > 1 ? 3 : 20, N_ANSWER = 12 };
    struct engine_params p = cached(N_BRANCH + 1, 1 << 14, (uint64_t)1 << 28);
    struct engine *g = nano_engine(&p);
    int n_tie = 0;
    for (int i = 0; i < N; i++) {
        struct talk *t = talk_new((uint64_t)i, 40 + 3 * i, nano.n_vocab);
        struct crowd c;
        assert_int_equal(branch_out(g, t, 2, false, &c), t->n + N_BRANCH - 1);
        crowd_free(&c);
        turn_with(g, t, N_ANSWER + i % 5, 0, with_end);
        t->n--;
        assert_int_equal(branch_out(g, t, N_ANSWER, false, &c), N_BRANCH);
        turn_with(g, t, N_ANSWER, 0, without_cache);
        if (memcmp(t->tokens, c.talks[0]->tokens, (size_t)t->n * sizeof *t->tokens) != 0) {
            assert_true(t->gap < 0.02f);
            n_tie++;
        }
        crowd_free(&c);
        talk_free(t);
    }
    assert_true(n_tie <= 2);
    engine_free(g);
}

/* Two long conversations in a pool that holds one: switching moves pages, evaluates nothing. */
static _Atomic int32_t n_neighbour;

static void checkpoint_over(struct engine_job *j) { *(_Atomic bool *)j->ud = true; }
static void no_matter(struct engine_job *j) { (void)j; }

static bool count_token(struct engine_job *j, int32_t token, bool is_end,
                        const struct sampler_probs *probs) {
    (void)j, (void)token, (void)is_end, (void)probs;
    n_neighbour++;
    return true;
}

/* 300 pages of 3 ms: without a bound a step a neighbour would get one token in that second. */
static void neighbours_go_on_while_a_state_is_restored(void **state) {
    (void)state;
    struct engine_params p = cached(2, 1 << 20, (uint64_t)1 << 30);
    struct engine *g = fake_engine_with(&p, 1 << 20, 3000, 1000);
    struct talk *t = talk_new(1, 19300, VOCAB);
    struct err e = {0};
    const int32_t prompt[] = {1, 2, 3};
    _Atomic bool over = false;
    struct engine_job other = {.p.prompt = prompt,
                               .p.n_prompt = 3,
                               .p.max_tokens = 100000,
                               .on_token = count_token,
                               .ud = (void *)&over};
    turn(g, t, 1, 10);
    sampler_defaults(&other.p.sampling);
    other.p.sampling.ignore_eos = true;
    other.on_done = checkpoint_over;
    n_neighbour = 0;
    assert_int_equal(engine_submit(g, &other, &e), 0);
    while (!n_neighbour) usleep(1000);
    int32_t before = n_neighbour;
    turn(g, t, 1, 10);
    int32_t n = n_neighbour - before;
    assert_true(t->n_cached >= 19200);
    if (n < 25) fail_msg("%d tokens beside a second of restoring", n);
    engine_cancel(g, &other);
    while (!over) usleep(1000);
    /* and who leaves meanwhile gives its place back */
    for (int i = 0; i < 3; i++) {
        struct engine_job gone = {.p.prompt = t->tokens,
                                  .p.n_prompt = t->n,
                                  .p.max_tokens = 100,
                                  .on_token = count_token,
                                  .on_done = checkpoint_over,
                                  .ud = (void *)&over};
        over = false;
        other.ud = (void *)&over;
        sampler_defaults(&gone.p.sampling);
        n_neighbour = 0;
        other.on_done = no_matter;
        assert_int_equal(engine_submit(g, &other, &e), 0);
        while (!n_neighbour) usleep(1000);
        assert_int_equal(engine_submit(g, &gone, &e), 0);
        usleep(100000);
        engine_cancel(g, &gone);
        while (!over) usleep(1000);
        over = false;
        other.on_done = checkpoint_over;
        engine_cancel(g, &other);
        while (!over) usleep(1000);
    }
    turn(g, t, 1, 10);
    assert_true(t->n_cached >= 19200);
    talk_free(t);
    engine_free(g);
}

static void switching_conversations_costs_no_prefill(void **state) {
    (void)state;
    struct engine_params p = cached(1, 1024, (uint64_t)1 << 28);
    struct engine *g = nano_engine(&p);
    struct talk *t[3];
    for (int i = 0; i < 3; i++) {
        t[i] = talk_new((uint64_t)i, 800, nano.n_vocab);
        turn(g, t[i], 20, 30);
    }
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 3; i++) {
            int32_t n_known = t[i]->n - 30;
            turn(g, t[i], 20, 30);
            assert_in_range(t[i]->n_cached, n_known - 1 - 63, n_known);
        }
    for (int i = 0; i < 3; i++) talk_free(t[i]);
    engine_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_seen_before_costs_its_last_block),
        cmocka_unit_test(every_turn_evaluates_only_what_is_new),
        cmocka_unit_test(hints_make_places_to_branch),
        cmocka_unit_test(texts_are_those_of_a_fresh_evaluation),
        cmocka_unit_test(budgets_hold_and_files_extend_them),
        cmocka_unit_test(states_survive_a_restart_unless_damaged),
        cmocka_unit_test(the_folder_of_states_may_go_away),
        cmocka_unit_test(files_have_a_budget_too),
        cmocka_unit_test(scopes_and_owners_are_kept_apart),
        cmocka_unit_test(kill_9_leaves_states_that_open),
        cmocka_unit_test(restored_equals_uninterrupted_bit_for_bit),
        cmocka_unit_test(greedy_texts_of_100_conversations),
        cmocka_unit_test(neighbours_go_on_while_a_state_is_restored),
        cmocka_unit_test(switching_conversations_costs_no_prefill),
        cmocka_unit_test(branches_evaluate_their_prompt_once),
        cmocka_unit_test(a_branch_that_leaves_hands_over),
        cmocka_unit_test(an_answers_end_is_a_place_to_branch),
        cmocka_unit_test(nano_branches_where_it_stopped),
    };
    return cmocka_run_group_tests(tests, open_nano, close_nano);
}
