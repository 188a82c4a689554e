/* repeat.h: detects an answer that repeats itself. It is fed while the answer streams; memory and time per byte
 * are bounded. */
#ifndef CHIMERE_ODO_REPEAT_H
#define CHIMERE_ODO_REPEAT_H

#include <stdbool.h>
#include <stddef.h>

enum { REPEAT_KEPT = 2048, REPEAT_MAX_UNIT = 400, REPEAT_LEAST = 640, REPEAT_TIMES = 4 };

struct repeat { /* zero it before the first use */
    char tail[REPEAT_KEPT];
    size_t n, unchecked;
};

/* Returns true if at least the last REPEAT_LEAST bytes repeat one unit of at most REPEAT_MAX_UNIT bytes,
 * REPEAT_TIMES times or more. */
bool repeat_feed(struct repeat *r, const char *text, size_t n);

#endif
