/* mcp_child.h: the program of an MCP server: started with a small environment, stopped with all that it started in its
 * process group. One thread at a time. */
#ifndef CHIMERE_TOOLS_MCP_CHILD_H
#define CHIMERE_TOOLS_MCP_CHILD_H

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

struct mcp_child {
    pid_t pid;   /* 0: none */
    int in, out; /* its standard input, a socket that does not block, and output; -1 */
};

/* command: words split at blanks. names: "SERVER=VARIABLE" [n_name]: what this server gets of our environment besides
 * HOME, LOGNAME, PATH, SHELL, TERM and USER; rows of other servers are skipped. */
int mcp_child_start(struct mcp_child *c, const char *server, const char *command,
                    const char *const *names, size_t n_name, struct err *e);
/* Closes its streams, waits a second for it to end, kills it. at_once: without waiting. */
void mcp_child_stop(struct mcp_child *c, int at_once);

#endif
