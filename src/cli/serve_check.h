/* serve_check.h: serve --check: what the server would refuse at its start, without starting. */
#ifndef CHIMERE_CLI_SERVE_CHECK_H
#define CHIMERE_CLI_SERVE_CHECK_H

#include "engine/load.h"
#include "serve/serve.h"
#include "cli/cli.h"

/* Prints every problem that it finds to standard error, else one line to standard output. Headers of model
 * files are read, weights are not; nothing is written, fetched or started. p: as for serve_open, without
 * models; n_seq: as for chat_rig_load. Returns the exit status: 0, or that of the first problem. */
int serve_check_all(const struct cfg *c, const struct serve_params *p, int32_t n_seq);

#endif
