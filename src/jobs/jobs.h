/* jobs.h: one runner for background work: indexing, judging, downloads, training.
 *
 * A bounded queue ordered by priority, then by time of posting; a fixed team of workers. Two jobs with the same kind
 * and name never run concurrently in one runner: the second stays queued. Work reports progress and polls for
 * cancellation, either by jobs_continue (which also waits while the runner is paused) or by reading the flag of
 * jobs_cancel_flag; it must do so at least every 0.5 s. With a store, every job that was started or cancelled has a row
 * in its history (store/job.h). Any thread may call any function.
 *
 * Processes that share a store may share jobs: those with a body, of kinds that are described in jobs_params. Such a job
 * runs here if a worker is free, and otherwise waits in the store for the first process with a free worker, on any machine
 * (store/job.h). If the process that runs it ends, another one runs it again. Without an answer from the store, jobs
 * run here. */
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
    JOBS_KEPT = 64,        /* ended jobs that jobs_status still finds */
    JOBS_RECORD_MS = 2000, /* least time between two records of progress in the store */
    JOBS_LOOK_MS = 1000,   /* time between two looks for jobs of other processes */
    JOBS_LOST_MS = 10000   /* the same for jobs of processes that have ended */
};

/* SHARED: any process may run it now, under another id. */
enum jobs_state { JOBS_QUEUED, JOBS_RUNNING, JOBS_DONE, JOBS_FAILED, JOBS_CANCELLED, JOBS_SHARED };
/* "queued", "running", "done", "failed", "cancelled", "shared" */
const char *jobs_state_name(enum jobs_state s);

struct jobs;     /* a job runner */
struct jobs_run; /* one job, for its work function */
struct store;

struct jobs_spec;

/* A kind of jobs that processes share. */
struct jobs_kind {
    const char *kind;
    /* Makes a job from a body, which another version of the program may have written: sets work, drop and arg. */
    int (*read)(void *ud, const char *name, const char *body, struct jobs_spec *out, struct err *e);
    void *ud;
};

struct jobs_params {
    int n_worker;        /* 0: 1; at most JOBS_MAX_WORKERS */
    int max_queued;      /* 0: JOBS_MAX_QUEUED */
    struct store *store; /* store of the history, borrowed until jobs_close; NULL: no history */
    const struct jobs_kind *kinds; /* [n_kind], that are shared; borrowed until jobs_close */
    int n_kind;
};
/* Rows of the history whose process was killed while the job ran become "interrupted", or are run again. */
int jobs_open(struct jobs **out, const struct jobs_params *p, struct err *e);
/* Cancels all jobs, waits for running ones, drops queued ones; queued ones leave no row in the history. Jobs with a body
 * are left to other processes, or to the next start. */
void jobs_close(struct jobs *j);

struct jobs_spec {
    const char *kind, *name; /* copied */
    int priority;            /* higher runs first */
    /* A nonzero result: the job failed, with the reason in e; or it was cancelled, if cancellation was requested. */
    int (*work)(struct jobs_run *run, void *arg, struct err *e);
    /* called once after the job has ended, whether it ran or not; NULL: nothing to free */
    void (*drop)(void *arg);
    void *arg;
    /* copied: the job as a text, if it may be shared, and whose text it is (store/person.h); NULL: it runs here */
    const char *body, *person;
};
/* CHIMERE_EBUSY: the queue is full or the runner is closing; arg then still belongs to the caller. id may be NULL. */
int jobs_post(struct jobs *j, const struct jobs_spec *spec, int64_t *id, struct err *e);
/* A queued job ends at once; a running job is asked to stop. CHIMERE_ENOENT: no such job, or it has ended. */
int jobs_cancel(struct jobs *j, int64_t id, struct err *e);
/* While the runner is paused, no job starts, and running work waits in jobs_continue. */
void jobs_pause(struct jobs *j, bool paused);
/* Waits until the job (id 0: every job) has ended; with 0 also until the store has no shared job for this runner. Does not
 * return while the runner is paused and jobs remain. */
void jobs_wait(struct jobs *j, int64_t id);

struct jobs_status {
    int64_t id;
    char kind[JOBS_MAX_NAME + 1], name[JOBS_MAX_NAME + 1];
    enum jobs_state state;
    int priority;
    int64_t n_done, n_total;      /* n_total 0: unknown */
    int64_t started_ms, ended_ms; /* since 1970; 0: not yet */
    char text[JOBS_MAX_TEXT];     /* text of the last progress report */
    char error[JOBS_MAX_TEXT];    /* valid if FAILED */
};
/* Returns false if there is no such job, or it ended too long ago. */
bool jobs_status(struct jobs *j, int64_t id, struct jobs_status *out);
/* Fills rows[0..min(n, max)) in the order of posting, including ended jobs; returns n. */
size_t jobs_list(struct jobs *j, struct jobs_status *rows, size_t max);

/* ---- for work functions ---- */

/* Waits while the runner is paused. Returns false if the work must stop, clean up and return. */
bool jobs_continue(struct jobs_run *run);
/* For functions that poll a flag themselves. Valid while the work runs. */
_Atomic bool *jobs_cancel_flag(struct jobs_run *run);
/* Call from the thread that runs the work. text is copied; NULL keeps the previous text. */
void jobs_progress(struct jobs_run *run, int64_t n_done, int64_t n_total, const char *text);

#endif
