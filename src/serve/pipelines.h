/* pipelines.h: the orchestrator's pipelines as an administrator edits them: texts, checked by the reader of the folder. */
#ifndef CHIMERE_SERVE_PIPELINES_H
#define CHIMERE_SERVE_PIPELINES_H

#include "serve/http.h"

void pipelines_list(struct http_request *r);
void pipelines_check(struct http_request *r); /* what is wrong, and in which line */
void pipelines_put(struct http_request *r);
void pipelines_remove(struct http_request *r);
void pipelines_explain(struct http_request *r); /* what would be done with a question */

#endif
