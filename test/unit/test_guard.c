/* test_guard.c: no step of the engine allocates: the guard trips where one does, and decoding in all its
 * ways, over a real model, runs under it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/pool.h"
#include "engine/lm.h"
#include "kernels/cpu/cpu.h"
#include "model/vocab.h"
#include "text/grammar/grammar_mask.h"

enum { N_JOB = 6, N_TOKEN = 30, N_LONG = 1010 };

static bool go_on(struct engine_job *j, int32_t token, bool is_end,
                  const struct sampler_probs *probs) {
    (void)token, (void)is_end, (void)probs;
    mem_free(mem_alloc(10)); /* callbacks may */
    int32_t *n = j->ud;
    return ++*n < N_TOKEN;
}
static void ended(struct engine_job *j) { mem_free(mem_alloc((size_t)j->p.n_prompt)); }

/* ---- the guard trips ---- */

static const struct lm_ops *real_ops;
static int leaky_run(struct lm *l, const struct batch_item *runs, int32_t n_run,
                     const float **logits, struct err *e) {
    mem_free(mem_alloc(1));
    return real_ops->run(l, runs, n_run, logits, e);
}

static void run_leaky(void) {
    static const int32_t prompt[] = {1, 2, 3};
    const struct lm_fake_params fp = {.n_vocab = 10, .n_ctx = 64, .n_seq = 1};
    struct lm *lm;
    struct engine *g;
    struct engine_params p;
    int32_t n = 0;
    struct engine_job j = {.p.prompt = prompt,
                           .p.n_prompt = 3,
                           .p.max_tokens = 4,
                           .on_token = go_on,
                           .on_done = ended,
                           .ud = &n};
    engine_defaults(&p);
    p.n_ctx = 64;
    sampler_defaults(&j.p.sampling);
    if (lm_open_fake(&lm, &fp, NULL)) return;
    real_ops = lm->ops;
    struct lm_ops leaky = *lm->ops;
    leaky.run = leaky_run;
    lm->ops = &leaky;
    if (engine_new_over(&g, lm, NULL, &p, NULL)) return;
    engine_run(g, &j, NULL);
    engine_free(g);
}

static void leaky_worker(void *arg, int ith, int n_thread) {
    (void)arg, (void)n_thread;
    if (ith == 1) mem_free(mem_alloc(1));
}
static void run_leaky_worker(void) {
    struct pool *p = pool_new(2);
    mem_guard_begin();
    pool_run(p, leaky_worker, NULL);
    mem_guard_end();
    pool_free(p);
}

/* How a child that runs fn ended: the signal, or 0. */
static int signal_of(void (*fn)(void), bool armed) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(3);
        mem_guard_arm(armed);
        fn();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status)) return WTERMSIG(status);
    assert_int_equal(WEXITSTATUS(status), 0);
    return 0;
}

static void an_allocation_in_a_step_aborts(void **state) {
    (void)state;
    assert_int_equal(signal_of(run_leaky, true), SIGABRT);
    assert_int_equal(signal_of(run_leaky, false), 0);
    assert_int_equal(signal_of(run_leaky_worker, true), SIGABRT);
    assert_int_equal(signal_of(run_leaky_worker, false), 0);
}

/* ---- decoding does not ---- */

static struct {
    struct dev *dev;
    struct model *m;
    struct tok *tok;
    int32_t *ids;
    size_t n_ids;
    int32_t longer
        [N_LONG]; /* decoding soon needs more than the 16 pages that a page table begins with */
} nano;

static int open_nano(void **state) {
    (void)state;
    struct err e = {0};
    static const char text[] = "The cat sat on the mat. The dog sat on the mat. The cat sat on the";
    if (cpu_open(&nano.dev, 2, CPU_ISA_BEST, &e) ||
        model_open(&nano.m, TEST_NANO, nano.dev, true, &e) ||
        vocab_load(&nano.tok, nano.m->gguf, &e) ||
        tok_encode(nano.tok, text, sizeof text - 1, false, false, &nano.ids, &nano.n_ids, &e)) {
        print_error("%s\n", e.text);
        return 1;
    }
    for (size_t i = 0; i < N_LONG; i++) nano.longer[i] = nano.ids[i % nano.n_ids];
    return 0;
}

