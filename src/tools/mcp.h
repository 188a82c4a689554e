/* mcp.h: tools of Model Context Protocol servers, as a client: a program on its standard streams, or an
 * address that speaks streamable HTTP.
 *
 * Connecting negotiates the protocol and lists the tools; each becomes a tool of ours with the stable name
 * SERVER_TOOL.
 * Its tools may cause anything (TOOL_EFFECT, TOOL_SENDS): so they do not run once text from documents or pages is in
 * a conversation. Messages have a ceiling, every wait a deadline;
 * a server that dies, hangs or floods fails its calls alone, and is started again by a later call, after a second that
 * doubles up to a minute. One call at a time per server; others wait until their own deadline. Any thread. */
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

/* spec: "NAME=COMMAND ARG..." (words split at blanks, never given to a shell) or "NAME=http://...". */
/* env: "NAME=VARIABLE" [n_env], borrowed until mcp_close: variables of our environment that the program of that name
 * gets besides HOME, LOGNAME, PATH, SHELL, TERM and USER. */
int mcp_open(struct mcp **out, const char *spec, const char *const *env, size_t n_env,
             struct err *e);
void mcp_close(struct mcp *m);
int mcp_n_tool(const struct mcp *m);
/* The mcp must outlive the set. */
int mcp_add_tools(struct mcp *m, struct tool_set *tools, struct err *e);

#endif
