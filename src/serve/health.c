/* health.c: liveness, readiness, draining. */
#include "serve/health.h"

#include <string.h>

#include "base/log.h"
#include "serve/http_impl.h"

static void send_body(struct http_request *r, int status, struct buf *out) {
    http_reply(r, status, NULL, out);
    buf_fini(out);
}

void health_live(struct http_request *r) {
    struct buf out;
    buf_init(&out, 4096);
    buf_puts(&out, "{\"status\":\"ok\"}");
    send_body(r, 200, &out);
}

/* Requests in progress, without the one that asks. */
static int32_t n_other(struct server *s) {
    pthread_mutex_lock(&s->live_lock);
    int32_t n = s->n_live - 1;
    pthread_mutex_unlock(&s->live_lock);
    return n;
}

/* Whether a load balancer should send requests here. The queue that counts is the first model's: one that
 * is loaded on demand may be busy while the others are not. */
void health_ready(struct http_request *r) {
    struct server *s = http_server(r);
    struct buf out;
    const char *state = s->stopping   ? "stopping"
                        : s->draining ? "draining"
                        : s->n_gate && queue_n_waiting(s->gates[0]) >= s->p.max_waiting
                            ? "queue full"
                            : "ready";
    buf_init(&out, 4096);
    buf_printf(&out, "{\"status\":\"%s\"}", state);
    send_body(r, strcmp(state, "ready") == 0 ? 200 : 503, &out);
}

/* Idempotent, so that a script repeats it until it returns 200: nothing is in progress. */
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
