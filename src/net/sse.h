/* sse.h: reader of server-sent events (WHATWG HTML, 9.2): bytes in any pieces -> events.
 *
 * Feed it from fetch's on_body. One event's bytes have a ceiling. No I/O; any one thread. */
#ifndef CHIMERE_NET_SSE_H
#define CHIMERE_NET_SSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct sse_event {    /* views, valid during the callback */
    const char *name; /* "message" where the stream names none */
    const char *data; /* lines joined with \n; NUL-terminated behind n_data */
    size_t n_data;
    const char *id; /* the last one given, "" at first */
};

struct sse {
    struct buf line, data, name, id; /* owned */
    bool after_cr, has_data, begun;
    int32_t retry_ms;                                      /* -1: never said */
    int failed;                                            /* sticky */
    int (*on_event)(void *ud, const struct sse_event *ev); /* a negative result ends the reading */
    void *ud;                                              /* borrowed */
};

void sse_init(struct sse *s, size_t max_event_bytes,
              int (*on_event)(void *ud, const struct sse_event *ev), void *ud);
/* 0, what on_event returned, CHIMERE_ELIMIT or CHIMERE_ENOMEM; then every further call the same. */
int sse_feed(struct sse *s, const char *p, size_t n);
void sse_fini(struct sse *s); /* an event without its empty line is dropped, as the standard says */

#endif
