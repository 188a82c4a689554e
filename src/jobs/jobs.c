#include "jobs/jobs.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "store/job.h"

struct jobs_run {
    struct jobs_run *next; /* list in the order of posting */
    struct jobs *jobs;     /* view */
    struct jobs_status s;  /* guarded by the runner's lock */
    struct jobs_spec spec; /* kind and name are not used */
    _Atomic bool cancelled;
    int n_waiting;       /* callers in jobs_wait; keeps an ended job from being freed */
    int64_t row;         /* row in the history; 0: none. Only the job's worker uses it */
    int64_t recorded_ns; /* same */
};

struct jobs {
    struct store *store; /* borrowed; or NULL */
    int max_queued;
    pthread_mutex_t lock; /* guards the following fields */
    pthread_cond_t changed;
    struct jobs_run *first; /* owned list */
    int64_t last_id;
    int n_queued, n_running, n_ended;
    bool paused, closing;
    int n_worker;
    pthread_t workers[JOBS_MAX_WORKERS];
};

const char *jobs_state_name(enum jobs_state s) {
    static const char *const names[] = {"queued", "running", "done", "failed", "cancelled"};
    return names[s];
}

/* ---- history ---- */

/* Writes a copy of the status to the store, so that the lock is not held while the store is slow. */
static void record(struct jobs_run *r, const struct jobs_status *s) {
    struct store *store = r->jobs->store;
    if (!store) return;
    const struct store_job row = {.id = r->row,
                                  .kind = s->kind,
                                  .name = s->name,
                                  .state = jobs_state_name(s->state),
                                  .started_ms = s->started_ms,
                                  .ended_ms = s->ended_ms,
                                  .n_done = s->n_done,
                                  .n_total = s->n_total,
                                  .progress = s->text,
                                  .error = s->error};
    struct err e = {0};
    int rc = r->row ? store_job_update(store, &row, &e) : store_job_add(store, &row, &r->row, &e);
    if (rc) log_warn("jobs: %s", e.text);
    r->recorded_ns = clock_ns();
}

/* ---- the list of jobs; call with the lock held ---- */

static bool has_ended(const struct jobs_run *r) { return r->s.state >= JOBS_DONE; }

static struct jobs_run *find(const struct jobs *j, int64_t id) {
    struct jobs_run *r = j->first;
    while (r && r->s.id != id) r = r->next;
    return r;
}

static bool is_locked(const struct jobs *j, const struct jobs_run *r) {
    for (const struct jobs_run *x = j->first; x; x = x->next)
        if (x->s.state == JOBS_RUNNING && !strcmp(x->s.kind, r->s.kind) &&
            !strcmp(x->s.name, r->s.name))
            return true;
    return false;
}

static struct jobs_run *pick(const struct jobs *j) {
    struct jobs_run *best = NULL;
    for (struct jobs_run *r = j->paused ? NULL : j->first; r; r = r->next)
        if (r->s.state == JOBS_QUEUED && (!best || r->s.priority > best->s.priority) &&
            !is_locked(j, r))
            best = r;
    return best;
}

/* Frees the oldest ended jobs if there are more than JOBS_KEPT. */
static void prune(struct jobs *j) {
    for (struct jobs_run **at = &j->first; *at && j->n_ended > JOBS_KEPT;) {
        struct jobs_run *r = *at;
        if (!has_ended(r) || r->n_waiting) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        j->n_ended--;
        mem_free(r);
    }
}

/* ---- running ---- */

/* Ends a job that is no longer counted as queued: sets its state, records it and frees its argument. Call with the lock
 * held; it is held again on return. drop and the store are called without it. Other threads see the job as ended only
 * after that. */
static void end(struct jobs_run *r, enum jobs_state state, const char *error) {
    struct jobs *j = r->jobs;
    struct jobs_status s = r->s;
    s.state = state;
    s.ended_ms = store_now_ms();
    if (!s.started_ms) s.started_ms = s.ended_ms;
    snprintf(s.error, sizeof s.error, "%s", error);
    pthread_mutex_unlock(&j->lock);
    record(r, &s);
    if (r->spec.drop) r->spec.drop(r->spec.arg);
    pthread_mutex_lock(&j->lock);
    r->s = s;
    j->n_running--;
    j->n_ended++;
    prune(j);
    pthread_cond_broadcast(&j->changed);
}

