/* retain.h: how long records are kept: requests, decisions of the orchestrator, scores of answers, and jobs. */
#ifndef CHIMERE_STORE_RETAIN_H
#define CHIMERE_STORE_RETAIN_H

#include "store/store.h"

/* Deletes records older than `days` days (0: none). Then deletes the oldest records of each kind until that kind
 * takes at most most_bytes (0: no limit). Returns the number of deleted rows, or CHIMERE_E*. */
int64_t store_retain(struct store *s, int32_t days, int64_t most_bytes, struct err *e);

#endif
