/* engram.h: inspects the n-gram tables of the server: their content, what they predict after a text, and how much of a
 * text they know. Also creates small tables from a text. */
#ifndef CHIMERE_SERVE_RESOURCE_ENGRAM_H
#define CHIMERE_SERVE_RESOURCE_ENGRAM_H

#include "serve/http/http.h"

void engram_list(struct http_request *r);
void engram_look(struct http_request *r);
void engram_make(
    struct http_request *r); /* the body is the text; replaces an existing table of that name */
void engram_remove(struct http_request *r);

#endif
