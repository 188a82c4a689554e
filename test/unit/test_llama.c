/* test_llama.c: the engine over an object that plays libllama (llama_fake.c): sequences, kept states, drafts, adapters,
 * its process, failures. What it must answer follows from each job's tokens alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "engine/load.h"
#include "engine/vision.h"
#include "llama/llama_lib.h"
#include "llama/llama_process.h"
#include "model/lora.h"
#include "llama_fake.h"
#include "scratch.h"
#include "store/store.h"

enum { MAX_TOKENS = 400, N_JOB = 12 };

struct talk {
    struct engine_job job;
    int32_t tokens[2 * MAX_TOKENS]; /* prompt, then answer */
    int32_t n_prompt, n, n_told;
    _Atomic bool is_done, is_held; /* held: at its next token */
    _Atomic bool is_speaking;
};

static bool on_token(struct engine_job *j, int32_t token, bool is_end,
                     const struct sampler_probs *probs) {
    struct talk *t = j->ud;
    (void)is_end, (void)probs;
    t->is_speaking = true;
    while (t->is_held) usleep(500);
    if (t->n_prompt + t->n < 2 * MAX_TOKENS) t->tokens[t->n_prompt + t->n++] = token;
    return true;
}

static void on_done(struct engine_job *j) { ((struct talk *)j->ud)->is_done = true; }

/* A prompt of n tokens; those with one seed share what they have. */
static void prepare(struct talk *t, int32_t n, int seed, int32_t n_more) {
    *t = (struct talk){.n_prompt = n};
    for (int32_t i = 0; i < n; i++) t->tokens[i] = 200 + (i * 37 + seed * 101) % 1000;
    t->job.p.prompt = t->tokens;
    t->job.p.n_prompt = n;
    t->job.p.max_tokens = n_more;
    sampler_defaults(&t->job.p.sampling);
    t->job.p.sampling.temperature = 0;
    t->job.p.sampling.ignore_eos = true;
    t->job.on_token = on_token;
    t->job.on_done = on_done;
    t->job.ud = t;
}

static void check(const struct talk *t, int32_t n_more, int shift) {
    assert_int_equal(t->job.finish, FINISH_LENGTH);
    assert_int_equal(t->n, n_more);
    for (int32_t i = 0; i < t->n; i++)
        assert_int_equal(t->tokens[t->n_prompt + i],
                         fake_next(t->tokens, t->n_prompt + i, FAKE_VOCAB) + shift);
}

static void submit(struct loaded *l, struct talk *t) {
    struct err e = {0};
    if (engine_submit(l->engine, &t->job, &e)) fail_msg("%s", e.text);
}

static void await(struct talk *t) {
    while (!t->is_done) usleep(500);
}

static void defaults(struct load_params *p, bool recurrent, bool process) {
    load_defaults(p);
    p->path = TEST_NANO;
    p->backend = LOAD_LLAMA;
    p->llama_library = TEST_FAKE;
    p->llama_process = process;
    p->n_gpu_layers = recurrent ? FAKE_RECURRENT : 0;
    p->n_thread = 1;
    p->quiet = true;
    p->plan.n_seq = 4;
    p->plan.n_ctx = 512;
    p->plan.full_ctx = true;
}

static void open_it(struct loaded *l, const struct load_params *p) {
    struct err e = {0};
    if (load_open(l, p, &e)) fail_msg("%s", e.text);
    assert_null(l->model);
    assert_int_equal(tok_n_vocab(l->tok), FAKE_VOCAB);
}

/* Twelve jobs over four slots, prompts of many lengths, some with a common beginning; three rounds, so that states are
 * kept, leave the context for the host, return, and branch. */
static void mix(struct loaded *l, int64_t *n_cached, int64_t *n_drafted) {
    static struct talk t[N_JOB];
    *n_cached = *n_drafted = 0;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N_JOB; i++) {
            prepare(&t[i], 40 + i % 5 * 67, i % 7, 20 + i);
            submit(l, &t[i]);
        }
        for (int i = 0; i < N_JOB; i++) {
            await(&t[i]);
            check(&t[i], 20 + i, 0);
            *n_cached += t[i].job.stats.n_cached;
            *n_drafted += t[i].job.stats.n_drafted;
        }
    }
}

