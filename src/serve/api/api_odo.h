/* api_odo.h: the orchestrator's endpoints: its tools over MCP, its memory, its skills, and calls that wait for the
 * user's approval. */
#ifndef CHIMERE_SERVE_API_ODO_H
#define CHIMERE_SERVE_API_ODO_H

#include "serve/http/http.h"

/* in api_mcp.c */
void api_mcp(struct http_request *r);
void api_mcp_end(struct http_request *r);
/* in api_memory.c */
void api_memory(struct http_request *r);
void api_memory_add(struct http_request *r);
void api_memory_change(struct http_request *r);
void api_memory_remove(struct http_request *r);
void api_skills(struct http_request *r);
/* in api_confirm.c */
void api_confirm_list(struct http_request *r);
void api_confirm(struct http_request *r);

#endif
