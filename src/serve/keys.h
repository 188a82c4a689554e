/* keys.h: API keys of the store, as an administrator sees and changes them. What is changed holds at once. */
#ifndef CHIMERE_SERVE_KEYS_H
#define CHIMERE_SERVE_KEYS_H

#include "serve/http.h"

void keys_list(struct http_request *r);   /* with what each has used; never a secret */
void keys_create(struct http_request *r); /* the only answer that has the secret */
void keys_change(struct http_request *r);
void keys_revoke(struct http_request *r);

#endif
