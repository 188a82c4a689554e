/* manual.h: prints man pages and shell completions, generated from the option tables, to standard output. Exit
 * status 0, or 2 if the command or the shell is unknown. */
#ifndef CHIMERE_CLI_MANUAL_H
#define CHIMERE_CLI_MANUAL_H

#include "cli/cli.h"

/* The tables of a command in addition to its own, as added by cli_parse; ends with NULL. */
enum { CLI_MAX_TABLES = 4 };
void cli_tables(const struct cfg_opt *own, const struct cfg_opt *out[CLI_MAX_TABLES]);

/* Prints chimere(1), the list of commands. */
int manual_overview(void);
/* Prints chimere-NAME(1), with the usage text that the command passes to cli_parse. */
int manual_page(const char *name, const struct cfg_opt *own, const char *usage);
/* shell: "bash", "zsh" or "fish". */
int manual_completion(const char *shell);
/* Prints the HTTP reference in Markdown from the route and field tables; script/site makes a page of it. */
int manual_http(void);

#endif
