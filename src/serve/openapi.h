/* openapi.h: GET /openapi.json: every route, and the request fields of those that generate. It is written from the
 * tables that the server itself uses. The descriptions are in a separate table; a route without a description is still
 * listed. */
#ifndef CHIMERE_SERVE_OPENAPI_H
#define CHIMERE_SERVE_OPENAPI_H

#include "serve/http/http.h"

void openapi_json(struct http_request *r);

#endif
