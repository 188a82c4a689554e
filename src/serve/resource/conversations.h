/* conversations.h: /v1/conversations, in OpenAI's form. Extensions: a tree of items ("parent"), title, project, pin,
 * settings, search, and versions that detect concurrent changes (ETag, If-Match). */
#ifndef CHIMERE_SERVE_RESOURCE_CONVERSATIONS_H
#define CHIMERE_SERVE_RESOURCE_CONVERSATIONS_H

#include "serve/http/http.h"

/* conversations.c */
void conversations_list(struct http_request *r);
void conversations_create(struct http_request *r);
void conversations_find(struct http_request *r);
void conversations_change(struct http_request *r);
void conversations_remove(struct http_request *r);
/* conversations_items.c */
void conversations_items_list(struct http_request *r);
void conversations_items_create(struct http_request *r);
void conversations_items_find(struct http_request *r);
void conversations_items_change(struct http_request *r);
void conversations_items_remove(struct http_request *r);

#endif
