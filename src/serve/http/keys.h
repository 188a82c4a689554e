/* keys.h: API keys of the store, for administrators. Changes take effect at once. */
#ifndef CHIMERE_SERVE_KEYS_H
#define CHIMERE_SERVE_KEYS_H

#include "serve/http/http.h"

void keys_list(struct http_request *r);   /* with the usage of each key; never the secret */
void keys_create(struct http_request *r); /* the only response that contains the secret */
void keys_change(struct http_request *r);
void keys_revoke(struct http_request *r);

#endif
