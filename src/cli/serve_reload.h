/* serve_reload.h: what a running server takes over of its options on SIGHUP. */
#ifndef CHIMERE_CLI_SERVE_RELOAD_H
#define CHIMERE_CLI_SERVE_RELOAD_H

#include "cli/cli.h"
#include "serve/serve.h"

struct serve_reload {    /* all borrowed */
    const struct cfg *c; /* as the server was started */
    const char *usage;
    int argc;
    char **argv;
    bool always_thinks; /* the template's variables say so, whatever --think says */
};

/* Reads files, environment and flags again. Taken over: the keys of --api-key, timeout, ping, grace, think and
 * what is logged. Other options that differ from those at the start are named in one line of the log. If
 * anything is refused, everything stays as it is. */
void serve_reload_options(const struct serve_reload *r, struct server *s,
                          const struct serve_params *started);

#endif
