/* score.h: scores of a route's answers, 1 to 5, given by the quality gate or by a user. The rows are those of
 * store/quality.h. */
#ifndef CHIMERE_STORE_SCORE_H
#define CHIMERE_STORE_SCORE_H

#include <stddef.h>

#include "store/store.h"

enum { STORE_MAX_SCORES = 200 }; /* scores that a history uses */

/* Writes the newest scores of a route, newest first, to scores [STORE_MAX_SCORES]; *n: their number. judged: also
 * scores of the quality gate; otherwise only those of users. */
int store_score_last(struct store *s, const char *route, bool judged, double *scores, size_t *n,
                     struct err *e);
/* Deletes older scores. Returns their number, or CHIMERE_E*. */
int64_t store_score_forget(struct store *s, int64_t before_ms, struct err *e);

#endif
