/* http_target.h: what the target of a request says besides its route: the parts of the path that '*' stands for, and the
 * fields after '?'. */
#ifndef CHIMERE_SERVE_HTTP_TARGET_H
#define CHIMERE_SERVE_HTTP_TARGET_H

#include "serve/http.h"

/* The part of the path that the route's n-th '*' stands for, from 0. False: longer than size. */
bool http_part(const struct http_request *r, int n, char *out, size_t size);
const char *http_query(const struct http_request *r, const char *name); /* view, NULL: none */

/* NULL: none; *path_known: there is one of another method. */
const struct route *http_find_route(const char *method, const char *path, bool *path_known);
/* Of "NAME\0VALUE\0" each: the value, without regard to the case of the name, or NULL. */
const char *http_find_pair(const struct buf *pairs, const char *name);

#endif
