/* eval_code.h: judges an answer that contains a Python program by the tests of its item, in the sandbox. */
#ifndef CHIMERE_CLI_EVAL_CODE_H
#define CHIMERE_CLI_EVAL_CODE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

/* The program of an answer: its last fenced block of Python, or its last fenced block, or all of it. A view. */
struct slice eval_code_program(const char *text, size_t n);
/* As eval_host.judge. CHIMERE_ENOENT: no Python here; CHIMERE_EREFUSED: no sandbox here. */
int eval_code_judge(const json_t *item, const char *text, size_t n, bool *right, struct err *e);

#endif
