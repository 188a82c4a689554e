/* repeat.c: see repeat.h. */
#include "odo/repeat.h"

#include <string.h>

enum { CHECK_EACH = 64 };

/* Returns how many bytes at the end equal the bytes one unit earlier. */
static size_t periodic(const struct repeat *r, size_t unit) {
    size_t same = 0;
    while (same + unit < r->n && r->tail[r->n - 1 - same] == r->tail[r->n - 1 - same - unit])
        ++same;
    return same;
}

static bool loops(const struct repeat *r) {
    for (size_t unit = 1; unit <= REPEAT_MAX_UNIT && unit * REPEAT_TIMES <= r->n; ++unit) {
        size_t span = periodic(r, unit) + unit;
        if (span >= REPEAT_LEAST && span >= unit * REPEAT_TIMES) return true;
    }
    return false;
}

bool repeat_feed(struct repeat *r, const char *text, size_t n) {
    while (n) {
        size_t take = n < CHECK_EACH ? n : CHECK_EACH;
        if (r->n + take > REPEAT_KEPT) {
            size_t drop = r->n + take - REPEAT_KEPT;
            memmove(r->tail, r->tail + drop, r->n - drop);
            r->n -= drop;
        }
        memcpy(r->tail + r->n, text, take);
        r->n += take;
        r->unchecked += take;
        text += take;
        n -= take;
        if (r->unchecked < CHECK_EACH) continue;
        r->unchecked = 0;
        if (loops(r)) return true;
    }
    return false;
}