static void run_mix(bool recurrent, bool process) {
    struct load_params p;
    struct loaded l;
    struct engine_totals totals;
    int64_t n_cached, n_drafted;
    defaults(&p, recurrent, process);
    open_it(&l, &p);
    mix(&l, &n_cached, &n_drafted);
    assert_true(n_cached > 1000);
    if (recurrent) assert_int_equal(n_drafted, 0); /* it cannot forget what was refused */
    else assert_true(n_drafted > 0);
    do engine_totals(l.engine, &totals);
    while (totals.n_active && usleep(500) == 0);
    assert_true(totals.state_bytes > 0);
    load_close(&l);
}

static void test_attention(void **state) {
    (void)state;
    run_mix(false, false);
}
static void test_recurrent(void **state) {
    (void)state;
    run_mix(true, false);
}
static void test_process(void **state) {
    (void)state;
    run_mix(false, true);
    run_mix(true, true);
}

static void test_files(void **state) {
    (void)state;
    char path[64], states[64];
    struct err e = {0};
    struct store *store;
    struct talk t;
    snprintf(path, sizeof path, "%s/db", scratch);
    snprintf(states, sizeof states, "%s/states", scratch);
    for (int round = 0; round < 2; round++) {
        struct load_params p;
        struct loaded l;
        assert_int_equal(store_open(&store, path, &e), 0);
        defaults(&p, false, false);
        p.plan.engine.cache.dir = states;
        p.plan.engine.cache.store = store;
        p.plan.engine.cache.disk_bytes = 1 << 30;
        open_it(&l, &p);
        prepare(&t, 300, 3, 20);
        submit(&l, &t);
        await(&t);
        check(&t, 20, 0);
        if (round) assert_true(t.job.stats.n_cached >= 192);
        else assert_int_equal(t.job.stats.n_cached, 0);
        load_close(&l);
        store_close(store);
    }
}

/* With an adapter, with twice of it, and without: in the same steps, in batches of their own. */
static void test_adapters(void **state) {
    (void)state;
    struct load_params p;
    struct loaded l;
    static struct talk t[3];
    const char *const loras[] = {TEST_NANO
                                 ":1"}; /* any file of the format: the object reads none */
    defaults(&p, false, false);
    p.loras = loras;
    p.n_lora = 1;
    open_it(&l, &p);
    assert_int_equal(l.n_lora, 1);
    const struct lora_use uses[3] = {l.loras[0], {l.loras[0].lora, 2}, {NULL, 0}};
    for (int i = 0; i < 3; i++) {
        prepare(&t[i], 150, 4, 24);
        t[i].job.p.loras = &uses[i];
        t[i].job.p.n_lora = i < 2;
        submit(&l, &t[i]);
    }
    for (int i = 0; i < 3; i++) {
        await(&t[i]);
        check(&t[i], 24, i == 2 ? 0 : (i + 1) * FAKE_LORA_SHIFT);
        assert_int_equal(t[i].job.stats.n_cached, 0); /* no state is shared between them */
    }
    load_close(&l);
}

static void on_prompt(struct engine_job *j, int32_t pos, const struct sampler_probs *probs) {
    struct talk *t = j->ud;
    t->n_told += pos == t->n_told;
    if (!pos) return;
    assert_int_equal(probs->n, 1);
    assert_int_equal(probs->ids[0], fake_next(t->tokens, pos, FAKE_VOCAB));
}

/* Rows of a prompt beside rows of answers: never more than libllama was promised. */
static void test_prompt_rows(void **state) {
    for (int recurrent = 0; recurrent < 2; recurrent++) {
        struct load_params p;
        struct loaded l;
        static struct talk t[4];
        (void)state;
        defaults(&p, recurrent, false);
        open_it(&l, &p);
        for (int i = 0; i < 4; i++) {
            prepare(&t[i], 90 + i, i, 30);
            t[i].job.p.prompt_probs = t[i].job.p.no_cache = i % 2;
            t[i].job.p.sampling.n_probs = i % 2;
            t[i].job.on_prompt = on_prompt;
            submit(&l, &t[i]);
        }
        for (int i = 0; i < 4; i++) {
            await(&t[i]);
            check(&t[i], 30, 0);
            assert_int_equal(t[i].n_told, i % 2 ? t[i].n_prompt : 0);
        }
        load_close(&l);
    }
}

