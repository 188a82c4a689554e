/* engram_args.h: shared by the subcommands of `chimere engram`. */
#ifndef CHIMERE_CLI_ENGRAM_ARGS_H
#define CHIMERE_CLI_ENGRAM_ARGS_H

#include "cli/args/model_args.h"
#include "engram/build.h"
#include "text/tok/tok.h"

/* Opens the tokenizer of the model of -m; *n_vocab is its number of tokens. */
int engram_args_tok(const struct cfg *c, struct tok **tok, struct err *e);
/* Writes the path of a table: name itself if it is a file or contains a slash, otherwise NAME.engram in the folder
 * of --engram-dir. */
int engram_args_path(const struct cfg *c, const char *name, char *out, size_t out_size,
                     struct err *e);
/* Does the same for a table that is read: if the user has none of that name, uses the one shipped with the
 * program. */
int engram_args_table(const struct cfg *c, const char *name, char *out, size_t out_size,
                      struct err *e);
/* Parses "30d", "12h", "2w", "90" (seconds) to seconds; and "2026-11-21" or "now" to seconds since 1970. */
int engram_args_duration(const char *option, const char *text, double *seconds, struct err *e);
int engram_args_date(const struct cfg *c, int64_t *seconds, struct err *e);

/* cmd_engram_eval.c */
int engram_eval(const struct cfg *c, struct err *e);
/* cmd_engram_examples.c */
int engram_examples(const struct cfg *c, struct err *e);

#endif
