/* programs.h: runs a program from an answer, at the user's request, in the sandbox of the orchestrator's tool. */
#ifndef CHIMERE_SERVE_PROGRAMS_H
#define CHIMERE_SERVE_PROGRAMS_H

#include "serve/http/http.h"

/* POST {"language", "code"} -> {"output"}. Refused if the server does not offer this tool to its models. */
void programs_run(struct http_request *r);

#endif
