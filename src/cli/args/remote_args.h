/* remote_args.h: a remote server with OpenAI's API, as the options of chat and bench name it. */
#ifndef CHIMERE_CLI_REMOTE_ARGS_H
#define CHIMERE_CLI_REMOTE_ARGS_H

#include <jansson.h>

#include "base/config.h"

/* clang-format off */
#define REMOTE_OPTIONS                                                                             \
    {"url", 0, CFG_STR, "URL", NULL, 0, 0, NULL, "use a running server, such as http://127.0.0.1:8081"}, \
    {"url-model", 0, CFG_STR, "NAME", NULL, 0, 0, NULL, "its model (default: its first)"},         \
    {"url-key", 0, CFG_STR, "KEY", NULL, 0, 0, NULL, "its API key; prefer the variable CHIMERE_URL_KEY"}
/* clang-format on */

enum { REMOTE_MAX_BASE = 2048 };

struct remote {
    char base[REMOTE_MAX_BASE]; /* ends with /v1 */
    char model[256];
    const char *key; /* view of the options; NULL: none */
};

/* Writes the base of the server that an option names, which ends with /v1 whether the option does or not. */
int remote_base(const struct cfg *c, const char *option, char out[REMOTE_MAX_BASE], struct err *e);
/* Finds the model's name with one request if the options give none. */
int remote_open(struct remote *r, const struct cfg *c, struct err *e);
/* Returns the text of a request body, freed with mem_free. NULL: out of memory. */
char *remote_body(const json_t *body, size_t *n);

#endif
