/* http.h: one HTTP request: what came, what goes back, whose thread holds it.
 *
 *   READING --body complete--> WORKING (connection suspended; a worker runs the route's handler)
 *   WORKING --http_reply--> READY --sent--> gone
 *   WORKING --http_stream_begin--> STREAM --http_put...--http_stream_end--> drained --> gone
 *
 * A request is counted: its connection holds one reference until libmicrohttpd is through with it, an
 * answer under way holds another. The last one out hands it to a worker, which frees it. Everything here
 * may be called from any thread; http_put never blocks on the network. */
#ifndef CHIMERE_SERVE_HTTP_H
#define CHIMERE_SERVE_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

struct server;
struct http_request;

enum http_shape { SHAPE_OPENAI, SHAPE_ANTHROPIC, SHAPE_OLLAMA }; /* of errors */

/* An answer that is under way for a request: told when the client has left, and asked for pings. */
struct http_job {
    void (*gone)(void *ud); /* the client left, or time is up: cancel. Once */
    void (*free)(void *ud); /* with the request, on a worker */
    const char *ping;       /* frame sent into silence; view */
};

enum {
    ROUTE_OPEN = 1,    /* needs no key */
    ROUTE_QUICK = 2,   /* answered on the sockets' thread */
    ROUTE_ADMIN = 4,   /* needs an administrator's key; without keys, a loopback address */
    ROUTE_METRICS = 8, /* also open if metrics_open */
};
struct route {
    const char *method, *path; /* '*' matches what is between two '/', a final one the rest */
    unsigned flags;
    enum http_shape shape;
    void (*handle)(struct http_request *r); /* leads to one http_reply, http_fail or stream */
};
extern const struct route routes[]; /* ends with a NULL path */

struct server *http_server(const struct http_request *r);
const char *http_body(const struct http_request *r, size_t *n);          /* view */
const char *http_header(const struct http_request *r, const char *name); /* view, NULL: none */
const char *http_rest(const struct http_request *r);  /* path behind the route's '*' */
const char *http_owner(const struct http_request *r); /* identity of the key, or the address */
const char *http_id(const struct http_request *r);    /* request id, for answers and logs */

/* Takes the buffer's content. status with type; NULL: application/json. */
void http_reply(struct http_request *r, int status, const char *type, struct buf *body);
/* Takes lines "Name: value" that the response's head will have besides; before reply or stream. */
void http_headers(struct http_request *r, struct buf *lines);
/* An error in the route's shape; the field's name is what stands before ": " in e. */
void http_fail(struct http_request *r, const struct err *e);

/* Attaches the answer under way (holding a reference until http_job_done). */
void http_job_begin(struct http_request *r, const struct http_job *job, void *ud);
void http_job_done(struct http_request *r);
void *http_job_data(const struct http_request *r);
/* Status 200 and type (NULL: text/event-stream); frames follow. put: false when the client is gone or too slow. */
void http_stream_begin(struct http_request *r, const char *type);
bool http_put(struct http_request *r, const char *data, size_t n);
void http_stream_end(struct http_request *r);

#endif