static int close_nano(void **state) {
    (void)state;
    mem_free(nano.ids);
    tok_free(nano.tok);
    model_close(nano.m);
    nano.dev->ops->close(nano.dev);
    return 0;
}

/* Every processor and filter is switched on by one of the jobs. */
static void set_sampling(struct sampler_params *p, int kind, struct grammar_matcher *matcher) {
    static const struct logit_bias bias = {7, -2};
    sampler_defaults(p);
    p->seed = (uint64_t)kind;
    p->ignore_eos = true;
    switch (kind) {
    case 0: p->temperature = 0; break;
    case 1:
        p->repeat_penalty = 1.1f;
        p->dry_multiplier = 0.5f;
        p->bias = &bias;
        p->n_bias = 1;
        p->n_probs = 5;
        break;
    case 2:
        p->typical_p = 0.9f;
        p->min_p = 0.01f;
        p->xtc_probability = 0.5f;
        p->dynatemp_range = 0.3f;
        break;
    case 3: p->mirostat = 1; break;
    case 4:
        p->mirostat = 2;
        p->top_n_sigma = 2;
        break;
    case 5:
        p->grammar = matcher;
        p->ignore_eos = false;
        p->temperature = 1;
        break;
    }
}

static void decode(bool speculate, int32_t n_seq, struct grammar_matcher *matcher) {
    struct engine_params p;
    struct engine *g;
    struct err e = {0};
    engine_defaults(&p);
    p.n_seq = n_seq;
    p.n_ctx = 4096;
    p.n_ctx_seq = 1536;
    p.n_batch = 64;
    p.speculate = speculate;
    if (engine_new(&g, nano.m, nano.tok, &p, &e)) fail_msg("%s", e.text);
    struct engine_job jobs[N_JOB];
    int32_t n[N_JOB] = {0};
    for (int i = 0; i < N_JOB; i++) {
        jobs[i] = (struct engine_job){.p.prompt = nano.ids,
                                      .p.n_prompt = (int32_t)nano.n_ids,
                                      .on_token = go_on,
                                      .on_done = ended,
                                      .ud = &n[i]};
        set_sampling(&jobs[i].p.sampling, i, matcher);
        if (i == 0) jobs[i].p.prompt = nano.longer, jobs[i].p.n_prompt = N_LONG;
        if (engine_run(g, &jobs[i], &e)) fail_msg("%s", e.text);
        assert_int_equal(jobs[i].finish, FINISH_STOP);
    }
    for (int i = 0; i < N_JOB; i++) { /* and all together */
        n[i] = 0;
        if (engine_submit(g, &jobs[i], &e)) fail_msg("%s", e.text);
    }
    struct engine_job last = {.p.prompt = nano.ids,
                              .p.n_prompt = 5,
                              .p.max_tokens = 2,
                              .on_token = go_on,
                              .on_done = ended,
                              .ud = &(int32_t){0}};
    sampler_defaults(&last.p.sampling);
    for (int i = 0; i < N_JOB; i++)
        while (((volatile struct engine_job *)&jobs[i])->finish == FINISH_NONE)
            engine_run(g, &last, &e);
    struct engine_totals t;
    engine_totals(g, &t);
    if (speculate) assert_true(t.n_accepted > 0);
    engine_free(g);
}

static void decoding_allocates_nothing(void **state) {
    (void)state;
    struct err e = {0};
    struct grammar *grammar;
    struct grammar_vocab *vocab;
    struct grammar_matcher *matcher;
    static const char schema[] =
        "{\"type\":\"array\",\"items\":{\"type\":\"object\"},\"minItems\":2}";
    if (grammar_from_schema(&grammar, schema, sizeof schema - 1, NULL, &e)) fail_msg("%s", e.text);
    if (grammar_vocab_from_tok(&vocab, nano.tok, NULL, &e)) fail_msg("%s", e.text);
    if (grammar_matcher_new(&matcher, grammar, vocab, 0, &e)) fail_msg("%s", e.text);
    mem_guard_arm(true);
    decode(false, 4, matcher);
    decode(true, 1, matcher);
    decode(true, 4, matcher);
    mem_guard_arm(false);
    grammar_matcher_free(matcher);
    grammar_vocab_free(vocab);
    grammar_free(grammar);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_allocation_in_a_step_aborts),
        cmocka_unit_test_setup_teardown(decoding_allocates_nothing, open_nano, close_nano),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
