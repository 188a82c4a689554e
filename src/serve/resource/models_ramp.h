/* models_ramp.h: /chimere/v1/ramp: makes a smaller copy of a model in the models directory (ramp/ramp.h), with progress as
 * lines of JSON. */
#ifndef CHIMERE_SERVE_RESOURCE_MODELS_RAMP_H
#define CHIMERE_SERVE_RESOURCE_MODELS_RAMP_H

#include "serve/http/http.h"

void models_ramp_cards(struct http_request *r);
void models_ramp_make(struct http_request *r);

#endif
