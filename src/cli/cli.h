/* cli.h: the table of subcommands. Each cmd_*.c parses its own options with cfg_parse, prints results to standard
 * output and errors to standard error through cli_fail, and returns the exit status: 0 success, 1 the answer is no
 * or the input is invalid, 2 wrong usage. */
#ifndef CHIMERE_CLI_CLI_H
#define CHIMERE_CLI_CLI_H

#include "base/config.h"
#include "base/err.h"

struct cli_command {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
    const char *summary;
    const struct cfg_opt *options; /* the command's options, for doctor; may be NULL */
};

extern const struct cli_command cli_commands[]; /* ends with a NULL name */

/* Prints "chimere: TEXT" and the hint to standard error; returns the exit status for e->code. */
int cli_fail(const struct err *e);
/* Calls cfg_parse with one table. False: the caller returns *status as the exit status. */
bool cli_parse(struct cfg **c, const struct cfg_opt *table, const char *usage, int argc,
               char **argv, int *status);

#define CLI_VERSION "0.1.0"

#endif
