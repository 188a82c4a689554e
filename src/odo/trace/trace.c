#include "odo/trace/trace.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "jobs/jobs.h"
#include "net/fetch.h"

enum { SEND_MS = 15000, CLOSE_MS = 1000, STATUS_ERROR = 2, KIND_INTERNAL = 1, KIND_SERVER = 2 };

struct trace_sink {
    char *url;                  /* owned */
    struct jobs *jobs;          /* owned */
    _Atomic bool closing, down; /* down: the last trace could not be sent */
    int64_t closing_ns;         /* valid if closing */
    _Atomic uint64_t n_sent, n_dropped, n_failed, n_name;
};

struct parcel {
    struct trace_sink *sink; /* view */
    char *body;              /* owned */
};

/* ---- spans ---- */

void trace_begin(struct trace *t, bool on) {
    *t = (struct trace){.spans = on ? json_array() : NULL, .id = on ? rng_entropy() | 1 : 0};
}

void trace_begin_part(struct trace *part, const struct trace *whole) {
    trace_begin(part, whole->spans != NULL);
}

void trace_fini(struct trace *t) {
    json_decref(t->spans);
    t->spans = NULL;
}

/* Nanoseconds since 1970 as text, because JSON numbers do not hold them exactly. */
static json_t *unix_time(int64_t ns) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    int64_t offset = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec - clock_ns();
    return json_sprintf("%" PRId64, ns + offset);
}

static json_t *attributes_of(const json_t *flat) {
    json_t *list = json_array(), *v;
    const char *key;
    json_object_foreach((json_t *)flat, key, v) {
        json_t *value =
            json_is_string(v)    ? json_pack("{s:O}", "stringValue", v)
            : json_is_boolean(v) ? json_pack("{s:O}", "boolValue", v)
            : json_is_integer(v)
                ? json_pack("{s:o}", "intValue",
                            json_sprintf("%" JSON_INTEGER_FORMAT, json_integer_value(v)))
            : json_is_real(v) ? json_pack("{s:O}", "doubleValue", v)
                              : NULL;
        if (value) json_array_append_new(list, json_pack("{s:s, s:o}", "key", key, "value", value));
    }
    return list;
}

static void add(struct trace *t, uint64_t id, uint64_t parent, int kind, const char *name,
                int64_t start_ns, bool failed, json_t *attributes) {
    if (t->spans && json_array_size(t->spans) < TRACE_MAX_SPANS) {
        json_t *s = json_pack("{s:o, s:s, s:i, s:o, s:o, s:o, s:{s:i}}", "spanId",
                              json_sprintf("%016" PRIx64, id), "name", name, "kind", kind,
                              "startTimeUnixNano", unix_time(start_ns), "endTimeUnixNano",
                              unix_time(clock_ns()), "attributes", attributes_of(attributes),
                              "status", "code", failed ? STATUS_ERROR : 0);
        if (parent) json_object_set_new(s, "parentSpanId", json_sprintf("%016" PRIx64, parent));
        json_array_append_new(t->spans, s);
    }
    json_decref(attributes);
}

void trace_span(struct trace *t, const char *name, int64_t start_ns, bool failed,
                json_t *attributes) {
    add(t, rng_entropy() | 1, t->id, KIND_INTERNAL, name, start_ns, failed, attributes);
}

void trace_end_part(struct trace *whole, struct trace *part, const char *name, int64_t start_ns,
                    bool failed, json_t *attributes) {
    add(whole, part->id, whole->id, KIND_INTERNAL, name, start_ns, failed, attributes);
    json_t *s;
    size_t i;
    json_array_foreach(part->spans, i, s) if (json_array_size(whole->spans) < TRACE_MAX_SPANS)
        json_array_append(whole->spans, s);
    trace_fini(part);
}

/* ---- sending ---- */

static void parcel_free(void *ud) {
    struct parcel *p = ud;
    if (!p) return;
    mem_free(p->body);
    mem_free(p);
}

/* A program that ends does not wait long for a collector that takes connections and never answers. */
static bool is_late(void *ud) {
    const struct trace_sink *s = ud;
    return s->closing && clock_ms_since(s->closing_ns) > CLOSE_MS;
}

