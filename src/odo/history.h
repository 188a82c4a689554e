/* history.h: the scores that each route's answers got lately, read from the store now and then.
 *
 * A request costs a look at memory, not at the store: what was read is kept for HISTORY_KEEP_S. Any thread. */
#ifndef CHIMERE_ODO_HISTORY_H
#define CHIMERE_ODO_HISTORY_H

#include <stddef.h>

#include "base/err.h"

struct history;
struct store;

enum { HISTORY_KEEP_S = 10 };

int history_new(struct history **out, struct store *s,
                struct err *e); /* s: borrowed; may be NULL */
void history_free(struct history *h);
/* To scores [STORE_MAX_SCORES] of store/score.h; how many. None where the store fails. */
size_t history_scores(struct history *h, const char *route, double *scores);

#endif
