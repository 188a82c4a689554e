/* lm_tensor.c: a step on slices of every layer. Each device computes all layers on its slice concurrently; the partial
 * results of each half layer are summed over the devices (kernels/link.h). An exchange blocks the thread of each device,
 * so every device has its own: the engine's thread drives the first device, a worker each of the others. */
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "engine/lm/lm_parts.h"
#include "kernels/link.h"

struct worker {
    struct tensor *t; /* view */
    pthread_t thread;
    int32_t rank;
};

struct tensor {
    struct parts *x;   /* view */
    struct link *link; /* owned */
    float *rows;       /* owned [n_row_max, n_vocab]: joined logits of all slices */
    float *joined; /* the same on the first device, owned; NULL: no direct access between devices */
    int32_t n_joined; /* rows there, of the last run */
    struct worker worker[GPUS_MAX];
    int32_t n_worker;
    bool is_lost; /* a device has not finished within the deadline and never will */

    /* the current step; a rank's results belong to that rank's thread until the step is done */
    int32_t n_run;
    bool measures;    /* instead of a batch: the link */
    lm_part_fn *task; /* instead of a batch; NULL: none */
    void *task_arg;
    bool joins; /* logits stay on the first device */
    const float *logits[GPUS_MAX];
    struct err err[GPUS_MAX];
    int done_by[GPUS_MAX]; /* what the task returned */

    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    int64_t spin_ns;       /* threads poll so long before they sleep; 0: on the processor */
    _Atomic uint64_t step; /* this field and all below change under lock */
    _Atomic int32_t n_busy;
    bool quit;
};

/* Waking a thread that sleeps takes 50 us, about as long as a layer of a large model. */
enum { SPIN_NS = 300 * 1000 };

static void spin_for_step(struct tensor *t, uint64_t seen) {
    int64_t until = t->spin_ns ? clock_ns() + t->spin_ns : 0;
    while (until && atomic_load(&t->step) == seen && clock_ns() < until) continue;
}

static void spin_for_others(struct tensor *t) {
    int64_t until = t->spin_ns ? clock_ns() + t->spin_ns : 0;
    while (until && atomic_load(&t->n_busy) && clock_ns() < until) continue;
}

static void run_rank(struct tensor *t, int32_t rank) {
    struct part *p = &t->x->part[rank];
    t->err[rank].code = 0;
    if (t->measures) {
        link_measure(t->link, rank);
        return;
    }
    if (t->task) {
        int rc = t->done_by[rank] = t->task(t->x, rank, t->task_arg, &t->err[rank]);
        t->err[rank].code = rc < 0 ? rc : 0;
        if (rc < 0) link_leave(t->link, rank);
        return;
    }
    int rc = forward_run_part(p->f, p->items, t->n_run, NULL, NULL,
                              t->joins ? NULL : &t->logits[rank], &t->err[rank]);
    t->err[rank].code = rc;
    if (rc) link_leave(t->link, rank);
}

