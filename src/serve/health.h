/* health.h: endpoints for probes and load balancers.
 *
 * They are answered on the sockets' thread, so that neither load nor the loading of a model delays them. */
#ifndef CHIMERE_SERVE_HEALTH_H
#define CHIMERE_SERVE_HEALTH_H

#include "serve/http/http.h"

void health_ok(struct http_request *r);    /* 200 while the server responds */
void health_live(struct http_request *r);  /* 503: the device has failed; only a restart helps */
void health_ready(struct http_request *r); /* 503: send requests to another server */
/* 202: answers are in progress; 200: none is in progress */
void health_drain(struct http_request *r);
void health_undrain(struct http_request *r);

#endif
