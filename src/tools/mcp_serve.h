/* mcp_serve.h: our tools as a Model Context Protocol server: messages and answers, and the server on a pair of streams
 * (chimere odo mcp). serve/api_mcp.c is the same over HTTP.
 *
 * On streams: one message a line, answered in order; messages have a ceiling. Ends with its input. The
 * client is whoever started us, so nothing is withheld from it. mcp_answer: any thread. */
#ifndef CHIMERE_TOOLS_MCP_SERVE_H
#define CHIMERE_TOOLS_MCP_SERVE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"

struct tool_env;
struct tool_set;

/* The answer to one message, a new reference; NULL: it wants none. env: of the caller, for a tool. */
json_t *mcp_answer(struct tool_set *tools, const json_t *message, const struct tool_env *env);
json_t *mcp_unreadable(void); /* the answer to what is no message */
bool mcp_is_protocol(const char *version);

/* 0 at the end of the input. */
int mcp_serve(struct tool_set *tools, FILE *in, FILE *out, struct err *e);

#endif
