/* mcp_serve.h: our tools as a Model Context Protocol server on a pair of streams (chimere odo mcp).
 *
 * One message a line, answered in order; messages have a ceiling. Ends with its input. The client is
 * whoever started us, so nothing is withheld from it. One thread. */
#ifndef CHIMERE_ODO_MCP_SERVE_H
#define CHIMERE_ODO_MCP_SERVE_H

#include <stdio.h>

#include "base/err.h"

struct tool_set;

/* 0 at the end of the input. */
int mcp_serve(struct tool_set *tools, FILE *in, FILE *out, struct err *e);

#endif
