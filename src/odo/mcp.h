/* mcp.h: tools of Model Context Protocol servers, as a client: a program on its standard streams, or an
 * address that speaks streamable HTTP.
 *
 * Connecting negotiates the protocol and lists the tools; each becomes a tool of ours, named SERVER_TOOL
 * where its own name is taken.
 * Its tools may cause anything (TOOL_EFFECT, TOOL_SENDS): so they do not run once text from documents or pages is in
 * a conversation. Messages have a ceiling, every wait a deadline;
 * a server that dies or floods fails its calls alone. One call at a time a server; any thread. */
#ifndef CHIMERE_ODO_MCP_H
#define CHIMERE_ODO_MCP_H

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
int mcp_open(struct mcp **out, const char *spec, struct err *e);
void mcp_close(struct mcp *m);
int mcp_n_tool(const struct mcp *m);
/* The mcp must outlive the set. */
int mcp_add_tools(struct mcp *m, struct tool_set *tools, struct err *e);

#endif
