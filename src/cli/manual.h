/* manual.h: man pages and shell completions, printed to standard output from the option tables. Exit status 0,
 * or 2 if the command or the shell is unknown. */
#ifndef CHIMERE_CLI_MANUAL_H
#define CHIMERE_CLI_MANUAL_H

#include "cli/cli.h"

/* The tables of a command besides its own, as cli_parse adds them; ends with NULL. */
enum { CLI_MAX_TABLES = 4 };
void cli_tables(const struct cfg_opt *own, const struct cfg_opt *out[CLI_MAX_TABLES]);

/* chimere(1), the list of commands. */
int manual_overview(void);
/* chimere-NAME(1), with the usage text that the command passes to cli_parse. */
int manual_page(const char *name, const struct cfg_opt *own, const char *usage);
/* shell: "bash", "zsh" or "fish". */
int manual_completion(const char *shell);
/* The HTTP reference in Markdown, from the route and field tables; script/site makes a page of it. */
int manual_http(void);

#endif
