#include "serve/api/gen.h"
#include "serve/serve.h"

#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/os/os.h"
#include "tools/mcp_session.h"
#include "odo/odo.h"
#include "serve/harvest.h"
#include "serve/http/http_impl.h"
#include "serve/api/resume.h"
#include "serve/http/listen.h"
#include "serve/slots.h"

static void set_default(int *x, int value) {
    if (*x <= 0) *x = value;
}

static void set_defaults(struct serve_params *p) {
    if (!p->host) p->host = "127.0.0.1";
    if (!p->max_body_bytes) p->max_body_bytes = (size_t)16 << 20;
    if (!p->max_bodies_bytes) p->max_bodies_bytes = (size_t)256 << 20;
    if (!p->max_out_bytes) p->max_out_bytes = (size_t)8 << 20;
    set_default(&p->max_connections, 1024);
    set_default(&p->max_waiting, 256);
    set_default(&p->idle_s, 300);
    set_default(&p->receive_s, 60);
    set_default(&p->ping_s, 10);
}

static void set_live(struct server *s, const struct serve_params *p) {
    s->timeout_s = p->timeout_s;
    s->ping_s = p->ping_s > 0 ? p->ping_s : 10;
    s->grace_s = p->grace_s;
    s->think = p->think;
}

struct store *serve_store(const struct server *s) {
    return s->p.store ? s->p.store : s->p.odo ? odo_store(s->p.odo) : NULL;
}

static int open_gates(struct server *s, struct err *e) {
    s->n_gate = catalog_count(s->p.catalog);
    s->gates = mem_alloc_array(s->n_gate, sizeof *s->gates);
    if (!s->gates) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    for (size_t i = 0; i < s->n_gate; i++) {
        const struct backend *b = catalog_at(s->p.catalog, i);
        int rc = queue_new(&s->gates[i], gen_n_seq(b), s->p.max_waiting, e);
        if (rc) return rc;
    }
    return 0;
}

int serve_open(struct server **out, const struct serve_params *p, struct err *e) {
    *out = NULL;
    struct server *s = mem_zalloc(sizeof *s);
    if (!s) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    s->p = *p;
    s->start_ns = clock_ns();
    s->created = (int64_t)time(NULL);
    s->epoll_fd = s->wake_fd = s->quiesced = -1;
    set_defaults(&s->p);
    set_live(s, &s->p);
    os_host_name(s->machine, sizeof s->machine);
    pthread_mutex_init(&s->live_lock, NULL);
    pthread_mutex_init(&s->work_lock, NULL);
    pthread_mutex_init(&s->embed_lock, NULL);
    pthread_mutex_init(&s->recommend_lock, NULL);
    thread_cond_init(&s->none_live);
    pthread_cond_init(&s->has_work, NULL);
    int rc = open_gates(s, e);
    struct store *keys = p->no_store_keys ? NULL : p->store;
    if (!rc) rc = auth_open(&s->auth, p->keys, keys, e);
    if (s->auth) s->asks_keys = auth_is_needed(s->auth);
    if (!rc && p->store) rc = record_open(&s->record, p->store, e);
    if (!rc) rc = kept_open(&s->kept, serve_store(s), KEPT_MAX_BYTES, KEPT_SECONDS, e);
    if (!rc && !(s->slots = slots_new())) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && !(s->resume = resume_new())) rc = err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (!rc && p->odo) rc = mcp_sessions_new(&s->mcp, e);
    struct store *const stores[2] = {p->store, p->odo ? odo_store(p->odo) : NULL};
    if (!rc && (stores[0] || stores[1]) && (p->keep_days || p->keep_bytes))
        rc = keeper_open(&s->keeper, stores, p->keep_days, p->keep_bytes, e);
    if (!rc && p->n_learn)
        rc = harvest_open(&s->harvest, p->learn, p->n_learn, catalog_at(p->catalog, 0),
                          p->learn_store, e);
    if (!rc) rc = watch_start(s, e);
    if (!rc) rc = http_listen(s, e);
    if (rc) serve_close(s);
    else *out = s;
    return rc;
}

int serve_reload(struct server *s, const struct serve_params *p, struct err *e) {
    int rc = auth_reload(s->auth, p->keys, e);
    if (!rc) set_live(s, p);
    return rc;
}

