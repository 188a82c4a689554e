/* score.h: how good a route's answers were, 1 to 5, by whoever judged them: a quality gate, a user. The rows
 * are those of store/quality.h. */
#ifndef CHIMERE_STORE_SCORE_H
#define CHIMERE_STORE_SCORE_H

#include <stddef.h>

#include "store/store.h"

enum { STORE_MAX_SCORES = 200 }; /* that a history looks at */

/* The newest of a route, newest first, to scores [STORE_MAX_SCORES]; *n: how many. */
int store_score_last(struct store *s, const char *route, double *scores, size_t *n, struct err *e);
/* Forgets what is older; returns how many, or CHIMERE_E*. */
int64_t store_score_forget(struct store *s, int64_t before_ms, struct err *e);

#endif
