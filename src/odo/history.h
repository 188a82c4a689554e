/* history.h: the recent scores of each route's answers, cached in memory.
 *
 * Scores read from the store are cached for HISTORY_KEEP_S seconds, so most requests do not read the store. Any
 * thread. */
#ifndef CHIMERE_ODO_HISTORY_H
#define CHIMERE_ODO_HISTORY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct history;
struct store;

enum { HISTORY_KEEP_S = 10 };

int history_new(struct history **out, struct store *s,
                struct err *e); /* s: borrowed; may be NULL */
void history_free(struct history *h);
/* Writes the scores to scores [STORE_MAX_SCORES] (store/score.h) and returns their number; 0 if the store fails.
 * judged: also the grades of the model, which count only if its card says that it can judge. */
size_t history_scores(struct history *h, const char *route, bool judged, double *scores);

#endif
