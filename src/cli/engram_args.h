/* engram_args.h: what the subcommands of `chimere engram` share. */
#ifndef CHIMERE_CLI_ENGRAM_ARGS_H
#define CHIMERE_CLI_ENGRAM_ARGS_H

#include "cli/model_args.h"
#include "engram/build.h"
#include "text/tok/tok.h"

/* The tokenizer of -m; *n_vocab its tokens. */
int engram_args_tok(const struct cfg *c, struct tok **tok, struct err *e);
/* Path of a table: as given where it names a file or holds a slash, else NAME.engram in the folder of
 * --engram-dir. */
int engram_args_path(const struct cfg *c, const char *name, char *out, size_t out_size,
                     struct err *e);
/* The same for a table that is to be read: where the user has none of that name, the one that came with the program. */
int engram_args_table(const struct cfg *c, const char *name, char *out, size_t out_size,
                      struct err *e);
/* "30d", "12h", "2w", "90" (seconds) as seconds; "2026-11-21" or "now" as seconds since 1970. */
int engram_args_duration(const char *option, const char *text, double *seconds, struct err *e);
int engram_args_date(const struct cfg *c, int64_t *seconds, struct err *e);

/* cmd_engram_eval.c */
int engram_eval(const struct cfg *c, struct err *e);
/* cmd_engram_examples.c */
int engram_examples(const struct cfg *c, struct err *e);

#endif