/* A run that fails ends its jobs with the sentence, and nothing else. */
static void test_failure(void **state) {
    (void)state;
    struct load_params p;
    struct loaded l;
    struct talk bad, good;
    defaults(&p, false, false);
    open_it(&l, &p);
    prepare(&bad, 100, 1, 10);
    bad.tokens[50] = FAKE_FAIL;
    submit(&l, &bad);
    await(&bad);
    assert_int_equal(bad.job.finish, FINISH_ERROR);
    assert_string_equal(bad.job.err.text, "it was told to fail");
    prepare(&good, 100, 1, 10);
    submit(&l, &good);
    await(&good);
    check(&good, 10, 0);
    load_close(&l);
}

/* An abort ends the process and the answers in it; the next request starts another, which knows no kept state. */
static void test_abort(void **state) {
    (void)state;
    struct load_params p;
    struct loaded l;
    static struct talk first, bad, beside, after[2];
    defaults(&p, false, true);
    open_it(&l, &p);
    prepare(&first, 200, 2, 10);
    submit(&l, &first);
    await(&first);
    check(&first, 10, 0);
    prepare(&beside, 100, 3, 300);
    beside.is_held = true; /* or it might end before the other one comes */
    submit(&l, &beside);
    while (!beside.is_speaking) usleep(500);
    prepare(&bad, 100, 1, 10);
    bad.tokens[99] = FAKE_ABORT;
    submit(&l, &bad);
    beside.is_held = false;
    await(&bad);
    await(&beside);
    assert_int_equal(bad.job.finish, FINISH_ERROR);
    assert_int_equal(beside.job.finish, FINISH_ERROR);
    assert_non_null(strstr(bad.job.err.text, "was ended by signal 6 (Aborted): told to abort"));
    for (int i = 0; i < 2; i++) {
        prepare(&after[i], 200, 2, 10);
        submit(&l, &after[i]);
        await(&after[i]);
        check(&after[i], 10, 0);
    }
    assert_int_equal(after[0].job.stats.n_cached,
                     0); /* the first one's state went with the process */
    assert_true(after[1].job.stats.n_cached >= 128);
    load_close(&l);
}

/* ---- images ---- */

/* The head of a PNG file of 8 by 8 pixels, and what the fake library reads after it. */
static size_t picture(unsigned char *out, char kind, int n_row, int seed) {
    static const unsigned char head[FAKE_PICTURE_AT] = {
        0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n', 0, 0, 0, 13, 'I',
        'H',  'D', 'R', 0,   0,    0,    8,    0,    0, 0, 8, 8,  2};
    memcpy(out, head, sizeof head);
    out[FAKE_PICTURE_AT] = (unsigned char)kind;
    out[FAKE_PICTURE_AT + 1] = (unsigned char)n_row;
    out[FAKE_PICTURE_AT + 2] = (unsigned char)seed;
    return FAKE_PICTURE_AT + 3;
}

struct sight {
    struct talk talk;
    int32_t ids[MAX_TOKENS];
    struct job_image run;
    const struct vision_image *image;
};

