/* mcp_impl.h: how a server's messages are read; shared with tests. */
#ifndef CHIMERE_TOOLS_MCP_IMPL_H
#define CHIMERE_TOOLS_MCP_IMPL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct buf;

bool mcp_is_reply(const json_t *message, int64_t id);
/* The texts of a tool's result; what is no text is named. */
void mcp_put_content(struct buf *out, const json_t *result);

#endif
