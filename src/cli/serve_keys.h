/* serve_keys.h: the API keys of a server's options. */
#ifndef CHIMERE_CLI_SERVE_KEYS_H
#define CHIMERE_CLI_SERVE_KEYS_H

#include "base/config.h"
#include "base/err.h"

/* *out: the lines of all values of --api-key (files, or keys themselves), or NULL; free it with serve_keys_forget. */
int serve_keys_read(const struct cfg *c, char **out, struct err *e);
/* Overwrites and frees the text; NULL is allowed. */
void serve_keys_forget(char *text);
/* Warns if other users of this machine can read the file with secrets. path may be NULL. */
void serve_keys_warn(const char *path);

#endif
