/* serve_keys.h: the API keys of a server's options. */
#ifndef CHIMERE_CLI_SERVE_KEYS_H
#define CHIMERE_CLI_SERVE_KEYS_H

#include "base/config.h"
#include "base/err.h"

/* *out: the lines of all of --api-key (files, or keys themselves), or NULL; for serve_keys_forget. */
int serve_keys_read(const struct cfg *c, char **out, struct err *e);
/* Overwrites and frees; NULL is allowed. */
void serve_keys_forget(char *text);
/* Secrets that others on this machine may read are none: warns. path may be NULL. */
void serve_keys_warn(const char *path);

#endif