/* 100 tokens, a picture, 10 tokens. */
static void look(struct loaded *l, struct sight *s, char kind, int n_row, int seed) {
    enum { N_BEFORE = 100, N_AFTER = 10 };
    unsigned char file[64];
    struct err e = {0};
    struct talk *t = &s->talk;
    prepare(t, N_BEFORE + n_row + 2 + N_AFTER, 1, 12);
    if (vision_open(l->vision, file, picture(file, kind, n_row, seed), &s->image, &e))
        fail_msg("%s", e.text);
    assert_int_equal(s->image->n_tok, n_row + 2);
    assert_int_equal(s->image->n_run, 1);
    memcpy(s->ids, t->tokens, sizeof s->ids);
    memcpy(s->ids + N_BEFORE, s->image->ids, (size_t)s->image->n_tok * sizeof *s->ids);
    for (int32_t i = 0; i < t->n_prompt; i++) assert_in_range(s->ids[i], 0, FAKE_VOCAB - 1);
    int32_t *seen = t->tokens + N_BEFORE;
    seen[0] = 300;
    for (int32_t r = 0; r < n_row; r++) seen[1 + r] = fake_row(seed, r);
    seen[1 + n_row] = 301;
    s->run = s->image->runs[0];
    s->run.at += N_BEFORE;
    t->job.p.prompt = s->ids;
    t->job.p.images = &s->run;
    t->job.p.n_image = 1;
    submit(l, t);
}

static void finish(struct loaded *l, struct sight *s, int32_t least, int32_t most) {
    await(&s->talk);
    if (s->talk.job.finish == FINISH_ERROR) fail_msg("%s", s->talk.job.err.text);
    check(&s->talk, 12, 0);
    assert_in_range(s->talk.job.stats.n_cached, least, most);
    vision_close(l->vision, s->image);
}

/* Rows reach libllama one image at a time, whole ones at once; states are shared by prompts with the same image alone. */
static void test_images(void **state) {
    (void)state;
    for (int process = 0; process < 2; process++) {
        struct load_params p;
        struct loaded l;
        static struct sight s[4];
        struct err e = {0};
        defaults(&p, false, process);
        p.mmproj = TEST_NANO; /* any file of the format */
        open_it(&l, &p);
        look(&l, &s[0], 'c', 130, 1);
        finish(&l, &s[0], 0, 0);
        look(&l, &s[0], 'c', 130, 1);
        look(&l, &s[1], 'c', 130, 2);
        look(&l, &s[2], 'w', 90, 3);
        look(&l, &s[3], 'w', 90, 3);
        finish(&l, &s[0], 192, 241);
        finish(&l, &s[1], 0, 100);
        finish(&l, &s[2], 0, 100);
        finish(&l, &s[3], 0, 201);
        look(&l, &s[3], 'w', 90, 3);
        finish(&l, &s[3], 128, 201);
        unsigned char file[64];
        size_t n = picture(file, 'w', FAKE_ROW_MAX + 1, 1);
        assert_int_equal(vision_open(l.vision, file, n, &s[0].image, &e), CHIMERE_ELIMIT);
        assert_non_null(strstr(e.text, "at most 100 rows that attend to each other, got 101"));
        load_close(&l);
    }
}

/* An abort while an image is decoded ends the process and leaves the sentence; rows that the parent has outlive it. */
static void test_image_abort(void **state) {
    (void)state;
    struct load_params p;
    struct loaded l;
    static struct sight before, after;
    const struct vision_image *image;
    unsigned char file[64];
    struct err e = {0};
    defaults(&p, false, true);
    p.mmproj = TEST_NANO;
    open_it(&l, &p);
    look(&l, &before, 'c', 50, 1);
    finish(&l, &before, 0, 0);
    assert_int_equal(vision_open(l.vision, file, picture(file, 'A', 5, 1), &image, &e),
                     CHIMERE_EDEVICE);
    assert_non_null(strstr(e.text, "was ended by signal 6 (Aborted): told to abort"));
    look(&l, &after, 'c', 50, 1);
    finish(&l, &after, 0, 0);
    look(&l, &after, 'c', 60, 2);
    finish(&l, &after, 0, 100);
    load_close(&l);
}

