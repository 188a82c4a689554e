/* eval_remote.h: answers items of an evaluation with a running server that has OpenAI's API, greedily. */
#ifndef CHIMERE_CLI_EVAL_REMOTE_H
#define CHIMERE_CLI_EVAL_REMOTE_H

#include "cli/args/remote_args.h"
#include "eval/harness.h"

struct eval_remote {
    struct remote remote;
};

/* Resolves --url and --url-model; sends at most one request. */
int eval_remote_open(struct eval_remote *x, const struct cfg *c, struct err *e);
/* Like eval_host.answer; ud: the struct. Any number of threads. Tool calls are written in the form that the rules
 * of eval/README.md parse, whatever form the model uses for them. */
int eval_remote_answer(void *ud, const json_t *item, size_t index, struct eval_answer *out,
                       struct err *e);

#endif
