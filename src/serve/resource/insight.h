/* insight.h: history for administrators: requests, decisions of the orchestrator, nightly training. */
#ifndef CHIMERE_SERVE_RESOURCE_INSIGHT_H
#define CHIMERE_SERVE_RESOURCE_INSIGHT_H

#include "serve/http/http.h"

void insight_requests(struct http_request *r);
void insight_decisions(struct http_request *r);
void insight_quality(struct http_request *r); /* worth of answers by day, and the best of them */
void insight_nights(struct http_request *r);
void insight_night_page(struct http_request *r); /* HTML */
void insight_roll_back(struct http_request *r);

#endif
