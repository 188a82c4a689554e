/* mcp_child.h: the program of an MCP server. It is started with a small environment. Stopping it also stops all
 * processes of its process group. One thread at a time. */
#ifndef CHIMERE_TOOLS_MCP_CHILD_H
#define CHIMERE_TOOLS_MCP_CHILD_H

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

struct mcp_child {
    pid_t pid;   /* 0: none */
    int in, out; /* its standard input (a non-blocking socket) and standard output; -1: closed */
};

/* command: split at blanks. names: "SERVER=VARIABLE" [n_name]: variables of this process's environment that the
 * server gets in addition to HOME, LOGNAME, PATH, SHELL, TERM and USER; entries of other servers are ignored. */
int mcp_child_start(struct mcp_child *c, const char *server, const char *command,
                    const char *const *names, size_t n_name, struct err *e);
/* Closes the program's streams, waits one second for it to end, then kills it. at_once: does not wait. */
void mcp_child_stop(struct mcp_child *c, int at_once);

#endif
