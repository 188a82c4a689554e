#include "jobs/jobs.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "jobs/jobs_impl.h"
#include "store/job.h"

const char *jobs_state_name(enum jobs_state s) {
    static const char *const names[] = {"queued", "running",   "done",
                                        "failed", "cancelled", "shared"};
    return names[s];
}

/* ---- history ---- */

/* Writes a copy of the status to the store, so that the lock is not held while the store is slow. */
static void record(struct jobs_run *r, const struct jobs_status *s) {
    struct store *store = r->jobs->store;
    if (!store) return;
    bool is_shared = s->state == JOBS_RUNNING && r->body;
    const struct store_job row = {.id = r->row,
                                  .kind = s->kind,
                                  .name = s->name,
                                  .state = jobs_state_name(s->state),
                                  .started_ms = s->started_ms,
                                  .ended_ms = s->ended_ms,
                                  .n_done = s->n_done,
                                  .n_total = s->n_total,
                                  .progress = s->text,
                                  .error = s->error,
                                  .priority = s->priority,
                                  .body = is_shared ? r->body : NULL,
                                  .person = is_shared ? r->person : NULL};
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
        if (r->s.state == JOBS_QUEUED && !r->is_sharing &&
            (!best || r->s.priority > best->s.priority) && !is_locked(j, r))
            best = r;
    return best;
}

void jobs_free_run(struct jobs_run *r) {
    mem_free(r->body);
    mem_free(r->person);
    mem_free(r);
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
        jobs_free_run(r);
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
    bool returns = state == JOBS_CANCELLED && r->returns && r->body && j->store;
    pthread_mutex_unlock(&j->lock);
    if (returns) jobs_share_leave(r);
    else if (state != JOBS_SHARED) record(r, &s);
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
    if (r->jobs->has_sharer) pthread_cond_signal(&r->jobs->share); /* others may have to wait now */
}

void jobs_drop(struct jobs_run *r, enum jobs_state state) {
    claim(r);
    end(r, state, "");
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
    if (j->has_sharer) pthread_cond_signal(&j->share); /* a worker is free */
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
    j->kinds = p->kinds;
    j->n_kind = p->store ? p->n_kind : 0;
    j->max_queued =
        p->max_queued > 0 && p->max_queued < JOBS_MAX_QUEUED ? p->max_queued : JOBS_MAX_QUEUED;
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->changed, NULL);
    while (j->n_worker < n && !pthread_create(&j->workers[j->n_worker], NULL, worker, j))
        j->n_worker++;
    if (j->n_worker == n && !jobs_share_start(j)) {
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
    for (struct jobs_run *r = j->first; r; r = r->next) {
        r->returns = !r->cancelled;
        r->cancelled = true;
    }
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
    jobs_share_stop(j);
    for (int i = 0; i < j->n_worker; i++) pthread_join(j->workers[i], NULL);
    for (struct jobs_run *r = j->first; r; r = r->next)
        if (r->s.state == JOBS_QUEUED && r->body && !jobs_share_leave(r)) break;
    j->store = NULL; /* otherwise a locked store would delay the end of each queued job */
    pthread_mutex_lock(&j->lock);
    for (struct jobs_run *r = j->first; r;) {
        bool queued = r->s.state == JOBS_QUEUED;
        if (queued) jobs_drop(r, JOBS_CANCELLED);
        r = queued ? j->first : r->next; /* end() may have freed neighbours in the list */
    }
    pthread_mutex_unlock(&j->lock);
    for (struct jobs_run *r = j->first, *next; r; r = next) {
        next = r->next;
        jobs_free_run(r);
    }
    if (j->has_sharer) pthread_cond_destroy(&j->share);
    pthread_cond_destroy(&j->changed);
    pthread_mutex_destroy(&j->lock);
    mem_free(j);
}

void jobs_append(struct jobs *j, struct jobs_run *r) {
    struct jobs_run **at = &j->first;
    while (*at) at = &(*at)->next;
    *at = r;
    r->jobs = j;
    r->s.id = ++j->last_id;
    j->n_queued++;
    pthread_cond_broadcast(&j->changed);
    if (j->has_sharer) pthread_cond_signal(&j->share);
}

static struct jobs_run *run_of(const struct jobs *j, const struct jobs_spec *spec) {
    struct jobs_run *r = mem_zalloc(sizeof *r);
    if (!r) return NULL;
    r->spec = *spec;
    r->s.priority = spec->priority;
    snprintf(r->s.kind, sizeof r->s.kind, "%s", spec->kind);
    snprintf(r->s.name, sizeof r->s.name, "%s", spec->name);
    if (!spec->body || !jobs_shares(j, spec->kind)) return r;
    r->body = mem_strdup(spec->body);
    r->person = mem_strdup(spec->person ? spec->person : "");
    if (r->body && r->person) return r;
    jobs_free_run(r);
    return NULL;
}

int jobs_post(struct jobs *j, const struct jobs_spec *spec, int64_t *id, struct err *e) {
    if (strlen(spec->kind) > JOBS_MAX_NAME || strlen(spec->name) > JOBS_MAX_NAME)
        return err_set(e, CHIMERE_ELIMIT, "job: expected a name of at most %d bytes",
                       JOBS_MAX_NAME);
    struct jobs_run *r = run_of(j, spec);
    if (!r) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    pthread_mutex_lock(&j->lock);
    bool room = !j->closing && j->n_queued < j->max_queued;
    if (room) {
        jobs_append(j, r);
        if (id) *id = r->s.id;
    }
    bool closing = j->closing;
    pthread_mutex_unlock(&j->lock);
    if (room) return 0;
    jobs_free_run(r);
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
    if (found && r->s.state == JOBS_QUEUED && !r->is_sharing) jobs_drop(r, JOBS_CANCELLED);
    pthread_mutex_unlock(&j->lock);
    return found ? 0 : err_set(e, CHIMERE_ENOENT, "job: none with id %lld", (long long)id);
}

void jobs_pause(struct jobs *j, bool paused) {
    pthread_mutex_lock(&j->lock);
    j->paused = paused;
    pthread_cond_broadcast(&j->changed);
    if (j->has_sharer) pthread_cond_signal(&j->share);
    pthread_mutex_unlock(&j->lock);
}

void jobs_wait(struct jobs *j, int64_t id) {
    pthread_mutex_lock(&j->lock);
    struct jobs_run *r = id ? find(j, id) : NULL;
    uint64_t looks = j->n_look; /* a later look tells whether the store has jobs */
    if (r) r->n_waiting++;
    while (id ? r && !has_ended(r)
              : j->n_queued || j->n_running ||
                    (j->has_sharer && !j->paused && j->none_at <= looks)) {
        if (!id && j->has_sharer) {
            j->look_ns = 0;
            pthread_cond_signal(&j->share);
        }
        pthread_cond_wait(&j->changed, &j->lock);
    }
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
