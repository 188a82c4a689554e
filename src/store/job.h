/* job.h: the history of background jobs (jobs/jobs.h): one row per job that was started or cancelled. */
#ifndef CHIMERE_STORE_JOB_H
#define CHIMERE_STORE_JOB_H

#include "store/store.h"

struct store_job {
    int64_t id;
    const char *kind, *name; /* view */
    const char *state;       /* view: "running", "done", "failed", "cancelled", "interrupted" */
    int64_t started_ms, ended_ms; /* ended_ms 0: not ended yet */
    int64_t n_done, n_total;      /* total 0: unknown */
    const char *progress;         /* view: the last progress text, or "" */
    const char *error;            /* view: why it failed, or "" */
};
/* id is ignored; the row's id is returned in *id. */
int store_job_add(struct store *s, const struct store_job *j, int64_t *id, struct err *e);
/* Overwrites all but kind, name and start of row j->id; no error if it was deleted meanwhile. */
int store_job_update(struct store *s, const struct store_job *j, struct err *e);
/* Lists the newest first, at most `most`; kind NULL: all. If `each` returns nonzero, the list stops and returns that value. */
int store_job_list(struct store *s, const char *kind, int32_t most,
                   int (*each)(void *ud, const struct store_job *j), void *ud, struct err *e);
/* Marks rows that are "running" as "interrupted" if their process has ended, on any machine. */
int store_job_interrupt(struct store *s, struct err *e);
/* Deletes jobs that started before before_ms and do not run. Returns their number, or CHIMERE_E*. */
int64_t store_job_forget(struct store *s, int64_t before_ms, struct err *e);

#endif
