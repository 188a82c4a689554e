/* jobs_shared.c: the thread of a runner that shares jobs with other processes: it writes jobs that find no free worker to
 * the store, and takes jobs from there for workers that are free. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "jobs/jobs_impl.h"
#include "store/job.h"

bool jobs_shares(const struct jobs *j, const char *kind) {
    for (int i = 0; i < j->n_kind; i++)
        if (!strcmp(j->kinds[i].kind, kind)) return true;
    return false;
}

static bool write_to_store(struct jobs_run *r) {
    const struct store_job job = {.kind = r->s.kind,
                                  .name = r->s.name,
                                  .priority = r->s.priority,
                                  .body = r->body,
                                  .person = r->person};
    struct err e = {0};
    int rc = store_job_share(r->jobs->store, &job, &e);
    if (rc && rc != CHIMERE_EBUSY) log_warn("jobs: %s", e.text);
    return !rc;
}

bool jobs_share_leave(struct jobs_run *r) {
    struct err e = {0};
    if (!r->row) return write_to_store(r);
    int rc = store_job_return(r->jobs->store, r->row, &e);
    if (rc) log_warn("jobs: %s", e.text);
    return !rc;
}

/* ---- call with the lock held ---- */

/* Returns a job that no worker is free for and that another process could run; NULL: none. */
static struct jobs_run *waiting(const struct jobs *j) {
    if (j->n_running < j->n_worker && !j->paused) return NULL;
    for (struct jobs_run *r = j->first; r; r = r->next)
        if (r->s.state == JOBS_QUEUED && r->body && !r->row && !r->stays) return r;
    return NULL;
}

static void share(struct jobs_run *r) {
    struct jobs *j = r->jobs;
    r->is_sharing = true;
    pthread_mutex_unlock(&j->lock);
    bool ok = write_to_store(r);
    pthread_mutex_lock(&j->lock);
    r->is_sharing = false;
    r->stays = !ok;
    if (ok) {
        j->look_ns = 0; /* it may be this process that has a free worker first */
        jobs_drop(r, JOBS_SHARED);
    } else if (r->cancelled && !r->returns) {
        jobs_drop(r, JOBS_CANCELLED);
    } else {
        pthread_cond_broadcast(&j->changed);
    }
}

/* Makes a queued job of one that was taken, or says in the store why that is not possible. Without the lock. */
static struct jobs_run *run_of(struct jobs *j, const struct jobs_kind *k,
                               struct store_job_taken *t) {
    struct err e = {0};
    struct jobs_run *r = mem_zalloc(sizeof *r);
    int rc = r ? 0 : err_set(&e, CHIMERE_ENOMEM, "out of memory");
    if (!rc) rc = k->read(k->ud, t->name, t->body, &r->spec, &e);
    if (rc) {
        const struct store_job failed = {
            .id = t->id, .state = "failed", .ended_ms = store_now_ms(), .error = e.text};
        store_job_update(j->store, &failed, NULL);
        log_warn("jobs: %s: %s", t->name, e.text);
        mem_free(r);
        mem_free(t->body);
        return NULL;
    }
    snprintf(r->s.kind, sizeof r->s.kind, "%s", k->kind);
    snprintf(r->s.name, sizeof r->s.name, "%s", t->name);
    r->row = t->id;
    r->body = t->body;
    return r;
}

/* Takes a job of any kind from the store. */
static void look(struct jobs *j) {
    uint64_t number = ++j->n_look;
    int rc = 0;
    bool is_lost_due = clock_ns() >= j->lost_ns;
    j->look_ns = clock_ns() + JOBS_LOOK_MS * INT64_C(1000000);
    if (is_lost_due) j->lost_ns = clock_ns() + JOBS_LOST_MS * INT64_C(1000000);
    pthread_mutex_unlock(&j->lock);
    struct err e = {0};
    struct jobs_run *r = NULL;
    if (is_lost_due && store_job_interrupt(j->store, &e)) log_debug("jobs: %s", e.text);
    for (int i = 0; rc <= 0 && i < j->n_kind; i++) {
        struct store_job_taken t;
        rc = store_job_take(j->store, j->kinds[i].kind, &t, &e);
        if (rc > 0) r = run_of(j, &j->kinds[i], &t);
        if (rc > 0) mem_free(t.name);
    }
    pthread_mutex_lock(&j->lock);
    if (rc > 0) j->look_ns = 0;
    else j->none_at = number;
    if (r) jobs_append(j, r);
    pthread_cond_broadcast(&j->changed);
}

static void *sharer(void *ud) {
    struct jobs *j = ud;
    pthread_mutex_lock(&j->lock);
    while (!j->closing) {
        struct jobs_run *r = waiting(j);
        bool is_idle = !j->paused && j->n_running + j->n_queued < j->n_worker;
        if (r) share(r);
        else if (is_idle && clock_ns() >= j->look_ns) look(j);
        else if (is_idle) thread_wait_until(&j->share, &j->lock, j->look_ns);
        else pthread_cond_wait(&j->share, &j->lock);
    }
    pthread_mutex_unlock(&j->lock);
    return NULL;
}

int jobs_share_start(struct jobs *j) {
    if (!j->n_kind) return 0;
    int rc = thread_cond_init(&j->share);
    if (rc) return rc;
    pthread_mutex_lock(&j->lock);
    rc = pthread_create(&j->sharer, NULL, sharer, j);
    j->has_sharer = !rc;
    pthread_mutex_unlock(&j->lock);
    if (rc) pthread_cond_destroy(&j->share);
    return rc;
}

void jobs_share_stop(struct jobs *j) {
    if (!j->has_sharer) return;
    pthread_mutex_lock(&j->lock);
    pthread_cond_signal(&j->share);
    pthread_mutex_unlock(&j->lock);
    pthread_join(j->sharer, NULL);
}
