/* night_args.h: what every command that runs a night passes to it. */
#ifndef CHIMERE_CLI_NIGHT_ARGS_H
#define CHIMERE_CLI_NIGHT_ARGS_H

#include <jansson.h>

#include "cli/args/chat_args.h"

/* Appends the first n items of each shipped skill whose items need no tools. */
int night_items(json_t *items, size_t n, struct err *e);
/* Reads a share, such as 10% or 0.1, of the option `name`. */
int night_share(const char *name, const char *text, double *share, struct err *e);
/* The folder of pipelines: `given`, or else the one beside the program, written to out; NULL: there is none. */
const char *night_pipelines(const char *given, char *out, size_t out_size);
/* The function `encode` of struct night_host; ud is the chat_rig. */
int night_encode(void *ud, json_t *messages, json_t *tools, bool think, int32_t **ids, size_t *n,
                 struct err *e);

#endif
