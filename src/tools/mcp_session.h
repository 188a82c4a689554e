/* mcp_session.h: sessions of MCP clients over HTTP. A session has a random id and belongs to one owner.
 *
 * An id has 128 random bits. The id of another owner is treated as unknown. At most MCP_MAX_SESSIONS are kept; a
 * new one replaces the one unused for longest. A session expires after MCP_SESSION_S without use. Any thread. */
#ifndef CHIMERE_TOOLS_MCP_SESSION_H
#define CHIMERE_TOOLS_MCP_SESSION_H

#include <stdbool.h>

#include "base/err.h"

enum { MCP_MAX_SESSIONS = 1024, MCP_SESSION_S = 3600, MCP_SESSION_BYTES = 33 };

struct mcp_sessions;

int mcp_sessions_new(struct mcp_sessions **out, struct err *e);
void mcp_sessions_free(struct mcp_sessions *s);
int mcp_session_open(struct mcp_sessions *s, const char *owner, char id[MCP_SESSION_BYTES],
                     struct err *e);
/* true: the session exists and belongs to owner */
bool mcp_session_use(struct mcp_sessions *s, const char *id, const char *owner);
bool mcp_session_end(struct mcp_sessions *s, const char *id, const char *owner);

#endif
