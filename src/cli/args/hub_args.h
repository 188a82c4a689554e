/* hub_args.h: models named hf:OWNER/REPO[:FILE or TYPE], for every command that takes -m. */
#ifndef CHIMERE_CLI_HUB_ARGS_H
#define CHIMERE_CLI_HUB_ARGS_H

#include "cli/cli.h"

/* The options that cli_parse adds if the command has the option "model". */
extern const struct cfg_opt hub_options[];

/* The folder in which fetched models lie. */
int hub_args_dir(const struct cfg *c, char dir[4096], struct err *e);

/* Returns the file for a name that begins with "hf:": an existing file, otherwise it is downloaded with a progress
 * bar on standard error. update: asks the hub even if the file exists. parts: concurrent connections, 0: 4. */
int hub_args_path(const struct cfg *c, const char *name, bool update, int parts, char *out,
                  size_t out_size, struct err *e);

/* The same for a checkpoint: downloads what is missing of it and returns its folder. */
int hub_args_checkpoint(const struct cfg *c, const char *name, char *out, size_t out_size,
                        struct err *e);

/* hub_args_path without network access: CHIMERE_ENOENT if the file is not on this machine. */
int hub_args_local(const struct cfg *c, const char *name, char *out, size_t out_size,
                   struct err *e);

#endif
