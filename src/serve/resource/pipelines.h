/* pipelines.h: lets an administrator edit the orchestrator's pipelines. The text is checked by the code that reads the
 * pipelines folder. */
#ifndef CHIMERE_SERVE_RESOURCE_PIPELINES_H
#define CHIMERE_SERVE_RESOURCE_PIPELINES_H

#include "serve/http/http.h"

void pipelines_list(struct http_request *r);
void pipelines_check(struct http_request *r); /* reports errors and their lines */
void pipelines_put(struct http_request *r);
void pipelines_remove(struct http_request *r);
/* reports what the orchestrator would do with a question */
void pipelines_explain(struct http_request *r);

#endif
