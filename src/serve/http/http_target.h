/* http_target.h: the parts of a request's target that '*' in the route matched, and the fields after '?'. */
#ifndef CHIMERE_SERVE_HTTP_TARGET_H
#define CHIMERE_SERVE_HTTP_TARGET_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "serve/http/http.h"

/* Copies the text that the route's n-th '*' matched, from 0. Returns false if it is longer than size. */
bool http_part(const struct http_request *r, int n, char *out, size_t size);
const char *http_query(const struct http_request *r, const char *name); /* view, NULL: none */
/* Reads ?limit=N, 1 to most; *limit is usual without it. */
int http_limit(struct http_request *r, int32_t usual, int32_t most, int32_t *limit, struct err *e);

/* Returns NULL if there is no route; *path_known: the path exists with another method. */
const struct route *http_find_route(const char *method, const char *path, bool *path_known);
/* Finds a value in pairs of "NAME\0VALUE\0", ignoring the case of the name; or returns NULL. */
const char *http_find_pair(const struct buf *pairs, const char *name);

#endif
