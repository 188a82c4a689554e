/* engram.h: the n-gram tables of the server, looked into: what they hold, what they say after a text, how much of a text
 * they know; and small ones made of a text. */
#ifndef CHIMERE_SERVE_ENGRAM_H
#define CHIMERE_SERVE_ENGRAM_H

#include "serve/http.h"

void engram_list(struct http_request *r);
void engram_look(struct http_request *r);
void engram_make(
    struct http_request *r); /* the body is the text; replaces the table of that name */
void engram_remove(struct http_request *r);

#endif
