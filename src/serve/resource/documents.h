/* documents.h: /chimere/v1/documents: the documents that the orchestrator can retrieve: add, list, search, remove.
 * Shared collections are for all to read and for administrators to change; "my:NAME" and "chat:ID" are the caller's own.
 * /chimere/v1/extract returns the text of one file, for a conversation. */
#ifndef CHIMERE_SERVE_RESOURCE_DOCUMENTS_H
#define CHIMERE_SERVE_RESOURCE_DOCUMENTS_H

#include "serve/http/http.h"

void documents_list(struct http_request *r);
void documents_put(struct http_request *r);
void documents_search(struct http_request *r);
void documents_remove(struct http_request *r);
void documents_extract(struct http_request *r);

#endif
