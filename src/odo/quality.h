/* quality.h: the quality gate: judges answers after they were sent and stores them for learning.
 *
 * Each answer is a background job (jobs/jobs.h) of one worker with a bounded queue. The verifier (prm.h) judges
 * the answer, and the answer is written with its alternatives to the store (store/quality.h). Posting copies the
 * texts, never waits and never fails a request: if the queue is full, the answer is dropped and counted. An answer whose
 * texts may be kept is also judged if this process ends or is busy, by any process that has the same judge and store. Any
 * thread. */
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
    int64_t night;            /* whose files the answer used (store/quality.h) */
    const char *question, *answer;
    double score;             /* NaN: not judged yet */
    const json_t *candidates; /* answers of a strategy; NULL: none; borrowed for the call */
    /* index of the sent answer in candidates; it is not stored as an alternative */
    int32_t winner;
    const char *draft; /* the answer that a second attempt replaced; NULL: none */
    double draft_score;
    bool keep;       /* store the texts too, not only scores */
    bool keep_short; /* an answer too short to be judged is written without a score */
};

/* backend: the judge; both are borrowed until quality_close. */
int quality_open(struct quality **out, struct backend *backend, struct store *store, struct err *e);
void quality_close(struct quality *q); /* drops queued answers and cancels the one being judged */
/* Returns false if the answer was dropped: the queue is full, or a text is too short or too long. */
bool quality_post(struct quality *q, const struct quality_answer *a);
void quality_wait(struct quality *q); /* waits until every posted answer is written */
int quality_grade(double score);      /* maps 0..1 to 1..5 */
/* Appends Prometheus text: answers judged, dropped, failed. */
void quality_metrics(struct quality *q, struct buf *out);

#endif
