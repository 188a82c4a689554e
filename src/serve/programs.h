/* programs.h: a program of an answer, run in the sandbox of the orchestrator's tool because a person asked for it. */
#ifndef CHIMERE_SERVE_PROGRAMS_H
#define CHIMERE_SERVE_PROGRAMS_H

#include "serve/http.h"

/* POST {"language", "code"} -> {"output"}. Refused where the server offers its models no such tool. */
void programs_run(struct http_request *r);

#endif
