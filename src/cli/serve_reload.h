/* serve_reload.h: which options a running server applies again on SIGHUP. */
#ifndef CHIMERE_CLI_SERVE_RELOAD_H
#define CHIMERE_CLI_SERVE_RELOAD_H

#include "cli/cli.h"
#include "serve/serve.h"

struct serve_reload {    /* pointers are borrowed */
    const struct cfg *c; /* as at the start of the server */
    const char *usage;
    int argc;
    char **argv;
    int port;          /* of the server before this one, or on which this one listens; 0: neither */
    int32_t n_restart; /* how often the program was started again in quick succession */
    bool starts_again; /* end the server and start the program again */
    bool always_thinks; /* set by the template's variables, whatever --think is */
};

/* Reads files, environment and flags again. Applied are the keys of --api-key, timeout, ping, grace, think and the
 * log settings. Other options that differ from the start are named in one line of the log. If anything is refused,
 * nothing changes. */
void serve_reload_options(const struct serve_reload *r, struct server *s,
                          const struct serve_params *started);

#endif