static int send(struct jobs_run *run, void *ud, struct err *e) {
    static const char *const headers[] = {"Content-Type: application/json", NULL};
    struct parcel *p = ud;
    struct trace_sink *s = p->sink;
    (void)run;
    if (is_late(s) || (s->closing && s->down))
        return 0; /* do not wait once more for a collector that is away */
    struct fetch_request q = {.url = s->url,
                              .body = p->body,
                              .n_body = strlen(p->body),
                              .headers = headers,
                              .max_bytes = 1 << 20,
                              .connect_ms = SEND_MS,
                              .total_ms = SEND_MS,
                              .max_redirects = -1,
                              .is_cancelled = is_late,
                              .ud = s};
    struct fetch_reply reply;
    int rc = fetch_ok(&q, &reply, e);
    fetch_reply_fini(&reply);
    if (rc && !s->down) log_warn("traces: %s", e->text);
    s->down = rc != 0;
    if (rc) ++s->n_failed;
    else ++s->n_sent;
    return rc;
}

/* All spans of a run get the same trace id. */
static char *body_of(const struct trace *t) {
    json_t *id = json_sprintf("%016" PRIx64 "%016" PRIx64, rng_entropy() | 1, rng_entropy()), *s;
    size_t i;
    json_array_foreach(t->spans, i, s) json_object_set(s, "traceId", id);
    json_t *o =
        json_pack("{s:[{s:{s:[{s:s, s:{s:s}}]}, s:[{s:{s:s}, s:O}]}]}", "resourceSpans", "resource",
                  "attributes", "key", "service.name", "value", "stringValue", "chimere",
                  "scopeSpans", "scope", "name", "chimere.odo", "spans", t->spans);
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(o);
    json_decref(id);
    return text;
}

void trace_post(struct trace_sink *s, struct trace *t, const char *name, int64_t start_ns,
                bool failed, json_t *attributes) {
    char job_name[32];
    add(t, t->id, 0, KIND_SERVER, name, start_ns, failed, attributes);
    struct parcel *p = s && t->spans ? mem_zalloc(sizeof *p) : NULL;
    if (p) {
        p->sink = s;
        p->body = body_of(t);
        snprintf(job_name, sizeof job_name, "trace %" PRIu64, ++s->n_name);
        const struct jobs_spec job = {
            .kind = "traces", .name = job_name, .work = send, .drop = parcel_free, .arg = p};
        if (!p->body || jobs_post(s->jobs, &job, NULL, NULL)) {
            parcel_free(p);
            ++s->n_dropped;
        }
    }
    trace_fini(t);
}

int trace_open(struct trace_sink **out, const char *url, struct err *e) {
    *out = NULL;
    if (!str_starts(url, "http://") && !str_starts(url, "https://"))
        return err_set(e, CHIMERE_EINVAL, "--otlp: expected an http address, got \"%.100s\"", url);
    struct trace_sink *s = mem_zalloc(sizeof *s);
    struct buf b;
    if (!s) return err_set(e, CHIMERE_ENOMEM, "out of memory");
    buf_init(&b, FETCH_MAX_URL_BYTES);
    const char *host = strstr(url, "://") + 3, *path = strchr(host, '/');
    size_t n = path && !path[1] ? (size_t)(path - url) : strlen(url);
    buf_put(&b, url, n);
    if (!path || !path[1]) buf_puts(&b, "/v1/traces");
    s->url = buf_take(&b);
    buf_fini(&b);
    const struct jobs_params p = {.max_queued = TRACE_QUEUE};
    int rc = s->url ? jobs_open(&s->jobs, &p, e) : err_set(e, CHIMERE_ENOMEM, "out of memory");
    if (rc) {
        mem_free(s->url);
        mem_free(s);
    } else {
        *out = s;
    }
    return rc;
}

void trace_wait(struct trace_sink *s) { jobs_wait(s->jobs, 0); }

void trace_close(struct trace_sink *s) {
    if (!s) return;
    s->closing_ns = clock_ns();
    s->closing = true;
    jobs_wait(s->jobs, 0);
    jobs_close(s->jobs);
    mem_free(s->url);
    mem_free(s);
}

void trace_metrics(const struct trace_sink *s, struct buf *out) {
    buf_printf(out,
               "# TYPE chimere_odo_traces_total counter\n"
               "chimere_odo_traces_total{result=\"sent\"} %llu\n"
               "chimere_odo_traces_total{result=\"failed\"} %llu\n"
               "chimere_odo_traces_total{result=\"dropped\"} %llu\n",
               (unsigned long long)s->n_sent, (unsigned long long)s->n_failed,
               (unsigned long long)s->n_dropped);
}
