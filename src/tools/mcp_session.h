/* mcp_session.h: the sessions of MCP clients over HTTP: random names that belong to whom they were given.
 *
 * A name is 128 random bits; another owner's is as unknown as none. At most MCP_MAX_SESSIONS are kept, the
 * one unused longest makes room; one unused for MCP_SESSION_S is over. Any thread. */
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
bool mcp_session_use(struct mcp_sessions *s, const char *id, const char *owner); /* it is theirs */
bool mcp_session_end(struct mcp_sessions *s, const char *id, const char *owner);

#endif