int serve_port(const struct server *s) {
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_BIND_PORT);
    return info ? info->port : 0;
}

/* Returns true if no request is left. */
static bool wait_idle(struct server *s, int seconds) {
    int64_t until = clock_ns() + seconds * INT64_C(1000000000);
    pthread_mutex_lock(&s->live_lock);
    while (s->n_live && thread_wait_until(&s->none_live, &s->live_lock, until)) {}
    bool idle = !s->n_live;
    pthread_mutex_unlock(&s->live_lock);
    return idle;
}

static void cut_all(struct server *s) {
    for (;;) {
        struct http_request *one = NULL;
        pthread_mutex_lock(&s->live_lock);
        for (struct http_request *r = s->live; r && !one; r = r->next) {
            pthread_mutex_lock(&r->lock);
            if (r->job_open && !r->told) {
                one = r;
                r->n_ref++;
            }
            pthread_mutex_unlock(&r->lock);
        }
        pthread_mutex_unlock(&s->live_lock);
        if (!one) return;
        http_tell_gone(one);
        http_unref(one);
    }
}

/* A request may still arrive on an accepted connection. Wait, so that it gets an error instead of a closed
 * connection. */
static void let_arrive(struct server *s) {
    enum { STEP_MS = 10, MOST_MS = 500 };
    for (int ms = 0; ms < MOST_MS; ms += STEP_MS) {
        const union MHD_DaemonInfo *open =
            MHD_get_daemon_info(s->mhd, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
        if (!open || !open->num_connections) return;
        os_sleep_ms(STEP_MS);
    }
}

void serve_stop(struct server *s) {
    if (s->stopping) return;
    s->stopping = true;
    if (!s->mhd) return;
    listen_stop(s);
    /* libmicrohttpd's thread may still use the descriptor. So it is closed after the daemon; from now on it refuses
     * clients. */
    s->quiesced = MHD_quiesce_daemon(s->mhd);
    if (s->quiesced >= 0) shutdown(s->quiesced, SHUT_RDWR);
    bool is_idle = wait_idle(s, s->grace_s);
    if (is_idle) {
        let_arrive(s);
        is_idle = wait_idle(s, s->grace_s);
    }
    if (is_idle) return;
    log_info("ending the answers that are still in progress");
    cut_all(s);
    wait_idle(s, 5);
}

/* libmicrohttpd aborts if it is stopped while connections are suspended. */
static void resume_all(struct server *s) {
    pthread_mutex_lock(&s->live_lock);
    for (struct http_request *r = s->live; r; r = r->next) {
        pthread_mutex_lock(&r->lock);
        r->gone = true;
        http_unlock_and_wake(r);
    }
    pthread_mutex_unlock(&s->live_lock);
    while (s->n_waking) os_sleep_ms(1); /* other threads may be resuming a connection */
}

static void stop_workers(struct server *s) {
    pthread_mutex_lock(&s->work_lock);
    s->quit = true;
    pthread_cond_broadcast(&s->has_work);
    pthread_mutex_unlock(&s->work_lock);
    for (int i = 0; i < s->n_worker; i++) pthread_join(s->workers[i], NULL);
}

void serve_close(struct server *s) {
    if (!s) return;
    serve_stop(s);
    watch_stop(s);
    listen_close(s);
    resume_all(s);
    if (s->mhd) MHD_stop_daemon(s->mhd);
    if (s->quiesced >= 0) close(s->quiesced);
    while (!wait_idle(s, 10)) log_warn("waiting for a running step to end");
    stop_workers(s); /* after the daemon: the workers free its last requests */
    for (size_t i = 0; s->gates && i < s->n_gate; i++) queue_free(s->gates[i]);
    mem_free(s->gates);
    auth_close(s->auth);
    keeper_close(s->keeper);
    harvest_close(s->harvest);
    record_close(s->record);
    mcp_sessions_free(s->mcp);
    kept_close(s->kept);
    resume_free(s->resume);
    slots_free(s->slots);
    pthread_mutex_destroy(&s->live_lock);
    pthread_mutex_destroy(&s->work_lock);
    pthread_mutex_destroy(&s->embed_lock);
    pthread_mutex_destroy(&s->recommend_lock);
    json_decref(s->recommend);
    pthread_cond_destroy(&s->none_live);
    pthread_cond_destroy(&s->has_work);
    mem_free(s);
}
