/* hub_args.h: models named hf:OWNER/REPO[:FILE or TYPE], for every command that takes -m. */
#ifndef CHIMERE_CLI_HUB_ARGS_H
#define CHIMERE_CLI_HUB_ARGS_H

#include "cli/cli.h"

/* The table that cli_parse adds where a command has the option "model". */
extern const struct cfg_opt hub_options[];

/* The file behind a name that begins with "hf:": one that is there, else it is fetched, with a bar on
 * standard error. update: asks the hub also where there is one. parts: connections at once, 0: 4. */
int hub_args_path(const struct cfg *c, const char *name, bool update, int parts, char *out,
                  size_t out_size, struct err *e);

/* The same without a network: CHIMERE_ENOENT if the file is not on this machine. */
int hub_args_local(const struct cfg *c, const char *name, char *out, size_t out_size,
                   struct err *e);

#endif
