/* openapi.h: GET /openapi.json: every route, and the fields of those that generate, written from the tables that serve
 * them. Descriptions are a table of their own: a route without one is listed all the same. */
#ifndef CHIMERE_SERVE_OPENAPI_H
#define CHIMERE_SERVE_OPENAPI_H

#include "serve/http.h"

void openapi_json(struct http_request *r);

#endif
