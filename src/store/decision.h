/* decision.h: what the orchestrator decided and did, one row per request; the question's text is never stored. */
#ifndef CHIMERE_STORE_DECISION_H
#define CHIMERE_STORE_DECISION_H

#include "store/store.h"

struct store_decision {
    int64_t id, at_ms;                         /* at_ms 0: now */
    const char *route, *how, *pipeline, *mode; /* view */
    double ms;                                 /* duration of the request */
    bool failed;
    const char *record; /* view: JSON of the actions */
};
int store_decision_add(struct store *s, const struct store_decision *d, struct err *e);
/* Lists the newest rows first, at most `most`. If `each` returns nonzero, the list stops and returns that value. */
int store_decision_list(struct store *s, int32_t most,
                        int (*each)(void *ud, const struct store_decision *d), void *ud,
                        struct err *e);
/* Deletes older rows. Returns their number, or CHIMERE_E*. */
int64_t store_decision_forget(struct store *s, int64_t before_ms, struct err *e);

#endif
