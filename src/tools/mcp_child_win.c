/* mcp_child_win.c: mcp_child.h for Windows: refused. */
#include "tools/mcp_child.h"

int mcp_child_start(struct mcp_child *c, const char *server, const char *command,
                    const char *const *names, size_t n_name, struct err *e) {
    (void)command, (void)names, (void)n_name;
    *c = (struct mcp_child){.in = -1, .out = -1};
    return err_set(e, CHIMERE_EUNSUPPORTED, "MCP server %s: programs are not started on Windows",
                   server);
}

void mcp_child_stop(struct mcp_child *c, int at_once) { (void)c, (void)at_once; }
