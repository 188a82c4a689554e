#include "serve/record.h"

#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/os/os.h"
#include "base/thread.h"

enum { N_ENTRY = 1024 };

struct entry {
    /* its texts point to the members below once it is taken from the queue */
    struct store_request q;
    char api[48], model[128], session[64], finish[16];
    bool has_session;
};

struct record {
    struct store *store; /* borrowed */
    pthread_t thread;
    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t wake;
    struct entry *ring; /* owned [N_ENTRY] */
    uint64_t n_in, n_out, n_lost;
    _Atomic bool quit, is_full;
    bool running;
};

static void write_entry(struct record *r, struct entry *x) {
    struct err e = {0};
    x->q.api = x->api;
    x->q.model = x->model;
    x->q.session = x->has_session ? x->session : NULL;
    x->q.finish = x->finish;
    int rc = store_request_add(r->store, &x->q, NULL, &e);
    bool waits = rc == CHIMERE_EBUSY || rc == CHIMERE_ELIMIT; /* nothing was written */
    if (waits) log_warn("recording waits: %s", e.text);
    while (waits && !r->quit) {
        r->is_full = rc == CHIMERE_ELIMIT;
        os_sleep_ms(200);
        rc = store_request_add(r->store, &x->q, NULL, &e);
        waits = rc == CHIMERE_EBUSY || rc == CHIMERE_ELIMIT;
    }
    r->is_full = false;
    if (rc) log_warn("a request was not recorded: %s", e.text);
}

static void *record_thread(void *arg) {
    struct record *r = arg;
    pthread_mutex_lock(&r->lock);
    while (!r->quit || r->n_out < r->n_in) {
        if (r->n_out == r->n_in) {
            pthread_cond_wait(&r->wake, &r->lock);
            continue;
        }
        struct entry x = r->ring[r->n_out++ % N_ENTRY];
        pthread_mutex_unlock(&r->lock);
        write_entry(r, &x);
        pthread_mutex_lock(&r->lock);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

int record_open(struct record **out, struct store *s, struct err *e) {
    *out = NULL;
    struct record *r = mem_zalloc(sizeof *r);
    if (r) r->ring = mem_alloc_array(N_ENTRY, sizeof *r->ring);
    if (!r || !r->ring) {
        mem_free(r);
        return err_set(e, CHIMERE_ENOMEM, "out of memory");
    }
    r->store = s;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->wake, NULL);
    r->running = pthread_create(&r->thread, NULL, record_thread, r) == 0;
    if (!r->running) {
        record_close(r);
        return err_set(e, CHIMERE_ENOMEM, "cannot start the thread that records requests");
    }
    *out = r;
    return 0;
}

void record_close(struct record *r) {
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->quit = true;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->lock);
    if (r->running) pthread_join(r->thread, NULL);
    if (r->n_lost) log_warn("%llu requests were not recorded", (unsigned long long)r->n_lost);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->wake);
    mem_free(r->ring);
    mem_free(r);
}

bool record_is_full(const struct record *r) { return r && r->is_full; }

void record_post(struct record *r, const struct store_request *q) {
    int64_t now = store_now_ms();
    pthread_mutex_lock(&r->lock);
    if (r->n_in - r->n_out < N_ENTRY) {
        struct entry *x = &r->ring[r->n_in++ % N_ENTRY];
        x->q = *q;
        if (!x->q.at_ms) x->q.at_ms = now;
        x->q.request = x->q.response = NULL;
        snprintf(x->api, sizeof x->api, "%s", q->api ? q->api : "");
        snprintf(x->model, sizeof x->model, "%s", q->model ? q->model : "");
        snprintf(x->session, sizeof x->session, "%s", q->session ? q->session : "");
        snprintf(x->finish, sizeof x->finish, "%s", q->finish ? q->finish : "");
        x->has_session = q->session != NULL;
        pthread_cond_signal(&r->wake);
    } else {
        r->n_lost++;
    }
    pthread_mutex_unlock(&r->lock);
}
