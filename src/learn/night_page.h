/* night_page.h: what a night did, as one page: no script, no request to anybody, light and dark. */
#ifndef CHIMERE_LEARN_NIGHT_PAGE_H
#define CHIMERE_LEARN_NIGHT_PAGE_H

#include "base/buf.h"
#include "learn/nights.h"

/* Appends the page of a night to out: what it read, each step's gain with its interval, the general suites before and
 * after, and the gains over all nights. CHIMERE_ENOENT: there is no such night. */
int night_page(struct buf *out, const struct nights *n, int64_t night, struct err *e);

#endif
