/* health.c: liveness, readiness, draining. */
#include "serve/health.h"

#include <string.h>

#include "base/log.h"
#include "serve/http/http_impl.h"
#include "store/place.h"

static void send_body(struct http_request *r, int status, struct buf *out) {
    http_reply(r, status, NULL, out);
    buf_fini(out);
}

enum { MAX_FAILED_STEPS = 3 }; /* a single failure may be caused by a request */

/* Returns whether the first model's device has failed. It stays failed until the server starts again. */
static bool is_failed(const struct server *s) {
    const struct backend *b = s->n_gate ? catalog_at(s->p.catalog, 0) : NULL;
    struct engine_totals t = {0};
    if (b && b->model && b->model->engine) engine_totals(b->model->engine, &t);
    return t.is_lost || t.n_failed_steps >= MAX_FAILED_STEPS;
}

void health_ok(struct http_request *r) {
    struct buf out;
    buf_init(&out, 4096);
    buf_puts(&out, "{\"status\":\"ok\"}");
    send_body(r, 200, &out);
}

void health_live(struct http_request *r) {
    struct buf out;
    bool failed = is_failed(http_server(r));
    buf_init(&out, 4096);
    buf_printf(&out, "{\"status\":\"%s\"}", failed ? "engine failed" : "ok");
    send_body(r, failed ? 503 : 200, &out);
}

/* Requests in progress, except the one that calls this. */
static int32_t n_other(struct server *s) {
    pthread_mutex_lock(&s->live_lock);
    int32_t n = s->n_live - 1;
    pthread_mutex_unlock(&s->live_lock);
    return n;
}

/* Reports whether a load balancer should send requests to this server. Only the first model's queue counts: a model
 * that is loaded on demand may be busy while others are free. */
void health_ready(struct http_request *r) {
    struct server *s = http_server(r);
    struct buf out;
    const char *state = s->stopping                              ? "stopping"
                        : s->draining                            ? "draining"
                        : is_failed(s)                           ? "engine failed"
                        : s->p.store && !store_is_up(s->p.store) ? "store away"
                        : record_is_full(s->record)              ? "store full"
                        : s->n_gate && queue_n_waiting(s->gates[0]) >= s->p.max_waiting
                            ? "queue full"
                            : "ready";
    buf_init(&out, 4096);
    buf_printf(&out, "{\"status\":\"%s\"}", state);
    send_body(r, strcmp(state, "ready") == 0 ? 200 : 503, &out);
}

/* Idempotent: a script can repeat it until it returns 200, which means that no request is in progress. */
void health_drain(struct http_request *r) {
    struct server *s = http_server(r);
    struct buf out;
    if (!atomic_exchange(&s->draining, true)) log_info("draining");
    int32_t n = n_other(s);
    buf_init(&out, 4096);
    buf_printf(&out, "{\"status\":\"%s\",\"in_progress\":%d}", n ? "draining" : "drained", n);
    send_body(r, n ? 202 : 200, &out);
}

void health_undrain(struct http_request *r) {
    struct server *s = http_server(r);
    if (atomic_exchange(&s->draining, false)) log_info("accepting requests again");
    health_ready(r);
}