/* Takes a queued job out of the queue. Until end() it counts as running, so that no other worker takes it. */
static void claim(struct jobs_run *r) {
    r->s.state = JOBS_RUNNING;
    r->jobs->n_queued--;
    r->jobs->n_running++;
}

static void run(struct jobs_run *r) {
    struct jobs *j = r->jobs;
    claim(r);
    r->s.started_ms = store_now_ms();
    const struct jobs_status s = r->s;
    pthread_mutex_unlock(&j->lock);
    record(r, &s);
    struct err e = {0};
    int rc = r->spec.work(r, r->spec.arg, &e);
    enum jobs_state state = !rc ? JOBS_DONE : r->cancelled ? JOBS_CANCELLED : JOBS_FAILED;
    if (rc && !e.text[0]) err_set(&e, rc, "it failed with code %d", rc);
    pthread_mutex_lock(&j->lock);
    end(r, state, state == JOBS_FAILED ? e.text : "");
}

static void *worker(void *ud) {
    struct jobs *j = ud;
    pthread_mutex_lock(&j->lock);
    while (!j->closing) {
        struct jobs_run *r = pick(j);
        if (r) run(r);
        else pthread_cond_wait(&j->changed, &j->lock);
    }
    pthread_mutex_unlock(&j->lock);
    return NULL;
}

bool jobs_continue(struct jobs_run *r) {
    struct jobs *j = r->jobs;
    pthread_mutex_lock(&j->lock);
    while (j->paused && !r->cancelled) pthread_cond_wait(&j->changed, &j->lock);
    pthread_mutex_unlock(&j->lock);
    return !r->cancelled;
}

_Atomic bool *jobs_cancel_flag(struct jobs_run *r) { return &r->cancelled; }

void jobs_progress(struct jobs_run *r, int64_t n_done, int64_t n_total, const char *text) {
    struct jobs *j = r->jobs;
    pthread_mutex_lock(&j->lock);
    r->s.n_done = n_done;
    r->s.n_total = n_total;
    if (text) snprintf(r->s.text, sizeof r->s.text, "%s", text);
    const struct jobs_status s = r->s;
    pthread_mutex_unlock(&j->lock);
    if (clock_ns() - r->recorded_ns >= (int64_t)JOBS_RECORD_MS * 1000000) record(r, &s);
}

/* ---- the runner ---- */

int jobs_open(struct jobs **out, const struct jobs_params *p, struct err *e) {
    *out = NULL;
    int n = p->n_worker > 0 ? p->n_worker : 1;
    if (n > JOBS_MAX_WORKERS)
        return err_set(e, CHIMERE_EINVAL, "workers: expected at most %d, got %d", JOBS_MAX_WORKERS,
                       n);
    struct err why = {0};
    if (p->store && store_job_interrupt(p->store, &why)) log_warn("jobs: %s", why.text);
    struct jobs *j = mem_zalloc(sizeof *j);
    if (!j) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    j->store = p->store;
    j->max_queued =
        p->max_queued > 0 && p->max_queued < JOBS_MAX_QUEUED ? p->max_queued : JOBS_MAX_QUEUED;
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->changed, NULL);
    while (j->n_worker < n && !pthread_create(&j->workers[j->n_worker], NULL, worker, j))
        j->n_worker++;
    if (j->n_worker == n) {
        *out = j;
        return 0;
    }
    jobs_close(j);
    return err_set(e, CHIMERE_EBUSY, "jobs: cannot start a thread");
}

