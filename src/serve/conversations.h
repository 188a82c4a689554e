/* conversations.h: /v1/conversations: what clients keep here, in OpenAI's shape; besides it a tree of items ("parent"),
 * title, project, pin, settings, search, and versions against two writers (ETag, If-Match). */
#ifndef CHIMERE_SERVE_CONVERSATIONS_H
#define CHIMERE_SERVE_CONVERSATIONS_H

#include "serve/http.h"

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
