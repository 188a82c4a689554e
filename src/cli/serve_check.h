/* serve_check.h: serve --check: reports what the server would refuse at its start, without starting it. */
#ifndef CHIMERE_CLI_SERVE_CHECK_H
#define CHIMERE_CLI_SERVE_CHECK_H

#include "engine/load.h"
#include "serve/serve.h"
#include "cli/cli.h"

/* Prints every problem to standard error, or one line to standard output if there is none. Reads the headers of
 * model files but not the weights; does not write, download or start anything. p: as for serve_open, without
 * models; n_seq: as for chat_rig_load. Returns the exit status: 0, or that of the first problem. */
int serve_check_all(const struct cfg *c, const struct serve_params *p, int32_t n_seq);

#endif
