/* jobs.h: one runner for background work: indexing, judging, downloads, training.
 *
 * A bounded queue ordered by priority, then by time of posting; a fixed team of workers. Two jobs of the same
 * kind and name never run at the same time in one runner: the second stays queued. Work reports progress and
 * polls for cancellation, either by jobs_continue (which also waits while the runner is paused) or by reading
 * the flag of jobs_cancel_flag; it must do so at least every 0.5 s. With a store, every job that was started or
 * cancelled has a row in its history (store/job.h). Any thread may call any function. */
#ifndef CHIMERE_JOBS_JOBS_H
#define CHIMERE_JOBS_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    JOBS_MAX_WORKERS = 16,
    JOBS_MAX_NAME = 128, /* bytes of a kind or a name */
    JOBS_MAX_TEXT = 256, /* bytes of a progress or error text; longer ones are cut */
    JOBS_MAX_QUEUED = 4096,
    JOBS_KEPT = 64,       /* ended jobs that jobs_status still finds */
    JOBS_RECORD_MS = 2000 /* least time between two records of progress in the store */
};

enum jobs_state { JOBS_QUEUED, JOBS_RUNNING, JOBS_DONE, JOBS_FAILED, JOBS_CANCELLED };
const char *
jobs_state_name(enum jobs_state s); /* "queued", "running", "done", "failed", "cancelled" */

struct jobs;     /* a runner */
struct jobs_run; /* one job, as its work sees it */
struct store;

struct jobs_params {
    int n_worker;        /* 0: 1; at most JOBS_MAX_WORKERS */
    int max_queued;      /* 0: JOBS_MAX_QUEUED */
    struct store *store; /* of the history, borrowed until jobs_close; NULL: none is kept */
};
/* Rows of the history whose process was killed while they ran become "interrupted". */
int jobs_open(struct jobs **out, const struct jobs_params *p, struct err *e);
/* Cancels everything, waits for work that runs, drops what is queued; the latter leaves no row. */
void jobs_close(struct jobs *j);

struct jobs_spec {
    const char *kind, *name; /* copied */
    int priority;            /* higher runs first */
    /* Nonzero: failed, e says why; or cancelled, if cancellation was requested. */
    int (*work)(struct jobs_run *run, void *arg, struct err *e);
    void (*drop)(
        void *arg); /* called once after the job ended, run or not; NULL: nothing to free */
    void *arg;
};
/* CHIMERE_EBUSY: the queue is full or the runner is closing; arg is then still the caller's. id may be NULL. */
int jobs_post(struct jobs *j, const struct jobs_spec *spec, int64_t *id, struct err *e);
/* A queued job ends at once; one that runs is asked to stop. CHIMERE_ENOENT: no such job, or it has ended. */
int jobs_cancel(struct jobs *j, int64_t id, struct err *e);
/* While paused no job starts, and work waits in jobs_continue. */
void jobs_pause(struct jobs *j, bool paused);
/* Until the job (0: every job) has ended. Does not return while the runner is paused with work left. */
void jobs_wait(struct jobs *j, int64_t id);

struct jobs_status {
    int64_t id;
    char kind[JOBS_MAX_NAME + 1], name[JOBS_MAX_NAME + 1];
    enum jobs_state state;
    int priority;
    int64_t n_done, n_total;      /* total 0: unknown */
    int64_t started_ms, ended_ms; /* since 1970; 0: not yet */
    char text[JOBS_MAX_TEXT];     /* of the last progress */
    char error[JOBS_MAX_TEXT];    /* FAILED */
};
/* False: no such job, or it ended too long ago. */
bool jobs_status(struct jobs *j, int64_t id, struct jobs_status *out);
/* Fills rows[0..min(n, max)) in order of posting, ended ones included; returns n. */
size_t jobs_list(struct jobs *j, struct jobs_status *rows, size_t max);

/* ---- for work ---- */

/* Waits while the runner is paused. False: stop, clean up and return. */
bool jobs_continue(struct jobs_run *run);
/* For calls that poll a flag themselves. Valid while the work runs. */
_Atomic bool *jobs_cancel_flag(struct jobs_run *run);
/* From the thread that runs the work. text is copied; NULL keeps the last. */
void jobs_progress(struct jobs_run *run, int64_t n_done, int64_t n_total, const char *text);

#endif
