#include "cli/eval_code.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/rng.h"
#include "strategy/strategy_check.h"
#include "tools/sandbox.h"

#define PYTHON "/usr/bin/python3"

enum { MAX_PROGRAM = 1 << 20, MAX_OUTPUT = 64 << 10 };

/* Appends the tests and a statement that prints a random mark. A program that ends before its tests cannot print
 * the mark, because it does not know it. */
static int write_program(struct buf *out, const json_t *item, struct slice program,
                         const char *mark) {
    const char *tests = json_string_value(json_object_get(json_object_get(item, "check"), "tests"));
    return buf_put(out, program.p, program.n) || buf_put(out, "\n\n", 2) ||
           buf_put(out, tests, strlen(tests)) || buf_put(out, "\nprint('", 8) ||
           buf_put(out, mark, strlen(mark)) || buf_put(out, "')\n", 3);
}

int eval_code_judge(const json_t *item, const char *text, size_t n, bool *right, struct err *e) {
    static const char *const argv[] = {PYTHON, "-I", "-", NULL};
    struct buf program, output;
    struct sandbox_result r;
    char mark[40];
    *right = false;
    if (!file_exists(PYTHON))
        return err_set(e, CHIMERE_ENOENT, PYTHON ": not installed; the tests of programs need it");
    snprintf(mark, sizeof mark, "passed-%016" PRIx64, rng_entropy());
    buf_init(&program, MAX_PROGRAM);
    buf_init(&output, MAX_OUTPUT);
    struct sandbox_job job = {.argv = argv, .least = SANDBOX_FILTERED};
    sandbox_defaults(&job.limits);
    /* a program of more than a megabyte is a wrong answer, not an error */
    int rc = 0;
    if (!write_program(&program, item, strategy_program(text, n), mark)) {
        job.input = program.p;
        job.n_input = program.n;
        rc = sandbox_run(&job, &output, &r, e);
        *right = !rc && r.status == 0 && !r.timed_out && output.n &&
                 memmem(output.p, output.n, mark, strlen(mark)) != NULL;
    }
    buf_fini(&program);
    buf_fini(&output);
    return rc;
}
