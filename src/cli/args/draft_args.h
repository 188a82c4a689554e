/* draft_args.h: --draft with a Hugging Face folder, for the commands that answer. */
#ifndef CHIMERE_CLI_DRAFT_ARGS_H
#define CHIMERE_CLI_DRAFT_ARGS_H

#include "cli/cli.h"

/* If --draft names a folder or hf:OWNER/REPO, replaces it by a GGUF file in the folder of models, which is converted
 * unless it is there. The file's name contains a hash of config.json and of both ends of every tensor. */
int draft_args_take(struct cfg *c, struct err *e);

#endif
