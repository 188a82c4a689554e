/* job.h: the history of background jobs (jobs/jobs.h): one row per job that was started or cancelled.
 *
 * A row with a body is a job that any process of the store may do, on any machine. If it is queued, one process takes it and
 * owns it until it ends or returns it. The job of a process that ended is queued again, at most twice; so work may run more
 * than once, and must not do harm then. A process that lost its job cannot change the row any more. The body and the person
 * are removed when the job ends. */
#ifndef CHIMERE_STORE_JOB_H
#define CHIMERE_STORE_JOB_H

#include "store/store.h"

struct store_job {
    int64_t id;
    const char *kind, *name; /* view */
    /* view: "running", "done", "failed", "cancelled", "interrupted", "queued" */
    const char *state;
    int64_t started_ms, ended_ms; /* ended_ms 0: not ended yet */
    int64_t n_done, n_total;      /* total 0: unknown */
    const char *progress;         /* view: the last progress text, or "" */
    const char *error;            /* view: why it failed, or "" */
    int64_t priority;
    /* view: what another process needs to do the job, and whose text that is (store/person.h); or NULL. Not listed */
    const char *body, *person;
};
/* A job of this process. id is ignored; the row's id is returned in *id. */
int store_job_add(struct store *s, const struct store_job *j, int64_t *id, struct err *e);
/* Overwrites state, end, progress and error of row j->id; no error if it was deleted or taken over meanwhile. A body is
 * removed unless the job still runs. */
int store_job_update(struct store *s, const struct store_job *j, struct err *e);
/* Lists the newest first, at most `most`; kind NULL: all. If `each` returns nonzero, the list stops and returns that value. */
int store_job_list(struct store *s, const char *kind, int32_t most,
                   int (*each)(void *ud, const struct store_job *j), void *ud, struct err *e);
/* Rows that are "running" become "interrupted" if their process has ended, on any machine; those with a body are queued
 * again, or have failed after three attempts. */
int store_job_interrupt(struct store *s, struct err *e);
/* Deletes jobs that started before before_ms and do not run. Returns their number, or CHIMERE_E*. */
int64_t store_job_forget(struct store *s, int64_t before_ms, struct err *e);

/* ---- the queue ---- */

enum { STORE_JOB_MAX_QUEUED = 1024 }; /* of a kind */

/* Queues j by kind, name, priority, body and person. CHIMERE_EBUSY: STORE_JOB_MAX_QUEUED are queued. */
int store_job_share(struct store *s, const struct store_job *j, struct err *e);

struct store_job_taken {
    int64_t id;
    char *name, *body; /* owned by the caller (mem_free) */
};
/* Takes the first job of that kind, highest priority first; it is then running. Returns 1, 0 if there is none, or
 * CHIMERE_E*. */
int store_job_take(struct store *s, const char *kind, struct store_job_taken *out, struct err *e);
/* Queues a job again that this process took or started (store_job_add with a body). */
int store_job_return(struct store *s, int64_t id, struct err *e);

#endif
