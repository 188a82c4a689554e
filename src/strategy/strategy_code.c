/* strategy_code.c: programs verified by unit tests, in the sandbox. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backend/call.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "strategy/strategy_budget.h"
#include "strategy/strategy_check.h"
#include "tools/sandbox.h"

#define PYTHON "/usr/bin/python3"

enum { MAX_PROGRAM = 1 << 20, MAX_OUTPUT = 64 << 10, TEST_TOKENS = 256 };

struct slice strategy_program(const char *text, size_t n) {
    struct slice best = {text, n};
    bool any = false, any_python = false;
    for (size_t at = 0; at + 3 <= n;) {
        const char *open = memmem(text + at, n - at, "```", 3);
        const char *line = open ? memchr(open, '\n', (size_t)(text + n - open)) : NULL;
        if (!line) break;
        bool is_python = (size_t)(line - open) >= 5 && !memcmp(open + 3, "py", 2);
        const char *close = memmem(line, (size_t)(text + n - line), "```", 3);
        const char *end = close ? close : text + n; /* no closing fence: the answer was cut */
        if (is_python || !any_python)
            best = (struct slice){line + 1, (size_t)(end - line - (end > line ? 1 : 0))};
        if (is_python) any_python = true;
        any = true;
        if (!close) break;
        at = (size_t)(close - text) + 3;
    }
    return any ? best : (struct slice){text, n};
}

int strategy_tests(const char *text, size_t n, struct slice tests[STRATEGY_MAX_TESTS]) {
    int n_test = 0;
    for (size_t at = 0; at < n && n_test < STRATEGY_MAX_TESTS;) {
        const char *line = text + at, *end = memchr(line, '\n', n - at);
        size_t len = end ? (size_t)(end - line) : n - at;
        at += len + 1;
        while (len && (*line == ' ' || *line == '`')) line++, len--;
        while (len && strchr(" `\r", line[len - 1])) len--;
        if (len > 7 && !strncmp(line, "assert ", 7) && !memchr(line, 0, len))
            tests[n_test++] = (struct slice){line, len};
    }
    return n_test;
}

/* Appends the tests. Each prints a random mark, which the program does not know, if it passes. */
static void put_tests(struct buf *b, const struct slice *tests, int n, const char *mark) {
    for (int i = 0; i < n; i++) {
        buf_puts(b, "\ntry:\n    ");
        buf_put(b, tests[i].p, tests[i].n);
        buf_printf(b, "\n    print('\\n%s')\nexcept Exception:\n    pass\n", mark);
    }
}

/* Returns the share of tests that a program passes; without tests: 1 if it runs. */
static int run_tests(const struct strategy_use *u, const struct candidate *c,
                     const struct slice *tests, int n, double *share, struct err *e) {
    static const char *const argv[] = {PYTHON, "-I", "-", NULL};
    struct buf program, output;
    struct sandbox_result r = {0};
    char mark[40];
    int n_pass = 0;
    struct slice code = strategy_program(c->content.n ? c->content.p : "", c->content.n);
    *share = 0;
    snprintf(mark, sizeof mark, "passed-%016" PRIx64, rng_entropy());
    buf_init(&program, MAX_PROGRAM);
    buf_init(&output, MAX_OUTPUT);
    buf_put(&program, code.p, code.n);
    put_tests(&program, tests, n, mark);
    struct sandbox_job job = {.argv = argv,
                              .input = program.p,
                              .n_input = program.n,
                              .cancelled = u->cancelled,
                              .deadline_ns = strategy_deadline(u),
                              .owner = u->request->owner,
                              .least = SANDBOX_FILTERED};
    sandbox_defaults(&job.limits);
    int rc = program.failed ? 0 : sandbox_run(&job, &output, &r, e);
    if (!rc && !program.failed) {
        for (const char *p = output.n ? output.p : ""; (p = strstr(p, mark)); p += strlen(mark))
            n_pass++;
        *share = n ? (double)(n_pass < n ? n_pass : n) / n : sandbox_succeeded(&r);
    }
    buf_fini(&program);
    buf_fini(&output);
    return rc;
}

/* Asks the model for tests. *text: owned, views of the tests point into it; NULL: none. */
static int write_tests(const struct strategy_use *u, const char *question,
                       struct strategy_result *r, char **text, struct slice *tests) {
    static const char system[] =
        "Write five Python assert statements that test the program that the user asks for, one per "
        "line. Use the names that the user gives. Write nothing else.";
    struct call_result out;
    int32_t left = strategy_left(u, r);
    *text = NULL;
    if (left <= 0 || strategy_over(u)) return 0;
    int rc = call_text(u->backend, u->request->scope, system, question, NULL,
                       left < TEST_TOKENS ? left : TEST_TOKENS, u->cancelled, strategy_deadline(u),
                       &out, NULL);
    strategy_count_check(r, &out.stats);
    if (!rc && out.content.n) *text = mem_strndup(out.content.p, out.content.n);
    call_fini(&out);
    return *text ? strategy_tests(*text, strlen(*text), tests) : 0;
}

int strategy_tested(const struct strategy_use *u, struct strategy_result *r, struct err *e) {
    int32_t n = u->strategy->n;
    struct slice tests[STRATEGY_MAX_TESTS];
    char *own = NULL;
    if (!file_exists(PYTHON))
        return err_set(e, CHIMERE_ENOENT, PYTHON ": not installed; the tests of programs need it");
    char *question = request_question(u->request->messages, &(bool){false});
    struct candidate *c = mem_alloc_array((size_t)n, sizeof *c);
    if (!question || !c) {
        mem_free(question);
        mem_free(c);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    int n_test = strategy_tests(question, strlen(question), tests);
    int rc = strategy_sample(u, c, n, r, e);
    if (!rc && !n_test) n_test = write_tests(u, question, r, &own, tests);
    /* programs that were not run before the deadline keep the neutral score */
    for (int32_t i = 0; i < n && !rc; i++) c[i].score = c[i].failed ? 0 : 0.5;
    for (int32_t i = 0; i < n && !rc && !strategy_over(u); i++)
        if (!c[i].failed) rc = run_tests(u, &c[i], tests, n_test, &c[i].score, e);
    if (rc == CHIMERE_ETIMEOUT || rc == CHIMERE_ECANCELLED) rc = 0;
    if (!rc) rc = strategy_give(u, c, n, strategy_pick(c, n), r, e);
    strategy_drop(c, n);
    mem_free(c);
    mem_free(own);
    mem_free(question);
    return rc;
}
