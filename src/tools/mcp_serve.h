/* mcp_serve.h: the local tools as a Model Context Protocol server: answers to messages, and a server on a pair of
 * streams (chimere odo mcp). serve/api/api_mcp.c serves the same over HTTP.
 *
 * On streams: one message per line, answered in order; messages have a size limit. The server ends with its input.
 * The client started this process, so no tool is withheld from it. mcp_answer: any thread. */
#ifndef CHIMERE_TOOLS_MCP_SERVE_H
#define CHIMERE_TOOLS_MCP_SERVE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"

struct tool_env;
struct tool_set;

/* Returns the answer to one message as a new reference; NULL: the message expects none. env: environment for a
 * tool call. */
json_t *mcp_answer(struct tool_set *tools, const json_t *message, const struct tool_env *env);
json_t *mcp_unreadable(void); /* answer to input that is not a valid message */
bool mcp_is_protocol(const char *version);

/* Returns 0 at the end of the input. */
int mcp_serve(struct tool_set *tools, FILE *in, FILE *out, struct err *e);

#endif
