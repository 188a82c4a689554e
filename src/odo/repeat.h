/* repeat.h: does an answer go round in circles? Fed as it streams; bounded memory and time per byte. */
#ifndef CHIMERE_ODO_REPEAT_H
#define CHIMERE_ODO_REPEAT_H

#include <stdbool.h>
#include <stddef.h>

enum { REPEAT_KEPT = 2048, REPEAT_MAX_UNIT = 400, REPEAT_LEAST = 640, REPEAT_TIMES = 4 };

struct repeat { /* zeroed at first */
    char tail[REPEAT_KEPT];
    size_t n, unchecked;
};

/* True: the last REPEAT_LEAST bytes or more are one unit of at most REPEAT_MAX_UNIT bytes, REPEAT_TIMES times or more. */
bool repeat_feed(struct repeat *r, const char *text, size_t n);

#endif
