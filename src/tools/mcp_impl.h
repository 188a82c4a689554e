/* mcp_impl.h: parsing of a server's messages; shared with tests. */
#ifndef CHIMERE_TOOLS_MCP_IMPL_H
#define CHIMERE_TOOLS_MCP_IMPL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct buf;

bool mcp_is_reply(const json_t *message, int64_t id);
/* Appends the texts of a tool's result. Content that is not text is only named. */
void mcp_put_content(struct buf *out, const json_t *result);

#endif
