/* cite.h: citations in an answer while it streams: those of sources that were not given are taken out.
 *
 * A citation is [n] or a list of such numbers, of three digits at most, outside code between backticks. It is held back
 * until its bracket closes, so every other character passes at once. One answer each; no allocation but the caller's
 * buffer. */
#ifndef CHIMERE_ODO_CITE_H
#define CHIMERE_ODO_CITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { CITE_MAX_REMOVED = 32, CITE_MAX_HELD = 64 };

struct cite {         /* placed by the caller; zero at the start of an answer, but for n_source */
    int32_t n_source; /* numbered from 1; 0: everything passes */
    char held[CITE_MAX_HELD];
    size_t n_held;
    int n_tick, n_fence; /* backticks in a row; that the code around began with */
    int32_t removed[CITE_MAX_REMOVED];
    int32_t n_removed;
};

/* Appends what may be shown of the next piece of the answer. */
void cite_feed(struct cite *c, const char *text, size_t n, struct buf *out);
/* Appends what was held back: the answer, or this part of it, ends. */
void cite_flush(struct cite *c, struct buf *out);

#endif
