/* personas.h: /chimere/v1/personas: the personas that a caller writes, names and chooses per conversation. They are
 * kept per key; the header X-User names the user if several share a key. */
#ifndef CHIMERE_SERVE_RESOURCE_PERSONAS_H
#define CHIMERE_SERVE_RESOURCE_PERSONAS_H

#include "serve/http/http.h"

void personas_list(struct http_request *r);
void personas_create(struct http_request *r);
void personas_change(struct http_request *r);
void personas_remove(struct http_request *r);

#endif