void jobs_close(struct jobs *j) {
    if (!j) return;
    pthread_mutex_lock(&j->lock);
    j->closing = true;
    for (struct jobs_run *r = j->first; r; r = r->next) r->cancelled = true;
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
    for (int i = 0; i < j->n_worker; i++) pthread_join(j->workers[i], NULL);
    j->store = NULL; /* otherwise a locked store would delay the end of each queued job */
    pthread_mutex_lock(&j->lock);
    for (struct jobs_run *r = j->first; r;) {
        bool queued = r->s.state == JOBS_QUEUED;
        if (queued) {
            claim(r);
            end(r, JOBS_CANCELLED, "");
        }
        r = queued ? j->first : r->next; /* end() may have freed neighbours in the list */
    }
    pthread_mutex_unlock(&j->lock);
    for (struct jobs_run *r = j->first, *next; r; r = next) {
        next = r->next;
        mem_free(r);
    }
    pthread_cond_destroy(&j->changed);
    pthread_mutex_destroy(&j->lock);
    mem_free(j);
}

int jobs_post(struct jobs *j, const struct jobs_spec *spec, int64_t *id, struct err *e) {
    if (strlen(spec->kind) > JOBS_MAX_NAME || strlen(spec->name) > JOBS_MAX_NAME)
        return err_set(e, CHIMERE_ELIMIT, "job: expected a name of at most %d bytes",
                       JOBS_MAX_NAME);
    struct jobs_run *r = mem_zalloc(sizeof *r);
    if (!r) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    r->jobs = j;
    r->spec = *spec;
    r->s.priority = spec->priority;
    snprintf(r->s.kind, sizeof r->s.kind, "%s", spec->kind);
    snprintf(r->s.name, sizeof r->s.name, "%s", spec->name);
    pthread_mutex_lock(&j->lock);
    bool room = !j->closing && j->n_queued < j->max_queued;
    if (room) {
        r->s.id = ++j->last_id;
        if (id) *id = r->s.id;
        struct jobs_run **at = &j->first;
        while (*at) at = &(*at)->next;
        *at = r;
        j->n_queued++;
        pthread_cond_broadcast(&j->changed);
    }
    bool closing = j->closing;
    pthread_mutex_unlock(&j->lock);
    if (room) return 0;
    mem_free(r);
    return err_set(e, CHIMERE_EBUSY, "job: the queue is %s", closing ? "closing" : "full");
}

int jobs_cancel(struct jobs *j, int64_t id, struct err *e) {
    pthread_mutex_lock(&j->lock);
    struct jobs_run *r = find(j, id);
    bool found = r && !has_ended(r);
    if (found) {
        r->cancelled = true;
        pthread_cond_broadcast(&j->changed);
    }
    if (found && r->s.state == JOBS_QUEUED) {
        claim(r);
        end(r, JOBS_CANCELLED, "");
    }
    pthread_mutex_unlock(&j->lock);
    return found ? 0 : err_set(e, CHIMERE_ENOENT, "job: none with id %lld", (long long)id);
}

void jobs_pause(struct jobs *j, bool paused) {
    pthread_mutex_lock(&j->lock);
    j->paused = paused;
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
}

void jobs_wait(struct jobs *j, int64_t id) {
    pthread_mutex_lock(&j->lock);
    struct jobs_run *r = id ? find(j, id) : NULL;
    if (r) r->n_waiting++;
    while (id ? r && !has_ended(r) : j->n_queued || j->n_running)
        pthread_cond_wait(&j->changed, &j->lock);
    if (r) r->n_waiting--;
    pthread_mutex_unlock(&j->lock);
}

bool jobs_status(struct jobs *j, int64_t id, struct jobs_status *out) {
    pthread_mutex_lock(&j->lock);
    const struct jobs_run *r = find(j, id);
    if (r) *out = r->s;
    pthread_mutex_unlock(&j->lock);
    return r;
}

size_t jobs_list(struct jobs *j, struct jobs_status *rows, size_t max) {
    size_t n = 0;
    pthread_mutex_lock(&j->lock);
    for (const struct jobs_run *r = j->first; r; r = r->next, n++)
        if (n < max) rows[n] = r->s;
    pthread_mutex_unlock(&j->lock);
    return n;
}
