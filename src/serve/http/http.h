/* http.h: one HTTP request: its input, its response, and which thread owns it.
 *
 *   READING --body complete--> WORKING (connection suspended; a worker runs the route's handler)
 *   WORKING --http_reply--> READY --sent--> gone
 *   WORKING --http_stream_begin--> STREAM --http_put...--http_stream_end--> drained --> gone
 *
 * A request is reference-counted. Its connection holds one reference until libmicrohttpd has completed it, and a
 * running generation holds another. Releasing the last reference posts the request to a worker, which frees it. Any
 * thread may call these functions; http_put never blocks on the network. */
#ifndef CHIMERE_SERVE_HTTP_H
#define CHIMERE_SERVE_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

struct server;
struct http_request;

enum http_shape { SHAPE_OPENAI, SHAPE_ANTHROPIC, SHAPE_OLLAMA }; /* format of errors */

/* A generation that runs for a request. It is notified when the client leaves, and supplies pings. */
struct http_job {
    void (*gone)(void *ud); /* the client left, or the deadline passed: cancel; called once */
    void (*free)(void *ud); /* called on a worker when the request is freed */
    const char *ping;       /* frame to send after a period without output; view */
};

enum {
    ROUTE_OPEN = 1,    /* needs no key */
    ROUTE_QUICK = 2,   /* answered on the sockets' thread */
    ROUTE_ADMIN = 4,   /* needs an administrator's key; without keys, a loopback address */
    ROUTE_METRICS = 8, /* also open if metrics_open */
};
struct route {
    const char *method, *path; /* '*' matches the text between two '/'; at the end, the rest */
    unsigned flags;
    enum http_shape shape;
    void (*handle)(struct http_request *r); /* must lead to one http_reply, http_fail or stream */
};
extern const struct route routes[]; /* ends with a NULL path */

struct server *http_server(const struct http_request *r);
const char *http_body(const struct http_request *r, size_t *n);          /* view */
const char *http_header(const struct http_request *r, const char *name); /* view, NULL: none */
/* the part of the path that the final '*' matches */
const char *http_rest(const struct http_request *r);
const char *http_owner(const struct http_request *r); /* identity of the key, or the address */
const char *http_id(const struct http_request *r);    /* request id, for responses and logs */

/* Sends status and the content of body, which is taken over. type NULL: application/json. */
void http_reply(struct http_request *r, int status, const char *type, struct buf *body);
/* Takes over lines "Name: value" that are added to the response's header; call before reply or stream. */
void http_headers(struct http_request *r, struct buf *lines);
/* Sends an error in the route's format; the text before ": " in e is the field's name. */
void http_fail(struct http_request *r, const struct err *e);

/* Attaches a running generation; it holds a reference until http_job_done. */
void http_job_begin(struct http_request *r, const struct http_job *job, void *ud);
void http_job_done(struct http_request *r);
void *http_job_data(const struct http_request *r);
/* Sends status 200 and the type (NULL: text/event-stream); frames follow. http_put returns false if the client has left
 * or is too slow. */
void http_stream_begin(struct http_request *r, const char *type);
bool http_put(struct http_request *r, const char *data, size_t n);
void http_stream_end(struct http_request *r);

#endif
