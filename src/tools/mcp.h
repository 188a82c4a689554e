/* mcp.h: client for Model Context Protocol servers. A server is a program on its standard streams or an address
 * that speaks streamable HTTP.
 *
 * Connecting negotiates the protocol and lists the tools. Each becomes a local tool with the stable name
 * SERVER_TOOL. These tools may have any effect (TOOL_EFFECT, TOOL_SENDS), so they do not run once a conversation
 * contains text from documents or pages.
 * Messages have a size limit, and every wait has a deadline. If a server dies, hangs or floods the client, only
 * its own calls fail. A later call restarts it, after a delay of one second that doubles up to a minute. One call
 * at a time per server; other calls wait until their own deadline. Any thread. */
#ifndef CHIMERE_TOOLS_MCP_H
#define CHIMERE_TOOLS_MCP_H

#include <stddef.h>

#include "base/err.h"

struct mcp;
struct tool_set;

enum {
    MCP_MAX_MESSAGE = 4 << 20,
    MCP_MAX_TOOLS = 128,
    MCP_CONNECT_MS = 15000,
    MCP_CALL_MS = 60000
};

/* spec: "NAME=COMMAND ARG..." (split at blanks, never passed to a shell) or "NAME=http://...". */
/* env: "NAME=VARIABLE" [n_env], borrowed until mcp_close. The program NAME gets these variables of this process's
 * environment in addition to HOME, LOGNAME, PATH, SHELL, TERM and USER. */
int mcp_open(struct mcp **out, const char *spec, const char *const *env, size_t n_env,
             struct err *e);
void mcp_close(struct mcp *m);
int mcp_n_tool(const struct mcp *m);
/* The mcp must outlive the set. */
int mcp_add_tools(struct mcp *m, struct tool_set *tools, struct err *e);

#endif