static void test_image_checks(void **state) {
    (void)state;
    unsigned char file[64];
    struct err e = {0};
    size_t n = picture(file, 'c', 5, 1);
    assert_int_equal(vision_check(file, n, &e), 0);
    assert_int_equal(vision_check("text", 4, &e), CHIMERE_EUNSUPPORTED);
    assert_string_equal(e.text, "expected a PNG, JPEG, GIF or BMP image, got something else");
    assert_int_equal(vision_check("RIFF....WEBPVP8 ", 16, &e), CHIMERE_EUNSUPPORTED);
    assert_string_equal(e.text, "expected a PNG, JPEG, GIF or BMP image, got WebP");
    file[16] = 1; /* 2^24 + 8 pixels wide */
    assert_int_equal(vision_check(file, n, &e), CHIMERE_ELIMIT);
    assert_non_null(strstr(e.text, "got 16777224 x 8"));
    assert_int_equal(vision_check(file, 20, &e), CHIMERE_EINVAL);
    assert_string_equal(e.text, "the head of the PNG image is damaged");
}

/* What images are seen with counts in the plan, and is refused before libllama reads it. */
static void test_mmproj(void **state) {
    (void)state;
    struct load_params p;
    struct memory_plan without, with;
    struct err e = {0};
    defaults(&p, false, false);
    assert_int_equal(load_check(&p, &without, &e), 0);
    p.mmproj = TEST_NANO;
    assert_int_equal(load_check(&p, &with, &e), 0);
    assert_true(with.total_bytes > without.total_bytes + (8 << 20));
    p.plan.budget_bytes = without.total_bytes + (8 << 20);
    assert_int_equal(load_check(&p, &with, &e), CHIMERE_ELIMIT);
    p.plan.budget_bytes = 0;
    p.mmproj = "no-such.gguf";
    assert_int_not_equal(load_check(&p, &with, &e), 0);
    assert_non_null(strstr(e.text, "--mmproj: no-such.gguf"));
    p.mmproj = TEST_NANO;
    p.backend = LOAD_OWN;
    assert_int_equal(load_check(&p, &with, &e), CHIMERE_EINVAL);
}

static void test_memory_short(void **state) {
    (void)state;
    struct load_params p;
    struct loaded l;
    struct err e = {0};
    int n_failed = 0;
    defaults(&p, false, false);
    p.mmproj = TEST_NANO;
    for (int nth = 1; nth < 4000; nth = nth < 200 ? nth + 1 : nth + 97) {
        mem_fail_nth(nth);
        int rc = load_open(&l, &p, &e);
        mem_fail_nth(0);
        n_failed += rc != 0;
        if (rc) assert_true(e.text[0] != 0);
        else load_close(&l);
    }
    assert_true(n_failed > 20);
}

static void test_libraries(void **state) {
    (void)state;
    const struct llama_shim *shim;
    struct err e = {0};
    /* before a right one is loaded: the first that is stays */
    assert_int_equal(llama_lib_open(&shim, "no-such.so", NULL, &e), CHIMERE_ENOENT);
    assert_string_equal(e.text, "no-such.so: no such library");
    assert_int_equal(llama_lib_open(&shim, TEST_NANO, NULL, &e), CHIMERE_EUNSUPPORTED);
    assert_non_null(strstr(e.text, "cannot be loaded"));
    assert_int_equal(llama_lib_open(&shim, TEST_FAKE_OTHER, NULL, &e), CHIMERE_EUNSUPPORTED);
    assert_non_null(strstr(e.text, "expected version 2, got 99"));
    assert_int_equal(llama_lib_open(&shim, TEST_FAKE, NULL, &e), 0);
    assert_string_equal(shim->library(), "libfake 1");
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_libraries), cmocka_unit_test(test_attention),
        cmocka_unit_test(test_recurrent), cmocka_unit_test(test_process),
        cmocka_unit_test(test_files),     cmocka_unit_test(test_failure),
        cmocka_unit_test(test_abort),     cmocka_unit_test(test_memory_short),
        cmocka_unit_test(test_adapters),  cmocka_unit_test(test_prompt_rows),
        cmocka_unit_test(test_images),    cmocka_unit_test(test_image_abort),
        cmocka_unit_test(test_mmproj),    cmocka_unit_test(test_image_checks),
    };
    if (argc > 1 && strcmp(argv[1], LLAMA_WORKER_COMMAND) == 0) return llama_worker();
    mem_guard_arm(true);
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