static void *work(void *arg) {
    struct worker *w = arg;
    struct tensor *t = w->t;
    uint64_t seen = 0;
    for (;;) {
        spin_for_step(t, seen);
        pthread_mutex_lock(&t->lock);
        while (!t->quit && t->step == seen) pthread_cond_wait(&t->wake, &t->lock);
        if (t->quit) break;
        seen = t->step;
        pthread_mutex_unlock(&t->lock);
        run_rank(t, w->rank);
        pthread_mutex_lock(&t->lock);
        if (!--t->n_busy) pthread_cond_signal(&t->done);
        pthread_mutex_unlock(&t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* Waits for the other ranks: they finish with the last exchange, or soon after an exchange failed. Returns false if one
 * does not finish within the deadline. */
static bool wait_for_all(struct tensor *t) {
    int64_t until = clock_ns() + (int64_t)2 * LINK_DEADLINE_MS * 1000000;
    bool in_time = true;
    spin_for_others(t);
    pthread_mutex_lock(&t->lock);
    while (t->n_busy && in_time) in_time = thread_wait_until(&t->done, &t->lock, until);
    bool ok = !t->n_busy;
    pthread_mutex_unlock(&t->lock);
    return ok;
}

/* Returns the error of the device that caused the failure if it is known, rather than that of a device that only waited
 * for it in an exchange. */
static int first_failure(const struct tensor *t, struct err *e) {
    int32_t at = -1;
    struct err none;
    bool missed = link_status(t->link, &none) != 0;
    for (int32_t i = 0; i < t->x->n; i++) {
        if (!t->err[i].code) continue;
        bool is_cause = missed && strcmp(t->err[i].text, none.text) != 0;
        if (at < 0 || is_cause) at = i;
        if (is_cause) break;
    }
    if (at < 0) return 0;
    *e = t->err[at];
    return e->code;
}

static int32_t count_rows(const struct batch_item *runs, int32_t n_run) {
    int32_t n = 0;
    for (int32_t i = 0; i < n_run; i++)
        n += runs[i].want == WANT_ALL ? runs[i].n_tok : runs[i].want == WANT_LAST;
    return n;
}

static const float *join_logits(struct tensor *t, int32_t n_row) {
    int32_t n_vocab = t->x->lm.n_vocab;
    int64_t at = 0;
    for (int32_t i = 0; i < t->x->n; i++) {
        int64_t n = t->x->part[i].m->hp.n_logit;
        for (int32_t r = 0; r < n_row; r++)
            memcpy(t->rows + (int64_t)r * n_vocab + at, t->logits[i] + r * n,
                   (size_t)n * sizeof(float));
        at += n;
    }
    return t->rows;
}

/* Runs every rank's part of the step on its own thread. */
static int run_all(struct tensor *t, struct err *e) {
    link_begin(t->link);
    pthread_mutex_lock(&t->lock);
    t->step++;
    t->n_busy = t->n_worker;
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    run_rank(t, 0);
    if (wait_for_all(t)) return 0;
    t->is_lost = true;
    int rc = link_status(t->link, e);
    return rc ? rc : err_set(e, CHIMERE_EDEVICE, "a card does not answer any more");
}

int lm_tensor_run(struct tensor *t, const struct batch_item *runs, int32_t n_run,
                  const float **logits, struct err *e) {
    int32_t n_row = count_rows(runs, n_run);
    if (logits) *logits = NULL;
    if (t->is_lost) return err_set(e, CHIMERE_EDEVICE, "a card does not answer any more");
    for (int32_t i = 0; i < t->x->n; i++) lm_parts_items(&t->x->part[i], i, runs, n_run);
    t->n_run = n_run;
    t->joins = !logits;
    t->n_joined = logits ? 0 : n_row;
    int rc = run_all(t, e);
    if (!rc) rc = first_failure(t, e);
    if (!rc && n_row && logits) *logits = join_logits(t, n_row);
    return rc;
}

int lm_tensor_each(struct tensor *t, lm_part_fn *task, void *arg, struct err *e) {
    if (t->is_lost) return err_set(e, CHIMERE_EDEVICE, "a card does not answer any more");
    t->task = task;
    t->task_arg = arg;
    int rc = run_all(t, e), most = 0;
    t->task = NULL;
    if (!rc) rc = first_failure(t, e);
    for (int32_t i = 0; i < t->x->n; i++)
        if (t->done_by[i] > most) most = t->done_by[i];
    return rc ? rc : most;
}

bool lm_tensor_selects(const struct tensor *t) { return t->joined != NULL; }

int lm_tensor_select(struct tensor *t, struct select_args *a, struct err *e) {
    struct dev *d = t->x->part[0].m->dev;
    a->logits = t->joined;
    a->n_row = t->n_joined;
    a->n_vocab = t->x->lm.n_vocab;
    d->ops->select(d, a);
    return d->ops->status(d, e);
}

void lm_tensor_stats(const struct tensor *t, int32_t rank, struct link_stats *out) {
    link_stats(t->link, rank, out);
}

const float *lm_tensor_row(struct tensor *t, int32_t i, struct err *e) {
    struct dev *d = t->x->part[0].m->dev;
    size_t n = (size_t)t->x->lm.n_vocab, at = (size_t)i * n;
    d->ops->download(d, t->rows + at, t->joined + at, n * sizeof(float));
    return d->ops->status(d, e) ? NULL : t->rows + at;
}

static int start(struct tensor *t, struct err *e) {
    for (int32_t i = 1; i < t->x->n; i++) {
        struct worker *w = &t->worker[i];
        *w = (struct worker){.t = t, .rank = i};
        if (pthread_create(&w->thread, NULL, work, w))
            return err_set(e, CHIMERE_ENOMEM, "cannot start a thread for each card");
        t->n_worker++;
    }
    return 0;
}

/* Chooses how rows are exchanged. With direct access, the slices' logits meet on the first device. */
static int connect(struct tensor *t, struct err *e) {
    struct parts *x = t->x;
    struct dev *d = x->part[0].m->dev;
    int64_t at = 0;
    t->measures = true;
    int rc = run_all(t, e);
    t->measures = false;
    if (!rc) rc = link_choose(t->link, e);
    if (rc || !link_is_peer(t->link) || !d->ops->select) return rc;
    t->joined = d->ops->alloc(d, (size_t)x->lm.n_row_max * (size_t)x->lm.n_vocab * sizeof(float));
    if (!t->joined) return err_set(e, CHIMERE_ENOMEM, "out of memory for logits");
    for (int32_t i = 0; i < x->n; i++) {
        forward_join(x->part[i].f, t->joined + at, x->lm.n_vocab);
        at += x->part[i].m->hp.n_logit;
    }
    return 0;
}

int lm_tensor_new(struct tensor **out, struct parts *x, const struct engine_params *p,
                  struct err *e) {
    struct dev *devs[GPUS_MAX] = {NULL};
    *out = NULL;
    struct tensor *t = mem_zalloc(sizeof *t);
    if (!t) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    t->x = x;
    t->spin_ns = x->part[0].m->dev->ops->is_host ? 0 : SPIN_NS;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    thread_cond_init(&t->done);
    for (int32_t i = 0; i < x->n; i++) devs[i] = x->part[i].m->dev;
    int64_t n_max = (int64_t)p->n_batch * x->part[0].m->hp.n_embd;
    t->rows = mem_alloc_array((size_t)x->lm.n_row_max * (size_t)x->lm.n_vocab, sizeof *t->rows);
    int rc = t->rows ? link_new(&t->link, devs, x->n, n_max, p->link, LINK_DEADLINE_MS, e)
                     : err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (int32_t i = 0; !rc && i < x->n; i++) forward_link(x->part[i].f, t->link, i);
    if (!rc) rc = start(t, e);
    if (!rc) rc = connect(t, e);
    if (rc) lm_tensor_free(t);
    else *out = t;
    return rc;
}

bool lm_tensor_free(struct tensor *t) {
    if (!t) return true;
    if (t->is_lost && !wait_for_all(t)) {
        log_warn("a card does not answer: what it uses stays in memory");
        return false;
    }
    pthread_mutex_lock(&t->lock);
    t->quit = true;
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
    for (int32_t i = 1; i <= t->n_worker; i++) pthread_join(t->worker[i].thread, NULL);
    link_free(t->link);
    if (t->joined) t->x->part[0].m->dev->ops->free(t->x->part[0].m->dev, t->joined);
    mem_free(t->rows);
    pthread_cond_destroy(&t->wake);
    pthread_cond_destroy(&t->done);
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
    return true;
}
