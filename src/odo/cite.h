/* cite.h: removes citations of sources that do not exist from an answer while it is streamed.
 *
 * A citation is [n], or a list of such numbers with at most three digits each, outside code between backticks. It
 * is held back until its bracket closes; all other characters pass at once. One struct per answer. Only the
 * caller's buffer is allocated. */
#ifndef CHIMERE_ODO_CITE_H
#define CHIMERE_ODO_CITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { CITE_MAX_REMOVED = 32, CITE_MAX_HELD = 64 };

/* allocated by the caller; zeroed at the start of an answer, except n_source */
struct cite {
    int32_t n_source; /* sources are numbered 1..n_source; 0: all text passes unchanged */
    char held[CITE_MAX_HELD];
    size_t n_held;
    /* backticks in a row so far; number of backticks that opened the current code span */
    int n_tick, n_fence;
    int32_t removed[CITE_MAX_REMOVED];
    int32_t n_removed;
};

/* Appends the part of the next piece of the answer that may be shown now. */
void cite_feed(struct cite *c, const char *text, size_t n, struct buf *out);
/* Appends the held text. Call it when the answer, or this part of it, ends. */
void cite_flush(struct cite *c, struct buf *out);

#endif
