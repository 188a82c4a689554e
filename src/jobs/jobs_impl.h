/* jobs_impl.h: a runner, for jobs.c and jobs_shared.c. */
#ifndef CHIMERE_JOBS_JOBS_IMPL_H
#define CHIMERE_JOBS_JOBS_IMPL_H

#include "base/thread.h"
#include "jobs/jobs.h"

struct jobs_run {
    struct jobs_run *next; /* list in the order of posting */
    struct jobs *jobs;     /* view */
    struct jobs_status s;  /* guarded by the runner's lock */
    struct jobs_spec spec; /* kind, name, body and person are not used */
    char *body, *person;   /* owned; NULL: the job is not shared */
    _Atomic bool cancelled;
    bool is_sharing;     /* it is being written to the store, and no worker takes it */
    bool stays;          /* the store did not take it */
    bool returns;        /* cancelled only because the runner closes */
    int n_waiting;       /* callers in jobs_wait; keeps an ended job from being freed */
    int64_t row;         /* row in the history; 0: none. Only the job's worker uses it */
    int64_t recorded_ns; /* same */
};

struct jobs {
    struct store *store;           /* borrowed; or NULL */
    const struct jobs_kind *kinds; /* borrowed [n_kind] */
    int n_kind, max_queued;
    pthread_mutex_t lock; /* guards the following fields */
    pthread_cond_t changed;
    struct jobs_run *first; /* owned list */
    int64_t last_id;
    int n_queued, n_running, n_ended;
    bool paused, closing;
    int n_worker;
    pthread_t workers[JOBS_MAX_WORKERS];
    /* the thread that shares: looks that were begun, and the last one that found nothing */
    pthread_cond_t share;
    bool has_sharer;
    pthread_t sharer;
    uint64_t n_look, none_at;
    int64_t look_ns,
        lost_ns; /* times of the next look, and of the next one for processes that ended */
};

/* jobs.c; call with the lock held */
void jobs_append(struct jobs *j, struct jobs_run *r); /* as queued; r belongs to the runner */
/* Ends a queued job in that state without a record; the lock is released meanwhile. */
void jobs_drop(struct jobs_run *r, enum jobs_state state);
void jobs_free_run(struct jobs_run *r);

/* jobs_shared.c */
bool jobs_shares(const struct jobs *j, const char *kind);
int jobs_share_start(struct jobs *j); /* 0 or an errno value; nothing to do without kinds */
void jobs_share_stop(struct jobs *j);
/* Leaves a queued job with a body to other processes; without the lock. Returns false if the store does not take it. */
bool jobs_share_leave(struct jobs_run *r);

#endif
