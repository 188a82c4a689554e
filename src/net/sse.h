/* sse.h: parses server-sent events (WHATWG HTML, 9.2) from bytes in pieces of any size.
 *
 * Call it from fetch's on_body. The size of one event is limited. No I/O; use from any one thread. */
#ifndef CHIMERE_NET_SSE_H
#define CHIMERE_NET_SSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct sse_event {    /* views, valid during the callback */
    const char *name; /* "message" if the stream does not name the event */
    const char *data; /* lines joined with \n; followed by a NUL byte */
    size_t n_data;
    const char *id; /* last id that was received; "" at first */
};

struct sse {
    struct buf line, data, name, id; /* owned */
    bool after_cr, has_data, begun;
    int32_t retry_ms; /* -1: not received */
    /* the first error; returned by all later calls */
    int failed;
    int (*on_event)(void *ud, const struct sse_event *ev); /* a negative result stops the parser */
    void *ud;                                              /* borrowed */
};

void sse_init(struct sse *s, size_t max_event_bytes,
              int (*on_event)(void *ud, const struct sse_event *ev), void *ud);
/* Returns 0, the result of on_event, CHIMERE_ELIMIT or CHIMERE_ENOMEM. After an error, every further call returns the
 * same. */
int sse_feed(struct sse *s, const char *p, size_t n);
/* an event without its final empty line is dropped, as the standard requires */
void sse_fini(struct sse *s);

#endif
