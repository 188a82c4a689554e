/* step_reindex.c: reads changed and new documents and forgets deleted ones, one job per collection. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/os/os.h"
#include "jobs/jobs.h"
#include "learn/step/night_step.h"
#include "retrieval/docs_refresh.h"
#include "store/doc.h"
#include "store/doc_scope.h"

enum { MAX_COLLECTIONS = 256, POLL_MS = 10 };

struct task {
    struct docs *docs; /* borrowed */
    char *collection;  /* owned */
    struct docs_report report;
};

struct tasks {
    struct docs *docs;
    struct task v[MAX_COLLECTIONS];
    size_t n;
};

static int add_collection(void *ud, const struct store_doc *d) {
    struct tasks *t = ud;
    if (store_doc_is_private(d->collection) && *d->path != '/') return 0; /* was uploaded */
    for (size_t i = 0; i < t->n; i++)
        if (!strcmp(t->v[i].collection, d->collection)) return 0;
    if (t->n == MAX_COLLECTIONS) return CHIMERE_ELIMIT;
    char *name = mem_strdup(d->collection);
    if (!name) return CHIMERE_ENOMEM;
    t->v[t->n++] = (struct task){.docs = t->docs, .collection = name};
    return 0;
}

static int work(struct jobs_run *run, void *arg, struct err *e) {
    struct task *t = arg;
    int rc = docs_refresh(t->docs, t->collection, jobs_cancel_flag(run), &t->report, e);
    jobs_progress(run, t->report.n_seen, t->report.n_seen, store_doc_shown(t->collection));
    return rc;
}

/* Waits for a job; asks it to stop if the night must end. */
static int wait_for(struct night *x, struct jobs *jobs, int64_t id, struct err *e) {
    struct jobs_status s;
    while (jobs_status(jobs, id, &s) && (s.state == JOBS_QUEUED || s.state == JOBS_RUNNING)) {
        if (!night_goes_on(x)) jobs_cancel(jobs, id, NULL);
        os_sleep_ms(POLL_MS);
    }
    if (s.state == JOBS_DONE) return 0;
    if (s.state == JOBS_FAILED) return err_set(e, CHIMERE_EIO, "%s", s.error);
    return err_set(e, CHIMERE_ECANCELLED, "the night was stopped, or its budget is spent");
}

static int refresh_all(struct night *x, struct tasks *t, struct err *e) {
    const struct jobs_params p = {.n_worker = 1, .store = x->host->store};
    struct jobs *jobs;
    int rc = jobs_open(&jobs, &p, e);
    if (rc) return rc;
    for (size_t i = 0; !rc && i < t->n; i++) {
        char name[JOBS_MAX_NAME + 1];
        int64_t id;
        snprintf(name, sizeof name, "%s", t->v[i].collection);
        const struct jobs_spec spec = {
            .kind = "reindex", .name = name, .work = work, .arg = &t->v[i]};
        rc = jobs_post(jobs, &spec, &id, e);
        if (!rc) rc = wait_for(x, jobs, id, e);
    }
    jobs_close(jobs);
    return rc;
}

static void report(const struct tasks *t, char why[256]) {
    struct docs_report all = {0};
    for (size_t i = 0; i < t->n; i++) {
        const struct docs_report *r = &t->v[i].report;
        all.n_seen += r->n_seen;
        all.n_read += r->n_read;
        all.n_new += r->n_new;
        all.n_removed += r->n_removed;
        all.n_skipped += r->n_skipped;
        all.n_failed += r->n_failed;
    }
    snprintf(why, 256,
             "%zu collections: %d files looked at, %d read again, %d new, %d forgotten, %d left as "
             "they are, %d failed",
             t->n, all.n_seen, all.n_read - all.n_new, all.n_new, all.n_removed, all.n_skipped,
             all.n_failed);
}

static int propose(struct night *x, const char *path, struct night_gain *gain, char why[256],
                   struct err *e) {
    struct docs *own = NULL;
    struct tasks *t = mem_zalloc(sizeof *t);
    int rc = t ? 0 : err_set(e, CHIMERE_ENOMEM, "out of memory");
    (void)path, (void)gain;
    if (!rc && !x->host->docs) rc = docs_open(&own, x->host->store, NULL, e);
    if (!rc) t->docs = own ? own : x->host->docs;
    if (!rc) rc = store_doc_list(x->host->store, NULL, add_collection, t, e);
    if (rc == CHIMERE_ENOMEM) err_set(e, rc, "out of memory");
    if (rc == CHIMERE_ELIMIT) err_set(e, rc, "reindex: more than %d collections", MAX_COLLECTIONS);
    if (!rc) rc = refresh_all(x, t, e);
    if (!rc) report(t, why);
    for (size_t i = 0; t && i < t->n; i++) mem_free(t->v[i].collection);
    mem_free(t);
    docs_close(own);
    return rc;
}

const struct night_step night_step_reindex = {
    .name = "reindex",
    .about = "changed and new documents are read, deleted ones forgotten",
    .time = "6h",
    .is_upkeep = true,
    .propose = propose};
