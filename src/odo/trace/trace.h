/* trace.h: traces of runs for a collector of OpenTelemetry: OTLP over HTTP, as JSON.
 *
 * A run records spans while it works; the trace is sent in the background after the run has ended. Names, numbers
 * and durations are sent, never texts of questions, answers or arguments. A collector that does not answer costs a
 * run nothing: traces that do not fit in the queue are dropped and counted. A span list belongs to one thread at a
 * time; a sink may be used by any thread. */
#ifndef CHIMERE_ODO_TRACE_H
#define CHIMERE_ODO_TRACE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct trace_sink;

enum { TRACE_QUEUE = 256, TRACE_MAX_SPANS = 512 };

/* url: base address of the collector, to which /v1/traces is appended if it has no path. */
int trace_open(struct trace_sink **out, const char *url, struct err *e);
/* Sends what is queued if the collector answers; s may be NULL. */
void trace_close(struct trace_sink *s);
void trace_wait(struct trace_sink *s); /* until the queue is empty */
void trace_metrics(const struct trace_sink *s, struct buf *out);

struct trace {     /* the spans of a run, or of one agent of it */
    json_t *spans; /* owned; NULL: nothing is recorded */
    uint64_t id;   /* of the span that encloses them */
};

/* on false: nothing is recorded. */
void trace_begin(struct trace *t, bool on);
/* Begins the list of an agent of the run. */
void trace_begin_part(struct trace *part, const struct trace *whole);
/* Records a span from start_ns to now, both on clock_ns. attributes: a flat object of texts, numbers and booleans;
 * the reference is taken; may be NULL. */
void trace_span(struct trace *t, const char *name, int64_t start_ns, bool failed,
                json_t *attributes);
/* Records the span that encloses a part, moves the part's spans to the whole, and ends the part. */
void trace_end_part(struct trace *whole, struct trace *part, const char *name, int64_t start_ns,
                    bool failed, json_t *attributes);
/* Records the outermost span and posts the trace; frees the spans. */
void trace_post(struct trace_sink *s, struct trace *t, const char *name, int64_t start_ns,
                bool failed, json_t *attributes);
void trace_fini(struct trace *t);

#endif
