/* quality.h: the quality gate: judges answers after they were sent and keeps them for learning.
 *
 * Each answer is a background job (jobs/jobs.h) of one worker with a bounded queue: the verifier (prm.h) judges
 * it, and it is written with its alternatives to the store (store/quality.h). Posting copies, never waits and
 * never fails a request: if the queue is full, the answer is dropped and counted. Any thread. */
#ifndef CHIMERE_ODO_QUALITY_H
#define CHIMERE_ODO_QUALITY_H

#include <jansson.h>

#include "backend/backend.h"

struct store;
struct quality;

enum { QUALITY_QUEUE = 64, QUALITY_MAX_TEXT = 64 << 10, QUALITY_LEAST = 20 };

struct quality_answer {
    const char *name, *route; /* borrowed for the call */
    const char *owner;        /* whose question it was */
    const char *question, *answer;
    double score;             /* NaN: to be judged */
    const json_t *candidates; /* of a strategy; NULL: none; borrowed for the call */
    int32_t winner;           /* of them: no alternative */
    const char *draft;        /* that a second attempt replaced; NULL: none */
    double draft_score;
    bool keep;       /* texts go to the store, not scores alone */
    bool keep_short; /* an answer too short to be judged is written without a score */
};

/* backend: the judge; both are borrowed until quality_close. */
int quality_open(struct quality **out, struct backend *backend, struct store *store, struct err *e);
void quality_close(struct quality *q); /* what waits is dropped, what is judged now is cancelled */
/* False: dropped, because the queue is full or the texts are too short or too long. */
bool quality_post(struct quality *q, const struct quality_answer *a);
void quality_wait(struct quality *q); /* until all that was posted is written */
int quality_grade(double score);      /* 0..1 -> 1..5 */
/* Lines of Prometheus text: answers judged, dropped, failed. */
void quality_metrics(struct quality *q, struct buf *out);

#endif
