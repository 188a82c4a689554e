/* health.h: what probes and load balancers ask for.
 *
 * Everything here is answered on the sockets' thread, so that neither load nor a model that loads delays it. */
#ifndef CHIMERE_SERVE_HEALTH_H
#define CHIMERE_SERVE_HEALTH_H

#include "serve/http.h"

void health_ok(struct http_request *r);    /* it answers: 200, whatever its state */
void health_live(struct http_request *r);  /* 503: only a restart helps, the device failed */
void health_ready(struct http_request *r); /* 503: send requests elsewhere */
void health_drain(struct http_request *r); /* 202: answers are in progress; 200: none is */
void health_undrain(struct http_request *r);

#endif
