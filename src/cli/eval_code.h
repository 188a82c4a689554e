/* eval_code.h: judges an answer that contains a Python program, by running the item's tests in the sandbox. */
#ifndef CHIMERE_CLI_EVAL_CODE_H
#define CHIMERE_CLI_EVAL_CODE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

/* Like eval_host.judge. CHIMERE_ENOENT: Python is not installed; CHIMERE_EREFUSED: no sandbox is available. */
int eval_code_judge(const json_t *item, const char *text, size_t n, bool *right, struct err *e);

#endif
